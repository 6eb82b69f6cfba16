"""``isotrope simulate convergence`` and ``latent`` end to end, on few pairs and images."""

import csv
import json
from pathlib import Path

import pytest

from isotrope.paradigm.objective import Objective

QUICK = ["--pairs", "20", "--dimension", "5", "--rate", "0.4", "--grid", "3"]
SHORT = ["--epochs", "1", "--limit", "130"]
PLUGIN = '''
from isotrope.paradigm.objective import Objective, Paper


class Hinge(Objective, paper=Paper("A test", "nobody", "none")):
    """A formula alone: the hardest negative less the positive."""

    def formula(self, pairs):
        return (pairs.hardest() - pairs.positive + 0.5).relu()
'''


@pytest.fixture
def plugin(tmp_path: Path):
    file = tmp_path / "hinge.py"
    file.write_text(PLUGIN)
    yield ["--plugin", file, "--objective", "hinge"]
    Objective.registered.pop("hinge", None)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_papers_cosine(run, tmp_path: Path) -> None:
    found = run("simulate", "convergence", *QUICK, "--steps", "400", "--output", tmp_path / "a")
    assert found.code == 0, found.err
    assert names(tmp_path / "a") == {f"convergence.{kind}" for kind in ("png", "svg", "csv")}
    assert "NegativeCosine: steps until the mean cosine of 20 pairs exceeds 0.999" in found.out
    with (tmp_path / "a" / "convergence.csv").open() as lines:
        small, middle, large, *angles = csv.DictReader(lines)
    assert (large["norm"], large["steps"], large["at_least"]) == ("10", "", "")
    assert 0 < int(small["at_least"]) <= int(small["steps"]) < int(middle["steps"]) <= 400
    assert len(angles) == 3
    again = run("simulate", "convergence", *QUICK, "--steps", "400", "--output", tmp_path / "b")
    assert again.code == 0
    for kind in ("png", "svg", "csv"):
        one, two = ((tmp_path / f / f"convergence.{kind}").read_bytes() for f in "ab")
        assert one == two


def test_any_objective_in_json(run, plugin, tmp_path: Path) -> None:
    options = [*QUICK, "--steps", "30", "--json", "--output", tmp_path / "out"]
    told = json.loads(run("simulate", "convergence", *plugin, *options).out)
    assert (told["kind"], told["objective"], told["seed"]) == ("convergence", "Hinge", 0)
    assert len(told["starts"]) == 6
    assert all(start["theorem"] is None for start in told["starts"])
    edited = ["--objective", "barlowtwins", "--objective.ratio", "1.5"]
    found = run("simulate", "convergence", *edited, *options)
    assert found.code == 0, found.err
    assert json.loads(found.out)["objective"] == "BarlowTwins, ratio 1.5"
    seeds = [
        json.loads(run("simulate", "convergence", *QUICK, "--steps", "30", "--json", *s).out)
        for s in (["--output", tmp_path], ["--seed", "1", "--output", tmp_path])
    ]
    assert seeds[0]["starts"] != seeds[1]["starts"]


def test_pairs_in_two_dimensions(run, plugin, tmp_path: Path) -> None:
    found = run("simulate", "latent", *plugin, *SHORT, "--output", tmp_path / "out")
    assert found.code == 0, found.err
    pictures = {f"{stem}.{kind}" for stem in ("latent", "latent-norms") for kind in ("png", "svg")}
    assert names(tmp_path / "out") == pictures | {"latent.csv", "latent-pairs.csv"}
    with (tmp_path / "out" / "latent.csv").open() as lines:
        course = list(csv.DictReader(lines))
    assert len(course) == 3 * 2
    assert {line["run"] for line in course} == {"SimCLR", "SimCLR, decay .05", "SimCLR, cut 3"}
    options = [*SHORT, "--objective", "mpt", "--objective.margin", "0.4", "--json"]
    told = json.loads(run("simulate", "latent", *options, "--output", tmp_path).out)
    assert told["objective"] == "MPT, margin 0.4"
    assert {look["epoch"] for look in told["looks"]} == {0, 1}


@pytest.mark.parametrize("kind", ["dissipation", "weight", "ratio", "norm"])
def test_a_formula_alone_is_no_landscape(run, plugin, kind: str, tmp_path: Path) -> None:
    found = run("simulate", kind, *plugin, "--output", tmp_path / "out")
    assert found.code == 2
    assert found.err.startswith("isotrope: error: Hinge has a formula but no components")
    assert "isotrope.decompose(Hinge(), anchors, positives)" in found.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["dissipation", "weight", "ratio", "norm"])
@pytest.mark.parametrize(
    "edited",
    [
        ["mhe", "dissipation", "margin:0.3", "ratio", "1.5"],
        ["infonce", "weight", "hardest", "symmetric", "true"],
        ["paradigm", "weight", "softmax:0.1", "ratio", "2"],
    ],
    ids=lambda given: given[0],
)
def test_compositions_have_landscapes(run, kind: str, edited: list[str], tmp_path: Path) -> None:
    name, *settings = edited
    flags = [f"--objective.{s}" if i % 2 == 0 else s for i, s in enumerate(settings)]
    options = ["--grid", "3", "--negatives", "4", "--output", tmp_path]
    found = run("simulate", kind, "--objective", name, *flags, *options)
    assert found.code == 0, found.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["convergence", "--pairs", "1"], "pairs must be at least 2; found 1"),
        (["convergence", "--grid", "1"], "a grid needs 2 or more norms and angles; found 1"),
        (["convergence", "--steps", "0"], "--steps must be 1 or more; found 0"),
        (["convergence", "--rate", "nan"], "the learning rate must be above 0; found nan"),
        (["convergence", "--epochs", "3"], "unrecognized arguments: --epochs 3"),
        (["convergence", "--objective", "infonec"], "did you mean 'infonce'?"),
        (["convergence", "--objective.margin", "1"], "--objective.margin needs --objective NAME"),
        (["latent", "--epochs", "0"], "training takes 1 or more epochs; found 0"),
        (["latent", "--data", "nowhere"], "nowhere"),
        (["latent", "--limit", "1"], "a limit of 1 pictures"),
        (["latent", "--plugin", "nowhere.py"], "plugin nowhere.py is not a file"),
    ],
    ids=str,
)
def test_bad_input_is_one_line_and_writes_nothing(
    run, arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run("simulate", *arguments)
    assert found.code == 2
    assert found.err.startswith("isotrope: error: ")
    assert found.err.count("\n") == 1
    assert says in found.err
    assert names(tmp_path) == set()


@pytest.mark.parametrize("kind", [["convergence", *QUICK, "--steps", "2"], ["latent", *SHORT]])
def test_a_missing_extra_names_itself(
    run, kind: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "isotrope.reports.convergence", raising=False)
    found = run("simulate", *kind, "--output", tmp_path)
    assert found.code == 2
    assert "pip install 'isotrope[report]'" in found.err


def test_all_files_are_written_or_none(run, tmp_path: Path) -> None:
    (tmp_path / "taken" / "convergence.svg").mkdir(parents=True)
    small = ["--pairs", "4", "--dimension", "3", "--grid", "2", "--steps", "2"]
    found = run("simulate", "convergence", *small, "--output", tmp_path / "taken")
    assert found.code == 2
    assert "convergence.svg is a folder, not a file; remove it" in found.err
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["convergence.svg"]
