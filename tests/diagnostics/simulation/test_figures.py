"""What the papers' figures show, with their own objectives or with others."""

import math

import pytest

from isotrope.core.errors import InputError
from isotrope.diagnostics import Angles
from isotrope.diagnostics.simulation.averages import gradient_norm
from isotrope.diagnostics.simulation.figures import FIGURES, FigurePanel, figure, numbers
from isotrope.objectives import InfoNCE
from isotrope.paradigm.registry import build


def test_the_papers_hyperparameters() -> None:
    """Table 2 of Nie et al. 2023, BERT-base; u is 10 degrees."""
    built = {panel.title: build(panel.name, panel.settings) for panel in FIGURES["norm"]}
    assert built["DCL"].temperature == 0.03
    assert built["DCL+"].temperature == 0.17
    assert built["MAT"].margin == pytest.approx(0.15 * math.pi)
    infonce, arccon, mpt, met = (build(p.name, p.settings) for p in FIGURES["dissipation"])
    assert infonce.temperature == arccon.temperature == 0.05
    assert arccon.margin == pytest.approx(math.radians(10))
    assert (mpt.margin, met.margin) == (0.23, 0.45)
    assert [panel.settings["temperature"] for panel in FIGURES["weight"]] == [
        0.3, 0.1, 0.05, 0.03, 0.01, 0.005,
    ]  # fmt: skip


def test_the_papers_ranges() -> None:
    (found,) = figure("ratio", FIGURES["ratio"][:1], grid=7)
    assert found.value.shape == (7, 7)
    for means, low, high in ((found.positive, 0.05, 0.5), (found.negative, 0.05, 1)):
        assert (means[0], means[-1]) == pytest.approx((low * math.pi, high * math.pi))
    (found,) = figure("weight", FIGURES["weight"][:1], grid=7, batches=2)
    assert found.positive.tolist() == [0.5]


def test_each_panel_has_its_number_of_negatives() -> None:
    few, many = FIGURES["norm"][:2]
    for found, k in zip(figure("norm", [few, many], grid=3), (64, 256), strict=True):
        angles = Angles(found.positive, found.negative, negatives=k)
        (expected,) = gradient_norm([InfoNCE()], angles)
        assert (found.value == expected.value).all()
    same = figure("norm", [few, many], grid=3, negatives=8)
    assert (same[0].value == same[1].value).all()


def test_numbers_say_what_the_figures_show() -> None:
    row = numbers("dissipation", figure("dissipation", FIGURES["dissipation"][:1], grid=40)[0])
    assert row["mu_neg"] == pytest.approx(0.968, abs=0.02)
    assert 0 < row["error <="] < 0.02
    row = numbers("weight", figure("weight", FIGURES["weight"][1:2], grid=20)[0])
    assert list(row) == ["pi/4", "pi/2", "3 pi/4", "pi"]
    assert row["pi/4"] < row["pi/2"] < 0.07
    row = numbers("ratio", figure("ratio", FIGURES["ratio"][1:], grid=40)[0])
    assert row["smallest"] >= 1
    assert row["from 1 to 2"] > 0.85
    row = numbers("norm", figure("norm", FIGURES["norm"][:1], grid=40)[0])
    assert row["largest"] == pytest.approx(20)
    assert 0.4 < row["under 1 %"] < 0.8


def test_nothing_defined_is_no_number() -> None:
    (found,) = figure("ratio", [FigurePanel("BYOL", "negativecosine")], grid=3)
    assert numbers("ratio", found) == {"smallest": None, "largest": None, "from 1 to 2": None}


def test_a_grid_of_one() -> None:
    with pytest.raises(InputError, match="give a grid of 2 or more values for each angle; found 1"):
        figure("ratio", grid=1)
