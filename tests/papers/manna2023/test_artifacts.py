"""All tables and figures of the paper, with nothing run, and the names in all jobs."""

from pathlib import Path

import pytest

from papers.machinery.artifact import SCALES, Artifact, Results
from papers.machinery.catalogue import find_artifacts
from papers.machinery.data_registry import DataRegistry
from papers.machinery.pages import as_csv, as_text
from papers.machinery.runner import missing_data
from papers.manna2023.frameworks import NAMES, PRINTED, at_end, evolving, trained
from papers.paper_numbers import printed

MODULES = [one.name for one in find_artifacts("mio", [])]
FORMULAS = ("figure1", "supplement-table2")


def artifact(name: str) -> Artifact:
    (found,) = find_artifacts("mio", [name])
    return found


def test_what_there_is() -> None:
    assert len(MODULES) == 11


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("scale", SCALES)
def test_with_nothing_run(name, scale) -> None:
    one = artifact(name)
    assert bool(one.jobs(scale)) == (name not in FORMULAS)
    shown = one.render(scale, Results())
    assert shown.tables
    assert shown.verdicts
    assert all((v.holds is None) == (name not in FORMULAS) for v in shown.verdicts)
    assert as_text(one, shown)
    assert as_csv(shown)
    assert not shown.pictures or name in shown.pictures


@pytest.mark.parametrize("name", ["figure2", "figure3", "figure4", "table2", "table3"])
def test_pictures_of_nothing_say_so(name) -> None:
    assert artifact(name).render("cpu", Results()).pictures[name]().svg.startswith(b"<?xml")


@pytest.mark.parametrize("scale", ["smoke", "cpu", "paper"])
def test_every_name_resolves(scale, tmp_path: Path) -> None:
    """And what is not on a machine without data is the data."""
    jobs = dict.fromkeys(job for name in MODULES for job in artifact(name).jobs(scale))
    missing = missing_data(list(jobs), DataRegistry(None, tmp_path))
    names = {line.partition(":")[0] for lines in missing.values() for line in lines}
    assert (
        names
        == {
            "smoke": set(),
            "cpu": {"cifar10"},
            "paper": {"cifar10", "cifar100", "stl10", "tiny-imagenet"},
        }[scale]
    )


def test_the_papers_own_configuration() -> None:
    paper = printed("mio", "training")
    for place, data in enumerate(("cifar10", "cifar100", "stl10", "tiny-imagenet")):
        for name in NAMES:
            job = trained("paper", name, data=data)[0]
            column = {row: values[place] for row, values in paper.rows.items()}
            assert job.settings["batch_size"] == column["batch_size"]
            assert job.settings["epochs"] == column["epochs"]
            # .06 is the recipes' own
            assert job.settings.get("learning_rate", 0.06) == column["learning_rate"]
            assert not {"clip", "cut", "width", "limit"} & set(job.settings)
    assert set(PRINTED.values()) == set(printed("mio", "table2").rows)
    (followed,), (end,) = evolving("paper", "BYOL"), at_end("paper", "BYOL")
    assert followed.settings["epochs"] == 500
    assert followed.settings["spectrum.epochs"] == [100, 200, 300, 400, 500]
    assert end.settings["epochs"] == 200


def test_what_is_measured_on_the_way_is_not_measured_again() -> None:
    for name in ("MIOv3", "SimCLR", "DCL", "BYOL"):
        assert at_end("cpu", name) == evolving("cpu", name)
        assert at_end("cpu", name, encoder="resnet18") == evolving("cpu", name)
        assert at_end("cpu", name, encoder="resnet9") != evolving("cpu", name)
    assert at_end("paper", "MIOv3", epochs=500) == evolving("paper", "MIOv3")
    assert at_end("smoke", "MIOv3", data="digits") == evolving("smoke", "MIOv3")
    assert not [c for c in at_end("cpu", "DCLW") if "spectrum.epochs" in c.settings]
    varied = [c.seed for c in at_end("cpu", "MIOv3") if "spectrum.variants" in c.settings]
    assert varied == [0], "once is enough to see what depends on the question"
    digits = at_end("cpu", "MIOv3", data="digits")
    assert not [c for c in digits if "spectrum.variants" in c.settings]


def test_a_spectrum_trains_what_table_2_trains() -> None:
    """But for the neighbours on the way and the probe at the end."""
    for scale in SCALES:
        for name in ("MIOv1", "Barlow Twins"):
            own = {
                k: v
                for k, v in at_end(scale, name)[0].settings.items()
                if not k.startswith("spectrum.") and k not in ("knn_every", "linear")
            }
            known = {k: v for k, v in trained(scale, name)[0].settings.items() if k != "knn_every"}
            assert own == known


def test_the_budget_of_a_cpu() -> None:
    jobs = {job for name in MODULES for job in artifact(name).jobs("cpu")}
    spectra = [c for c in jobs if c.measurement == "spectrum"]
    on_cifar = [c for c in spectra if c.settings["data"] == "cifar10"]
    large = [c for c in on_cifar if c.settings["encoder"] == "resnet18"]
    assert (len(spectra), len(on_cifar), len(large)) == (3 * 16, 3 * 12, 3 * 8)
    assert sum(len(c.settings.get("spectrum.epochs", [0])) for c in large) == 3 * 16
    assert {c.seed for c in spectra} == {0, 1, 2}
    assert {c.settings["spectrum.iterations"] for c in spectra} == {100}
