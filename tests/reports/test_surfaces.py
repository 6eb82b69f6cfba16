"""Pictures over angles: the papers' axes, hatched where undefined, the same bytes each time."""

import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from isotrope.reports import surfaces
from isotrope.reports.plots import Picture
from isotrope.reports.surfaces import Surface, curves, heatmaps

X, Y = np.linspace(0.05, 1, 30) * np.pi, np.linspace(0.05, 0.5, 20) * np.pi
SLOPE = Surface("InfoNCE", X, Y, np.cos(Y)[:, None] - np.cos(X), np.ones((20, 30), dtype=bool))
HALF = replace(SLOPE, defined=Y[:, None] <= X)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures behind the pictures."""
    kept: list[Figure] = []
    written = surfaces.written

    def keep(figure: Figure) -> Picture:
        kept.append(figure)
        return written(figure)

    monkeypatch.setattr(surfaces, "written", keep)
    return kept


def pixels(picture: Picture) -> np.ndarray:
    return mpl.image.imread(io.BytesIO(picture.png))


def test_both_formats_are_whole_and_repeatable() -> None:
    for draw in (lambda: heatmaps([SLOPE, HALF], "gap"), lambda: curves([SLOPE], "gap")):
        picture = draw()
        ElementTree.fromstring(picture.svg)
        assert picture.png.startswith(b"\x89PNG")
        assert picture == draw()
        assert not re.search(rb"date|\d{4}-\d\d-\d\d", picture.svg, re.IGNORECASE)
        assert b"Software" not in picture.png


def test_the_axes_are_those_of_the_papers(drawn: list[Figure]) -> None:
    heatmaps([SLOPE], "gap", limits=(0, 2))
    axes, bar = drawn[0].axes
    assert axes.get_xlabel() == r"$\mu_\mathrm{neg}$"
    assert axes.get_ylabel() == r"$\mu_\mathrm{pos}$"
    assert axes.get_title() == "InfoNCE"
    ticks = {
        name: ([label.get_text() for label in axis.get_ticklabels()], axis.get_ticklocs())
        for name, axis in (("x", axes.xaxis), ("y", axes.yaxis))
    }
    assert ticks["x"][0] == ["π/20", "π/4", "π/2", "3π/4", "π"]
    np.testing.assert_allclose(ticks["x"][1], np.array([0.05, 0.25, 0.5, 0.75, 1]) * np.pi)
    assert ticks["y"][0] == ["π/20", "π/4", "π/2"]
    assert bar.get_ylabel() == "gap"
    assert bar.get_ylim() == (0, 2)


def test_one_scale_for_all_panels_or_one_each(drawn: list[Figure]) -> None:
    heatmaps([SLOPE] * 6, "gap", limits=(0, 2))
    heatmaps([SLOPE, replace(SLOPE, value=3 * SLOPE.value)], "gap")
    shared, own = drawn
    assert len(shared.axes) == 6 + 2, "a scale at the end of each row"
    assert [axes.get_ylabel() for axes in own.axes] == [r"$\mu_\mathrm{pos}$", "", "", "gap"]
    assert own.axes[1].get_ylim()[1] < own.axes[3].get_ylim()[1]


def test_where_it_is_undefined_it_is_grey_and_hatched() -> None:
    everywhere, half = (pixels(heatmaps([s], "gap", limits=(0, 2))) for s in (SLOPE, HALF))
    changed = (everywhere != half).any(axis=-1)
    red, green, blue, _ = half[changed].T
    grey = (np.abs(red - green) < 0.06) & (np.abs(green - blue) < 0.08)
    assert changed.mean() > 0.05
    assert grey.mean() > 0.9
    assert len(np.unique(half[changed].round(1), axis=0)) > 2, "hatched, not flat"


def test_colours_keep_their_order_in_greyscale() -> None:
    colours = mpl.colormaps[surfaces._COLOURS](np.linspace(0, 1, 50))[:, :3]
    luminance = colours @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(luminance) > 0).all()


def test_contours_are_drawn_where_the_value_passes() -> None:
    plain, lined, beyond = (
        pixels(heatmaps([SLOPE], "gap", limits=(0, 2), lines=lines)) for lines in ((), (1,), (9,))
    )
    assert (plain != lined).any()
    np.testing.assert_array_equal(plain, beyond)


def test_a_surface_without_relief_or_without_values() -> None:
    flat = replace(SLOPE, value=np.ones((20, 30)))
    nothing = replace(SLOPE, defined=np.zeros((20, 30), dtype=bool))
    gaps = replace(SLOPE, value=np.full((20, 30), np.nan), defined=np.zeros((20, 30), dtype=bool))
    for surface in (flat, nothing, gaps):
        for limits in (None, (0.0, 1.0)):
            heatmaps([surface], "gap", limits=limits, lines=(0.5,))
        curves([surface], "gap")


def test_one_curve_for_each_surface_with_its_own_dashes(drawn: list[Figure]) -> None:
    curves([replace(SLOPE, title=f"t{i}") for i in range(6)] + [HALF], "share")
    axes = drawn[0].axes[0]
    assert len({line._dash_pattern[1] and tuple(line._dash_pattern[1]) for line in axes.lines}) == 6
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()][:2] == ["t0", "t1"]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), SLOPE.value[0])
