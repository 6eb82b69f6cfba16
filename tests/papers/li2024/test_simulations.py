"""Figures 2, 3, 4 and 10, which need no training."""

import numpy as np
import pytest

from isotrope.diagnostics import Landscape
from isotrope.paradigm import build
from papers.li2024 import simulated
from papers.machinery.artifact import Results
from papers.machinery.catalogue import find_artifacts
from papers.machinery.pages import as_text

EVERY = ("figure2", "figure3", "figure4", "figure10")


@pytest.mark.parametrize("name", EVERY)
def test_smoke(name: str) -> None:
    (artifact,) = find_artifacts("unified-gradient", [name])
    assert list(artifact.jobs("paper")) == []
    found = artifact.render("smoke", Results())
    assert artifact.title.startswith(f"figure {name.removeprefix('figure')}:")
    assert "not run" not in as_text(artifact, found)
    assert name in found.pictures
    for draw in found.pictures.values():
        assert draw().png.startswith(b"\x89PNG")


def plane(name: str, value: np.ndarray) -> Landscape:
    positive, negative = np.linspace(0.05, 0.5, 40) * np.pi, np.linspace(0.05, 1, 80) * np.pi
    defined = np.ones(value.shape, dtype=bool)
    return Landscape(build(name), positive, negative, value, np.zeros(value.shape), defined)


def dissipation(reach: float = 0.5, width: float = 0.05, low: float = 0.0) -> Landscape:
    """A GD that falls at mu_neg - mu_pos = reach."""
    positive, negative = np.linspace(0.05, 0.5, 40) * np.pi, np.linspace(0.05, 1, 80) * np.pi
    far = (negative - positive[:, None] - reach) / width
    return plane("infonce", low + (1 - low) / (1 + np.exp(far)))


@pytest.mark.parametrize("name", ["figure2", "figure10"])
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (dissipation(), dissipation(), [True, True, True, True]),
        (dissipation(reach=-0.1, width=0.02), dissipation(), [False, True, True, False]),
        (dissipation(low=0.1), dissipation(), [True, False, False, True]),
        (dissipation(width=0.4, reach=0.8), dissipation(reach=0.8), [False, False, False, True]),
    ],
)
def test_verdicts_on_dissipation(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    first: Landscape,
    second: Landscape,
    expected: list[bool],
) -> None:
    titles = ("ArcCon", "MET") if name == "figure2" else ("InfoNCE", "MPT")
    found = dict(zip(titles, (first, second), strict=True))
    monkeypatch.setattr(simulated, "simulated", lambda *_: found)
    verdicts = getattr(simulated, name)("cpu", Results()).verdicts
    assert [verdict.holds for verdict in verdicts] == expected


def test_the_share_with_and_without_the_gate() -> None:
    """At a tenth of the grid: the gate makes the printed shape, the weight alone does not."""
    found = simulated.figure3("smoke", Results())
    assert [verdict.holds for verdict in found.verdicts] == [True, False]
    assert list(found.pictures) == ["figure3", "figure3-gated"]
    rows = [row for row in found.tables[1].rows if row[0].endswith("0.05")]
    (plain, gated) = rows
    assert plain[-1] == "differs"
    assert gated[-1] == "matches"
    assert gated[-2] == "1.000"


def test_ratios_are_those_of_table_1() -> None:
    found = simulated.figure4("smoke", Results())
    assert [verdict.holds for verdict in found.verdicts] == [True, True, True]
    printed = {row[0]: row[2:] for row in found.tables[1].rows if "table 1" in row[1]}
    assert printed["ArcCon"] == ["1.2856", "1.2856", "matches"]
    assert printed["MET"] == ["1.9319", "1.9319", "matches"]


def test_a_ratio_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    every = dict(simulated.simulated("smoke", "ratio"))
    one = every["MPT"]
    every["MET"] = Landscape(
        build("met"), one.positive, one.negative, one.value * 3, one.error, one.defined
    )
    monkeypatch.setattr(simulated, "simulated", lambda *_: every)
    verdicts = simulated.figure4("smoke", Results()).verdicts
    assert [verdict.holds for verdict in verdicts] == [False, False, True]


def test_a_smaller_grid_is_called_smaller() -> None:
    smoke, cpu = (simulated.set_up(scale).rows for scale in ("smoke", "cpu"))  # type: ignore[arg-type]
    assert {row[-1] for row in cpu} == {"same"}
    assert [row[0] for row in smoke if row[-1] == "smaller"] == [
        "points of each axis",
        "batches of each pair",
    ]
