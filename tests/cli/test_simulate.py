"""``isotrope simulate`` end to end, on grids small enough for a test."""

import csv
import json
import math
from pathlib import Path

import pytest

from isotrope.paradigm.objective import Objective

QUICK = ["--grid", "12", "--negatives", "15"]
PLUGIN = '''
from typing import Annotated

import torch

from isotrope.core.hyper import Hyper
from isotrope.core.terms import Terms
from isotrope.core.hyper import Paper
from isotrope.paradigm.objective import Objective


class Steady(Objective, paper=Paper("A test", "nobody", "none")):
    """Its gradient is the same everywhere."""

    level: Annotated[float, Hyper("g", "GD everywhere", at_least=0)] = 0.75

    def components(self, pairs):
        weight = torch.ones_like(pairs.similarity())
        return Terms(torch.full_like(pairs.positive, self.level), weight, weight.sum(dim=1))
'''


HINGE = '''
from isotrope.core.hyper import Paper
from isotrope.paradigm.objective import Objective


class Hinge(Objective, paper=Paper("A test", "nobody", "none")):
    """A formula alone: the hardest negative less the positive."""

    def formula(self, pairs):
        return (pairs.hardest() - pairs.positive + 0.5).relu()
'''


@pytest.fixture
def plugin(tmp_path: Path):
    file = tmp_path / "hinge.py"
    file.write_text(HINGE)
    yield ["--plugin", file, "--objective", "hinge"]
    Objective.registered.pop("hinge", None)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["dissipation", "weight", "ratio", "norm"])
def test_every_kind_writes_picture_and_numbers(run, kind: str, tmp_path: Path) -> None:
    draws = ["--batches", "20"] if kind in ("dissipation", "weight") else []
    found = run("simulate", kind, *QUICK, *draws, "--output", tmp_path / "out")
    assert found.code == 0, found.err
    assert names(tmp_path / "out") == {f"{kind}.{suffix}" for suffix in ("png", "svg", "csv")}
    for suffix in ("png", "svg", "csv"):
        assert str(tmp_path / "out" / f"{kind}.{suffix}") in found.out
    with (tmp_path / "out" / f"{kind}.csv").open() as lines:
        cells = list(csv.DictReader(lines))
    panels = {line["objective"] for line in cells}
    assert len(cells) == len(panels) * 12 * (1 if kind == "weight" else 12)
    for panel in panels:
        assert panel in found.out


def test_the_table_has_the_papers_crossings(run, tmp_path: Path) -> None:
    found = run("simulate", "dissipation", "--grid", "60", "--output", tmp_path, "--json")
    crossings = [entry["mu_neg"] for entry in json.loads(found.out)["objectives"]]
    # the grid is coarse, and pi/6 is not on it
    assert crossings == pytest.approx([0.968, 1.096, 1.139, 1.27], abs=0.02)


def test_json_alone_with_settings_and_files(run, tmp_path: Path) -> None:
    options = ["--objective", "met", "--objective.margin", "0.6", *QUICK, "--json"]
    found = run("simulate", "ratio", *options, "--output", tmp_path)
    value = json.loads(found.out)
    assert value["kind"] == "ratio"
    (entry,) = value["objectives"]
    assert entry["title"] == "MET, margin 0.6"
    assert entry["settings"] == {"margin": 0.6}
    assert entry["smallest"] >= 1
    assert [Path(path).name for path in value["files"]] == ["ratio.png", "ratio.svg", "ratio.csv"]


def test_json_is_ascii(run, tmp_path: Path) -> None:
    """A terminal or a pipe may have any encoding."""
    found = run("simulate", "ratio", *QUICK, "--json", "--output", tmp_path / "größe")
    assert found.out.isascii()
    assert {Path(file).parent.name for file in json.loads(found.out)["files"]} == {"größe"}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("dissipation", [None, 0.0]),
        ("weight", [None] * 4),
        ("ratio", [None] * 3),
        ("norm", [math.sin(math.pi / 20), 1.0, 0.0]),
    ],
)
def test_what_is_undefined_is_null(
    run, kind: str, values: list[float | None], tmp_path: Path
) -> None:
    draws = ["--batches", "20"] if kind in ("dissipation", "weight") else []
    options = ["--objective", "negativecosine", *QUICK, *draws, "--output", tmp_path]
    found = run("simulate", kind, *options, "--json")
    assert found.code == 0, found.err
    (entry,) = json.loads(found.out, parse_constant=pytest.fail)["objectives"]
    assert list(entry.values())[3:] == pytest.approx(values)
    if kind == "weight":  # it has no negatives, of which one would be the hardest
        told = run("simulate", kind, *options).out.splitlines()
        assert ["NegativeCosine", *"----"] in [line.split() for line in told]


def test_the_same_seed_writes_the_same_bytes(run, tmp_path: Path) -> None:
    for folder, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        options = [*QUICK, "--batches", "20", "--seed", seed, "--output", tmp_path / folder]
        assert run("simulate", "dissipation", *options).code == 0
    for suffix in ("png", "svg", "csv"):
        a, b, c = ((tmp_path / f / f"dissipation.{suffix}").read_bytes() for f in "abc")
        assert a == b
        assert a != c


def test_flags_change_what_they_name(run, tmp_path: Path) -> None:
    def last(*options: str) -> float:
        told = run("simulate", *options, *QUICK, "--output", tmp_path, "--json").out
        return list(json.loads(told)["objectives"][0].values())[-1]

    one = ["--objective", "infonce"]
    weight = ["weight", *one, "--batches", "20"]
    assert last(*weight, "--gated") == 1
    assert last(*weight) < 0.5
    gd = ["dissipation", *one, "--batches", "20"]
    assert last(*gd) != last(*gd, "--independent")
    assert last("norm", *one) != last("norm", *one, "--part", "uniformity")


def test_a_plugin_is_simulated_like_any_other(run, tmp_path: Path) -> None:
    (tmp_path / "steady.py").write_text(PLUGIN)
    options = ["--plugin", tmp_path / "steady.py", "--objective", "steady", *QUICK]
    try:
        found = run("simulate", "dissipation", *options, "--output", tmp_path / "out")
        assert found.code == 0, found.err
        assert "Steady" in found.out
        assert ",0.75," in (tmp_path / "out" / "dissipation.csv").read_text()
    finally:
        Objective.registered.pop("steady", None)


@pytest.mark.parametrize("kind", ["dissipation", "weight", "ratio", "norm"])
def test_a_formula_alone_is_no_landscape(run, plugin, kind: str, tmp_path: Path) -> None:
    found = run("simulate", kind, *plugin, "--output", tmp_path / "out")
    assert found.code == 2
    assert found.err.startswith("isotrope: error: Hinge has no gradient components")
    assert "isotrope.decompose(objective, anchors, positives)" in found.err
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


def test_nothing_is_written_unless_all_is(run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "ratio.csv").mkdir(parents=True)  # in the way of the last of the three files
    found = run("simulate", "ratio", *QUICK, "--output", out)
    assert found.code == 2
    assert "ratio.csv is a folder" in found.err
    assert names(out) == {"ratio.csv"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "KIND is missing"),
        (["raito"], "invalid choice: 'raito'"),
        (["norm", "--objective.margin", "1"], "--objective.margin 1.0 (needs --objective NAME)"),
        (["norm", "--objective", "mtp"], "unknown objective 'mtp' (did you mean 'mpt'?)"),
        (["norm", "--objective", "mpt", "--objective.m", "1"], "objective mpt has no setting 'm'"),
        (["ratio", "--objective", "barlowtwins"], "BarlowTwins: measure this objective on real"),
        (["ratio", "--grid", "1"], "give a grid of 2 or more values for each angle; found 1"),
        (
            ["dissipation", "--batches", "1"],
            "2 batches; found negatives=127 and batches=1",
        ),
        (["dissipation", "--seed", "-1"], "give a seed of 0 or more; found -1"),
        (["ratio", "--plugin", "nowhere.py"], "plugin nowhere.py is not a file"),
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
    assert found.out == ""
    assert names(tmp_path) == set()


@pytest.mark.parametrize(("missing", "extra"), [("matplotlib", "report")])
def test_a_missing_extra_names_itself(
    run, missing: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "isotrope.reports.surfaces", raising=False)
    found = run("simulate", "ratio", *QUICK, "--output", tmp_path)
    assert found.code == 2
    assert f"pip install '.[{extra}]'" in found.err


def test_without_tqdm_there_is_no_bar_and_no_error(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tqdm", None)
    options = [*QUICK, "--batches", "5", "--output", tmp_path]
    assert run("simulate", "dissipation", *options).code == 0
