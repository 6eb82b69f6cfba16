"""All tables and figures of the paper: with nothing run, with all of it, and all their names."""

from pathlib import Path

import pytest

from isotrope.core import Result
from papers.machinery.artifact import SCALES, Artifact, Results, Scale
from papers.machinery.catalogue import find_artifacts
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob
from papers.machinery.pages import as_csv, as_text
from papers.machinery.recipes import SMALL, small_images
from papers.machinery.runner import missing_data
from papers.measurements import latent
from tests.papers.draganov2024.synthetic import looks

TRAINED = ("figure3", "figure4", "figure5", *(f"table{i}" for i in range(1, 7)))


def artifact(name: str) -> Artifact:
    (found,) = find_artifacts("cosine-pitfalls", [name])
    return found


def test_what_there_is() -> None:
    assert [one.name for one in find_artifacts("cosine-pitfalls", [])] == [
        *("figure1", "figure2", "figure3", "figure4", "figure5"),
        *(f"table{i}" for i in range(1, 7)),
    ]


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("scale", SCALES)
def test_with_nothing_run(name: str, scale: Scale) -> None:
    one = artifact(name)
    assert bool(one.jobs(scale)) == ((name, scale) != ("table4", "cpu"))
    shown = one.render(scale, Results())
    elsewhere = (name, scale) == ("table3", "cpu")  # its claims are those of claims.toml
    assert {v.holds for v in shown.verdicts} == (set() if elsewhere else {None})
    assert not any(character.isdigit() for v in shown.verdicts for character in v.evidence)
    assert "not run" in as_text(one, shown)
    assert as_csv(shown)
    for picture in shown.pictures.values() if scale == "smoke" else ():
        assert picture().svg.startswith(b"<?xml")


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("scale", SCALES)
def test_with_all_run(name: str, scale: Scale) -> None:
    one = artifact(name)
    results = {job: _result(job, 1.0 + place) for place, job in enumerate(one.jobs(scale))}
    shown = one.render(scale, Results(results))
    text = as_text(one, shown)
    if (name, scale) not in (("table3", "cpu"), ("table4", "cpu")):
        assert any(v.holds is not None for v in shown.verdicts)
        assert all(v.evidence for v in shown.verdicts if v.holds is not None)
        if scale == "paper":
            assert "not run" not in text
    names = [name, *([f"{name}-recipes"] if (name, scale) == ("figure5", "cpu") else [])]
    assert list(shown.pictures) == (names if name.startswith("figure") else [])
    drawn = "smoke" if name == "figure4" else "cpu"
    for picture in shown.pictures.values() if scale == drawn else ():
        assert picture().png.startswith(b"\x89PNG")


@pytest.mark.parametrize("name", TRAINED)
def test_numbers_that_do_not_exist_do_no_harm(name: str) -> None:
    one = artifact(name)
    none = {
        job: Result("images", "x", {}, {"looks": looks([0, 1, 2]), "pairs": _pairs()})
        for job in one.jobs("smoke")
    }
    shown = one.render("smoke", Results(none))
    poles = [v for v in shown.verdicts if "poles" in v.claim]  # of pairs, which there are
    assert {v.holds for v in shown.verdicts if v not in poles} == {None}


def _result(job: PaperJob, number: float) -> Result:
    every = [0, 1, 2, 4, 6, 8, 16, 100, 300, 500]
    columns = {
        "knn": [number + epoch for epoch in every],
        "norm": [number * (1 + epoch) for epoch in every],
        **dict.fromkeys(("opposite_halves", "far_opposite", "clusters"), [0.1] * len(every)),
    }
    return Result("images", "x", {}, {"looks": looks(every, **columns), "pairs": _pairs()})


def _pairs() -> dict[str, dict[str, list[list[float]]]]:
    return {str(e): {"anchors": [[1, 0], [0, 1]], "positives": [[1, 1], [0, 2]]} for e in (0, 1, 2)}


def test_every_name_resolves(tmp_path: Path) -> None:
    for scale in SCALES:
        jobs = [job for name in TRAINED for job in artifact(name).jobs(scale)]
        found = missing_data(dict.fromkeys(jobs), DataRegistry(tmp_path, tmp_path))
        missing = {line.partition(":")[0] for lines in found.values() for line in lines}
        assert (
            missing
            == {
                "smoke": set(),
                "cpu": {"cifar10"},
                "paper": {"cifar10", "cifar100", "imagenet100", "flowers102-long-tailed"},
            }[scale]
        )


def test_what_is_run_besides_the_trainings_that_are_shared() -> None:
    shared = {job for name in SMALL for job in small_images("cpu", name)}
    jobs = {job for name in TRAINED for job in artifact(name).jobs("cpu")}
    own = [job for job in jobs - shared if job.measurement == "images"]
    assert sum(job.settings["epochs"] for job in own) <= 48  # twelve trainings of four epochs


def test_the_paper_trains_equal_things_once() -> None:
    table3, table2 = set(artifact("table3").jobs("paper")), set(artifact("table2").jobs("paper"))
    assert len(table2 & table3) == 18  # two sets of images, three methods, three seeds
    assert set(artifact("figure5").jobs("paper")) & table3


def test_a_latent_space_is_trained(tmp_path: Path) -> None:
    asked = {"run": "BYOL", "data": "digits", "epochs": 1, "limit": 128, "shown": [1]}
    job, places = PaperJob("latent", asked), DataRegistry(None, tmp_path)
    assert latent.check(job, places) == []
    result = latent.run(job, places, tmp_path)
    assert [look["epoch"] for look in result.details["looks"]] == [0, 1]
    assert result.metrics["norm"] == result.details["looks"][1]["norm"] > 0
    (pairs,) = result.details["pairs"].values()
    assert len(pairs["anchors"]) == len(pairs["positives"]) == 128
