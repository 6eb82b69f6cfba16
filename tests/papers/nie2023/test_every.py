"""What holds of all tables and figures of Nie et al. 2023, whatever was run."""

import pytest

from papers.__main__ import main
from papers.machinery.artifact import Artifact, Results, Scale
from papers.machinery.catalogue import artifacts
from papers.machinery.pages import as_csv, as_text
from papers.nie2023 import losses
from papers.nie2023.losses import (
    MARGINS,
    NAMES,
    trained,
    with_margin,
)
from tests.papers.nie2023.synthetic import curves, every, result

EVERY = artifacts(["align-uniform"])
COMPUTED = ("figure2a", "figure2b", "figure4", "table2", "table2-grids")
PROBES = ("contrastive", "alignment", "uniformity")
named = pytest.mark.parametrize("artifact", EVERY, ids=lambda one: one.name)


def test_names() -> None:
    figures = ["2a", "2b", "3b", "3c", "3d", "4"]
    expected = [*(f"figure{name}" for name in figures)]
    assert [one.name for one in EVERY] == [*expected, "table2", "table2-grids"]
    assert all("table" in one.title or "figure" in one.title for one in EVERY)


@named
def test_nothing_run(artifact: Artifact) -> None:
    shown = artifact.render("smoke", Results())
    assert as_text(artifact, shown)
    assert as_csv(shown)
    if artifact.name in COMPUTED:
        assert None not in [verdict.holds for verdict in shown.verdicts]
    else:
        assert {verdict.holds for verdict in shown.verdicts} == {None}
        assert not any(verdict.evidence for verdict in shown.verdicts)
        assert "not run" in as_text(artifact, shown)
        paper = artifact.render("paper", Results())
        assert {verdict.holds for verdict in paper.verdicts} == {None}
        assert set(shown.notes) != set(paper.notes)


@named
@pytest.mark.parametrize("kept", [1, 2])
def test_some_run_and_some_numbers_missing(artifact: Artifact, kept: int) -> None:
    """One seed of every second training, without a score; looks that lack half of it."""
    jobs = artifact.jobs("cpu")[::2]
    looks = [{"dev contrastive": 1.0, "train distance gap": None}, {"dev": 50.0}][:kept]
    shown = artifact.render(
        "smoke", Results({c: result({"average last": None}, looks) for c in jobs})
    )
    assert as_text(artifact, shown)
    if kept == 1 and artifact.name not in ("figure2a", "figure4"):  # of figure 2b's kind
        for draw in shown.pictures.values():
            assert draw().svg.startswith(b"<?xml")


def test_how_much_is_run() -> None:
    """Seven losses, and one of them with another margin."""

    def count(scale: Scale) -> int:
        return len({job for one in EVERY for job in one.jobs(scale)})

    assert count("smoke") == 8
    assert count("cpu") == 8 * 3
    assert with_margin("cpu", MARGINS[1]) == trained("cpu", "mpt")
    assert not set(with_margin("cpu", MARGINS[0])) & set(trained("cpu", "mpt"))


def test_the_paper_s_scale_is_the_paper_s(capsys: pytest.CaptureFixture[str]) -> None:
    names = [one.name for one in EVERY]
    assert main(["align-uniform", *names, "--scale", "paper", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert all(f" {name} " in told for name in names)
    assert "every name in them resolves" in told
    for name in NAMES:
        jobs = trained("paper", name)
        asked = jobs[0].settings
        assert asked["encoder"] == "bert-base-uncased"
        assert len(jobs) == 3
        preset = losses.tuned(name)
        assert (asked["learning_rate"], asked["batch_size"]) == (
            preset.learning_rate,
            preset.batch_size,
        )
        assert all(asked[f"objective.{k}"] == v for k, v in preset.values.items())


def test_whole_shows_draw_what_was_run() -> None:
    looks = curves(**{f"{side}_{p}": (3.0, 2.0, 1.0) for side in ("train", "dev") for p in PROBES})
    for name in ("figure3c", "figure3d"):
        (one,) = (artifact for artifact in EVERY if artifact.name == name)
        made = every(one.jobs("cpu"), lambda job: result({}, looks))
        picture = one.render("cpu", Results(made)).pictures[name]().svg
        assert picture != one.render("cpu", Results()).pictures[name]().svg
