"""Jobs: equal if they ask for the same; one line says what tells them apart."""

import pytest

from papers.machinery.job import PaperJob
from papers.machinery.recipes import image_jobs, text_jobs


def test_the_spelling_of_settings_does_not_count() -> None:
    one = PaperJob("text", {"a": 1.0, "b": [1, 2], "c": {"x": 1e-3}}, 0)
    other = PaperJob("text", {"c": {"x": 0.001}, "b": (1, 2.0), "a": 1}, 0, title="another")
    assert one == other
    assert len({one, other}) == 1


@pytest.mark.parametrize(
    "other",
    [
        PaperJob("text", {"a": 1}, 1),
        PaperJob("images", {"a": 1}, 0),
        PaperJob("text", {"a": 2}, 0),
        PaperJob("text", {"a": "1"}, 0),
        PaperJob("text", {"a": True}, 0),
        PaperJob("text", {"a": 1, "b": None}, 0),
    ],
)
def test_what_is_asked_counts(other: PaperJob) -> None:
    assert other != PaperJob("text", {"a": 1}, 0)
    assert other.key != PaperJob("text", {"a": 1}, 0).key


def test_a_cell_of_nan_is_no_cell() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        _ = PaperJob("text", {"a": float("nan")}).key


def test_seeded_is_the_same_with_another_seed() -> None:
    job = PaperJob("text", {"a": 1}, 0, "title")
    assert job.seeded(3) == PaperJob("text", {"a": 1}, 3)
    assert job.seeded(3).title == "title"


def test_one_line_says_what_differs_from_the_recipe() -> None:
    (job,) = text_jobs("smoke", "infonce", {"temperature": 0.05}, batch_size=16, head="mlp")
    assert job.label == "text infonce temperature=0.05 head=mlp, seed 0"
    (job,) = image_jobs("smoke", "simclr", "dcl", {"temperature": 0.1}, cut=3.0)
    assert job.label == "images simclr dcl temperature=0.1 cut=3, seed 0"
    (job,) = image_jobs("smoke", "byol")
    assert job.label == "images byol, seed 0"


def test_without_a_title_the_settings_say_it_in_a_line() -> None:
    short = PaperJob("work", {"rate": 1e-3, "parts": ["a", "b"], "of": {"x": 2}, "none": []}, 7)
    assert short.label == "work rate=0.001 parts=a,b of=x:2 none=-, seed 7"
    long = PaperJob("work", {f"setting_{i}": i for i in range(40)})
    assert len(long.label) < 120
    assert "setting_0=0" in long.label
    assert "…" in long.label
