"""Charts: what is drawn of what was measured; room for texts is matplotlib's own."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from matplotlib.figure import Figure

from papers.plots.charts import Chart, Series, charts


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Figure]:
    figures: list[Figure] = []
    monkeypatch.setattr("papers.plots.charts.written", figures.append)

    def draw(*panels: Chart, columns: int = 3) -> Figure:
        charts(panels, columns=columns)
        return figures[-1]

    return draw


LINES = Chart("lines", [Series("a", [1, 2, 3], [1.0, None, 3.0], [0.1, 0.1, 0.1])])
BARS = Chart("bars", [Series(s, ["x", "y"], [1.0, -2.0]) for s in "ab"], kind="bars")
POINTS = Chart("points", [Series("b", [1], [2.0])], kind="points")


def test_both_formats_are_whole_and_repeatable() -> None:
    found = charts([LINES, BARS, POINTS])
    assert found.png.startswith(b"\x89PNG")
    assert found.svg.startswith(b"<?xml")
    assert found == charts([LINES, BARS, POINTS])
    assert found != charts([LINES, BARS])


def test_a_title_looks_the_same_in_all_panels_and_is_once_in_the_legend(drawn) -> None:
    figure = drawn(LINES, Chart("more", [Series("a", [1, 2], [5.0, 6.0])]), BARS)
    first, second, *_ = figure.axes
    assert first.lines[0].get_color() == second.lines[0].get_color()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


def test_what_was_not_measured_is_not_drawn(drawn) -> None:
    figure = drawn(LINES, Chart("none", [Series("n", [1], [math.nan])]))
    assert math.isnan(figure.axes[0].lines[0].get_ydata()[1])
    assert [text.get_text() for text in figure.axes[1].texts] == ["not run"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a"]
    assert [text.get_text() for text in drawn().axes[0].texts] == ["not run"]


def test_bars_stand_on_zero_side_by_side(drawn) -> None:
    bars = drawn(BARS).axes[0].patches
    assert {bar.get_y() for bar in bars} == {0}
    left = sorted(bar.get_x() for bar in bars)
    assert all(b - a > bars[0].get_width() * 0.99 for a, b in pairwise(left))


def test_marks_and_logarithms(drawn) -> None:
    chart = Chart("log", [Series("a", [0, 1, 10], [1.0, 2.0, 3.0])], log_x=True, marks={"it": 2.5})
    (axes,) = drawn(chart).axes
    assert axes.get_xscale() == "log"
    assert {label.get_text() for label in axes.get_xticklabels()} >= {"1", "10"}
    assert math.isnan(axes.lines[0].get_xdata()[0])
    assert [text.get_text() for text in axes.texts] == ["it"]


def test_names_are_not_read_as_mathematics() -> None:
    charts([Chart("$x", [Series("a$b$", ["$1", "2$"], [1.0, 2.0])])])


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: Series("a", [1, 2], [1.0]), "2 x and 1 y"),
        (lambda: Series("a", [1], [1.0], spread=[1.0, 2.0]), "1 x and 2 spread"),
        (lambda: Chart("c", [], kind="pie"), "is of kind 'pie'"),
    ],
)
def test_what_cannot_be_drawn(build: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build()
