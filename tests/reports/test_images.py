"""Reports of runs on images: their own score, curves and columns, alone or beside runs on text."""

from pathlib import Path

import pytest

from isotrope.reports.panels import sections
from isotrope.reports.runs import read_run
from tests.reports.folders import write_image_run, write_run
from tests.reports.test_html import report

OWN = (
    "knn", "loss", "dissipation", "hardest_share", "ratio", "norm", "gradient_norm",
    "opposite_halves", "trajectory", "effective_rank", "std",
)  # fmt: skip


def test_a_finished_run(tmp_path: Path) -> None:
    run = read_run(write_image_run(tmp_path / "a", cut=3))
    assert run.of_images
    assert (run.method, run.objective) == ("simclr, cut 3", "ntxent")
    assert run.dev_name == "kNN accuracy"
    assert (run.metric("dev_start"), run.metric("dev_best")) == (24.9, 36.2)
    # the model of the last step is what was saved
    assert (run.saved_step, run.metric(run.saved)) == (40, 35.8)
    assert list(run.scores[[0, 10, 20]]) == [24.9, 36.2, 35.8]


def test_a_run_in_progress(tmp_path: Path) -> None:
    run = read_run(write_image_run(tmp_path / "a", method="byol", finished=False))
    assert run.of_images
    assert (run.method, run.objective) == ("byol", "?")
    assert (run.metric("dev_best"), run.metric("dev_best_step")) == (36.2, 20)
    assert run.metric("norm") == pytest.approx(4.135, abs=0.001)


def test_a_run_on_text_is_none(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a"))
    assert not run.of_images
    assert run.method == ""
    assert (run.saved_step, run.metric(run.saved)) == (20, 87.13)


def test_pictures(tmp_path: Path) -> None:
    images = [read_run(write_image_run(tmp_path / name)) for name in ("a", "b")]
    drawn = [panel for _, panels, _ in sections(images) for panel in panels]
    assert [panel.key for panel in drawn] == list(OWN)
    assert drawn[0].title == "kNN accuracy"
    assert "last step, whose model was saved" in drawn[0].note
    for panel in drawn:
        assert f'id="series-{panel.key}-1"' in panel.svg


def test_both_kinds_have_a_picture_of_their_own_score(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / "text")), read_run(write_image_run(tmp_path / "pixels"))]
    drawn = {panel.key: panel for _, panels, _ in sections(runs) for panel in panels}
    assert list(drawn)[:3] == ["dev", "knn", "loss"]
    for key, own, other in (("dev", 0, 1), ("knn", 1, 0)):
        assert f'id="series-{key}-{own}"' in drawn[key].svg
        assert f'id="series-{key}-{other}"' not in drawn[key].svg
        assert f'id="series-{key}-wide-{own}"' in drawn[key].wide
    assert "pixels" in drawn["knn"].wide
    assert "pixels" not in drawn["dev"].wide
    assert 'id="series-opposite_halves-1"' in drawn["opposite_halves"].svg
    assert 'id="series-norm-0"' in drawn["norm"].svg


def test_the_page(tmp_path: Path) -> None:
    plain = write_image_run(tmp_path / "plain", knn=(24.9, 36.2, 35.8), judgement="improved")
    cut = write_image_run(tmp_path / "cut", cut=9, method="simsiam", knn=(24.9, 30.0, 36.0))
    running = write_image_run(tmp_path / "running", finished=False)
    source, page = report(tmp_path, plain, cut, running)
    # by what was saved: the other was higher on the way
    assert (
        "cut has the highest score: kNN accuracy 36.00 at step 40, +11.10 over the model before"
        in page.text
    )
    assert "plain Improved: as it was judged." in page.text
    assert "36.20 not saved" in page.text
    assert "In progress (or stopped) at step 40: best kNN accuracy 36.20" in page.text
    assert "simsiam, cut 9; ntxent: temperature 0.1" in page.text
    for words in (
        "kNN start",
        "Linear probe",
        "41.25",
        "0.030",
        "Images /",
        "Opposite halves",
        "Images",
    ):
        assert words in page.text
    for words in ("Dev score", "Dev chosen", "Samples /"):
        assert words not in page.text
    assert source.count('class="number best"') == 1


def test_training_that_harms_and_runs_on_other_images(tmp_path: Path) -> None:
    worse = write_image_run(tmp_path / "worse", knn=(24.9, 26.0, 20.0), judgement="worse")
    _, page = report(tmp_path, worse)
    assert "Worse: as it was judged." in page.text
    assert (
        "Training made it worse: the saved model (step 40) has 20.00, and the model before"
        in page.text
    )
    _, page = report(tmp_path, worse, write_image_run(tmp_path / "other", data="elsewhere"))
    assert "their dev data differ or are not known" in page.text


def test_no_labels(tmp_path: Path) -> None:
    _, page = report(tmp_path, write_image_run(tmp_path / "flat", knn=()))
    assert "No kNN accuracy was measured, so the best run is not known." in page.text
    assert "not measured: the run had no labelled test images" in page.titles


def test_beside_text(tmp_path: Path) -> None:
    source, page = report(tmp_path, write_run(tmp_path / "a"), write_image_run(tmp_path / "b"))
    assert "their dev data differ or are not known" in page.text
    assert "not measured in a run on text" in page.titles
    assert "not measured in a run on images" in page.titles
    for words in ("Dev start", "Dev score", "kNN accuracy", "Samples /", "Images /"):
        assert words in page.text
    assert 'class="number best"' not in source
