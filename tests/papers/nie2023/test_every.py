"""What holds of all tables and figures of paper 001, whatever was run."""

from pathlib import Path

import pytest

from papers.__main__ import main
from papers.li2024.losses import EFFECTIVE
from papers.machinery.artifact import Artifact, Results, Scale, artifacts
from papers.machinery.data_registry import DataRegistry
from papers.machinery.pages import as_csv, as_text
from papers.machinery.runner import missing_data
from papers.nie2023 import losses
from papers.nie2023.losses import (
    MARGINS,
    NAMES,
    longer,
    trained,
    untrained,
    with_margin,
)
from papers.nie2023.table2_grids import searched
from tests.papers.nie2023.synthetic import curves, every, result

EVERY = artifacts(["align-uniform"])
COMPUTED = ("bounds", "figure2a", "figure2b", "figure4", "table2")
PROBES = ("contrastive", "alignment", "uniformity")
named = pytest.mark.parametrize("artifact", EVERY, ids=lambda one: one.name)


def test_names() -> None:
    figures = ["1a", "1b", "1c", "1d", "2a", "2b", "3a", "3b", "3c", "3d", "3e", "4"]
    expected = ["bounds", *(f"figure{name}" for name in figures)]
    assert [one.name for one in EVERY] == [*expected, "table1", "table2", "table2-grids"]
    assert all("table" in one.title or "figure" in one.title for one in EVERY)


@named
def test_nothing_run(artifact: Artifact) -> None:
    shown = artifact.render("smoke", Results())
    assert as_text(artifact, shown)
    assert as_csv(shown)
    if artifact.name in COMPUTED:
        assert None not in [verdict.holds for verdict in shown.verdicts]
    elif artifact.name != "table2-grids":
        assert {verdict.holds for verdict in shown.verdicts} == {None}
        assert not any(verdict.evidence for verdict in shown.verdicts)
        assert "not run" in as_text(artifact, shown)
        paper = artifact.render("paper", Results())
        assert {verdict.holds for verdict in paper.verdicts} == {None}
        assert set(shown.notes) != set(paper.notes) or artifact.name == "figure1a"


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


def test_what_other_tables_train_too_is_trained_once() -> None:
    others = {loss.objective: loss for loss in EFFECTIVE}
    for scale in ("smoke", "cpu"):
        for name in ("infonce", "mpt", "met"):
            assert trained(scale, name) == others[name].jobs(scale)
    for name in ("mpt", "met"):
        assert trained("paper", name) == others[name].jobs("paper")
    # table 2 has another learning rate than SimCSE
    assert trained("paper", "infonce")[0].settings["learning_rate"] == 1e-5
    assert with_margin("cpu", MARGINS[1]) == trained("cpu", "mpt")
    assert not set(with_margin("cpu", MARGINS[0])) & set(trained("cpu", "mpt"))
    for scale in ("smoke", "paper"):  # long enough, or for the show only
        assert longer(scale, "dcl") == trained(scale, "dcl")


def test_how_much_is_run() -> None:
    """Two margins, four losses and three long trainings are this paper's own, at cpu scale."""

    def count(scale: Scale) -> int:
        return len({job for one in EVERY for job in one.jobs(scale)})

    assert count("smoke") == 9 + 1
    assert count("cpu") == 27 + 9 + 1
    shared = {job for loss in EFFECTIVE for job in loss.jobs("cpu")}
    own = {job for one in EVERY for job in one.jobs("cpu")} - shared - set(untrained("cpu"))
    assert len(own) == 18 + 9


def test_the_paper_s_scale_is_the_paper_s(capsys: pytest.CaptureFixture[str]) -> None:
    names = [one.name for one in EVERY if one.name != "table2-grids"]
    assert main(["align-uniform", *names, "--scale", "paper", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert all(f" {name} " in told for name in names)
    assert "every name in them resolves" in told
    for base, encoder in losses.BACKBONES.items():
        for name in NAMES:
            jobs = trained("paper", name, base)
            asked = jobs[0].settings
            assert asked["encoder"] == encoder
            assert len(jobs) == 3
            preset = losses.tuned(name, base)
            assert (asked["learning_rate"], asked["batch_size"]) == (
                preset.learning_rate,
                preset.batch_size,
            )
            assert all(asked[f"objective.{k}"] == v for k, v in preset.values.items())


@pytest.mark.parametrize("objective", NAMES)
def test_corners_of_the_grids_can_be_run(objective: str) -> None:
    jobs = list(searched(objective))
    assert missing_data([jobs[0], jobs[15], jobs[-1]], DataRegistry(None, Path("made")))


def test_whole_shows_draw_what_was_run() -> None:
    looks = curves(**{f"{side}_{p}": (3.0, 2.0, 1.0) for side in ("train", "dev") for p in PROBES})
    for name in ("figure1b", "figure3e"):
        (one,) = (artifact for artifact in EVERY if artifact.name == name)
        made = every(one.jobs("cpu"), lambda job: result({}, looks))
        picture = one.render("cpu", Results(made)).pictures[name]().svg
        assert picture != one.render("cpu", Results()).pictures[name]().svg
