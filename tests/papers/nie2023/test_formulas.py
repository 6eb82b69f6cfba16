"""Surfaces, bounds and hyperparameters: what is computed where it is shown."""

import dataclasses
import math

import numpy as np
import pytest

from isotrope import Preset
from papers.nie2023 import norms, table2
from papers.nie2023.norms import PANELS, equation
from papers.paper_numbers import printed
from tests.papers.nie2023.synthetic import verdicts, words


@pytest.mark.parametrize("part", ["alignment", "uniformity"])
def test_components_have_the_norms_of_the_equations(part: norms.Part) -> None:
    assert norms.agreement("smoke", part, list(PANELS)).holds
    assert norms.misprinted("smoke", part).holds is False


def test_another_equation_does_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    warmer = dataclasses.replace(PANELS["DCL"], settings={"temperature": 0.031})
    norms.surfaces("smoke", "alignment")
    monkeypatch.setitem(PANELS, "DCL", warmer)
    assert norms.agreement("smoke", "alignment", ["DCL"]).holds is False
    assert norms.agreement("smoke", "alignment", ["DCL+"]).holds


def test_equations_by_hand() -> None:
    p, n = np.array(math.pi / 6), np.array(math.pi / 4)
    e_p, e_n = (math.exp(math.cos(x) / 0.05) for x in (p, n))
    eq7 = 64 * e_n * math.sin(p) / (0.05 * (e_p + 64 * e_n))
    eq16 = e_n * math.sin(n) / (0.05 * (e_p + 64 * e_n))
    infonce = PANELS["InfoNCE, 64 negatives"]
    assert float(equation(infonce, "alignment", p, n)) == pytest.approx(eq7)
    assert float(equation(infonce, "uniformity", p, n)) == pytest.approx(eq16)
    eq8 = 0.9 / 65 * 2 * math.sin(p)
    assert float(equation(PANELS["align & uniform"], "alignment", p, n)) == pytest.approx(eq8)


@pytest.mark.parametrize("name", ["figure2a", "figure2b", "figure4"])
def test_verdicts_on_surfaces(name: str) -> None:
    found = {verdict.claim: verdict.holds for verdict in verdicts(name, {}, "smoke")}
    false = {claim for claim, holds in found.items() if not holds}
    expected = {"figure2a": 0, "figure2b": 1, "figure4": 1}
    assert len(false) == expected[name]
    assert all("as printed" in claim for claim in false)


def test_the_shaded_part_shrinks_and_what_would_not_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert words("figure2a", {}, "smoke")[1:3] == ["replicated", "replicated"]
    monkeypatch.setattr(norms, "COUNTS", (4096, 1024, 256, 64))
    assert words("figure2a", {}, "smoke")[1:3] == ["contradicted", "contradicted"]


def test_presets_are_the_printed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert words("table2", {}) == ["replicated"]
    real = table2.tuned

    def other(objective: str, backbone: str) -> Preset:
        preset = real(objective, backbone)
        return dataclasses.replace(preset, batch_size=65) if objective == "mat" else preset

    monkeypatch.setattr(table2, "tuned", other)
    (verdict,) = verdicts("table2", {})
    assert verdict.holds is False
    assert verdict.evidence == "23 rows, 1 of them different"


def test_grids_are_the_printed_ones() -> None:
    assert table2.grid("infonce") == {"temperature": [0.03, 0.05, 0.07]}
    own = table2.grid("alignuniform")
    assert {name: len(values) for name, values in own.items()} == {"balance": 5, "alpha": 3, "t": 9}
    assert own["t"][-1] == 10
    assert table2.grid("dclplus")["temperature"][-1] == 0.2
    assert len(table2.grid("mat")["margin over pi"]) == 11


def test_optima_outside_the_grids() -> None:
    (first,) = verdicts("table2-grids", {}, "paper")
    assert first.holds is False
    told = "align & uniform balance 0.2, align & uniform balance 0.4, DCL temperature 0.01, "
    assert first.evidence == f"outside: {told}DCL temperature 0.02"
    assert "temperatures .01 and .02 of DCL" in printed("align-uniform", "table2").notes[1]
