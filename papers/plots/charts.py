"""Charts of any measured numbers: small panels of lines, points or bars, in a grid.

Every text has its own room, found by measuring it: nothing is drawn over a legend or a label.
Where nothing was measured, nothing is drawn; a panel without any value says ``not run``. Series of
one title look the same in all panels, and differ from others in colour and in dash, marker or
hatch. The same numbers give the same bytes.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from isotrope.reports.surfaces import Picture, settings, written
from papers.plots.framing import (
    label_points,
    limits,
    mark,
    name_ticks,
    number_ticks,
    scale,
    wrapped,
)
from papers.plots.grid import above_axes, arrange, head
from papers.plots.shapes import (
    SeriesStyle,
    Shape,
    draw_bars,
    draw_line,
    draw_points,
    handle,
    style_at,
)
from papers.plots.ticks import numbers

__all__ = ["Chart", "Series", "charts"]

Kind = Literal["lines", "points", "bars"]

# inches
_WIDTH, _HEIGHT = 2.7, 1.9  # of the axes of a panel
_NAME, _BAR, _WIDEST = 0.2, 0.11, 100.0  # a panel of more names or bars is wider
_PAGE = 13.0  # of a row, where panels are wider than usual
_LONGEST = 44  # characters of a title in a legend
_LARGEST = 1e250  # what lies beyond, or on a log axis below its inverse, is not drawn


@dataclass(frozen=True)
class Series:
    """The measured points of one title.

    Attributes:
        title: in the legend.
        x: m numbers; or m names, for bars and for lines over names. No name comes twice.
        y: m values. None, NaN and infinities: nothing is drawn there.
        spread: m standard deviations: the band of a line, the whiskers of points and bars.
        colour: m values; points are coloured by them, and hollow where there is none.

    Raises:
        ValueError: lengths differ, or x holds both names and numbers or a name twice.
    """

    title: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float | None]
    spread: Sequence[float | None] | None = None
    colour: Sequence[float] | None = None

    def __post_init__(self) -> None:
        for name in ("y", "spread", "colour"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.x):
                raise ValueError(
                    f"series {self.title!r} has {len(self.x)} x and {len(values)} {name}; "
                    f"give one {name} for each x, None where nothing was measured"
                )
        _one_kind(f"series {self.title!r}", [self])
        names = [name for name in self.x if isinstance(name, str)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"series {self.title!r} has the name {twice!r} twice; give it once")


@dataclass(frozen=True)
class Chart:
    """One panel.

    Texts stand as they are given, ``$`` included; long ones are wrapped or shortened.

    Attributes:
        title: above it.
        series: what is drawn; without any value the panel says ``not run``.
        x: label of the horizontal axis.
        y: label of the vertical axis.
        kind: ``lines``; ``points``, a series of one point having its title beside it; or
            ``bars``, grouped by name, from zero (numbers as x are taken as names).
        log_x: a logarithmic axis, without what is not positive.
        log_y: likewise.
        marks: heights of dashed lines, by the label at their right end.
        colour: what the colours of points mean; panels of one meaning have one scale.

    Raises:
        ValueError: no such kind, or the series have both names and numbers as x.
    """

    title: str
    series: Sequence[Series]
    x: str = ""
    y: str = ""
    kind: Kind = "lines"
    log_x: bool = False
    log_y: bool = False
    marks: Mapping[str, float] = field(default_factory=dict)
    colour: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(
                f"chart {self.title!r} is of kind {self.kind!r}; choose {', '.join(get_args(Kind))}"
            )
        _one_kind(f"chart {self.title!r}", self.series)


def _one_kind(what: str, series: Sequence[Series]) -> None:
    values = [value for line in series for value in line.x]
    name = next((value for value in values if isinstance(value, str)), None)
    number = next((value for value in values if not isinstance(value, str)), None)
    if name is not None and number is not None:
        raise ValueError(
            f"{what} has both names ({name!r}) and numbers ({number!r}) as x; give one or the other"
        )


def charts(panels: Sequence[Chart], *, columns: int = 3) -> Picture:
    """Draw a panel for each chart.

    Panels whose titles are all among those of one of them share the legend at the top; otherwise
    each has its own above its axes.

    Args:
        panels: any number.
        columns: panels in a row at most; fewer where many bars make them wide.

    Raises:
        ValueError: no columns.
    """
    if columns < 1:
        raise ValueError(f"columns is {columns}; give at least 1")
    prepared = _prepared(tuple(panels) or (Chart("", ()),))
    width = max(_width(panel) for panel in prepared)
    if width > _WIDTH:
        columns = min(columns, max(1, int(_PAGE / width)))
    rc_settings = settings(ascii([panel.chart.title for panel in prepared])) | {
        "text.parse_math": False
    }
    with mpl.rc_context(rc_settings), warnings.catch_warnings():
        # a name in a script without a font stands as boxes
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        figure = Figure(figsize=(width, _HEIGHT), dpi=200)
        norms = _norms(prepared)
        panels_drawn = []
        for panel in prepared:
            axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
            beside = _draw(axes, panel, norms.get(panel.chart.colour))
            panels_drawn.append((axes, panel, {shape.title for shape in beside}))
        shared = _legends(panels_drawn)
        for axes, panel, _ in panels_drawn:
            head(axes, panel.chart.title)
        arrange(
            figure, [axes for axes, _, _ in panels_drawn], min(columns, len(panels_drawn)), shared
        )
        return written(figure)


@dataclass(frozen=True)
class _PreparedChart:
    """A chart, what is drawn of it, and the names below it (none: numbers)."""

    chart: Chart
    shapes: Sequence[Shape]
    names: Sequence[str]

    @property
    def drawn(self) -> list[Shape]:
        return [shape for shape in self.shapes if shape.known.any()]

    @property
    def single(self) -> list[Shape]:
        """Those that may have their title beside their only point."""
        alone = self.chart.kind == "points"
        single = (shape for shape in self.drawn if alone and len(shape.x) == 1)
        return [shape for shape in single if shape.title.strip()]


def _prepared(panels: Sequence[Chart]) -> list[_PreparedChart]:
    styles = _styles(panels)
    prepared = []
    for chart in panels:
        places = _places(chart)
        shapes = [_shape(chart, series, places, styles[series.title]) for series in chart.series]
        categories = all(isinstance(place, str) for place in places)
        names = list(places) if categories else numbers(list(places))
        prepared.append(_PreparedChart(chart, shapes, names))
    return prepared


def _styles(panels: Sequence[Chart]) -> dict[str, SeriesStyle]:
    """One for each title, the first that no title beside it has in any panel."""
    groups = [list(dict.fromkeys(line.title for line in chart.series)) for chart in panels]
    taken: dict[str, int] = {}
    for title in (title for group in groups for title in group):
        if title not in taken:
            others = {taken.get(other) for group in groups if title in group for other in group}
            taken[title] = next(i for i in range(len(others) + 1) if i not in others)
    return {title: style_at(place) for title, place in taken.items()}


def _places(chart: Chart) -> dict[Any, int]:
    """Names to their places, in the order given; the numbers of bars in theirs; else nothing."""
    values = [value for line in chart.series for value in line.x]
    if any(isinstance(value, str) for value in values):
        return {name: place for place, name in enumerate(dict.fromkeys(values))}
    if chart.kind != "bars":
        return {}
    places = {value for value in _numbers(values, log=False).tolist() if np.isfinite(value)}
    return {number: place for place, number in enumerate(sorted(places))}


def _shape(chart: Chart, series: Series, places: Mapping[Any, int], style: SeriesStyle) -> Shape:
    if places:
        coordinates = [x if isinstance(x, str) else _number(x) for x in series.x]
        x = np.array([places.get(name, np.nan) for name in coordinates], dtype=float)
    else:
        x = _numbers(series.x, log=chart.log_x)
    y = _numbers(series.y, log=chart.log_y)
    y[~np.isfinite(x)] = np.nan
    spread = (
        np.full(len(x), np.nan) if series.spread is None else _numbers(series.spread, log=False)
    )
    spread[~np.isfinite(y) | ~(spread >= 0)] = np.nan
    colour = None if series.colour is None else _numbers(series.colour, log=False)
    return Shape(series.title, style, x, y, spread, colour)


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _numbers(values: Sequence[Any], *, log: bool) -> NDArray[np.float64]:
    """Return what can be drawn of numbers, NaN for the others."""
    numbers_ = np.array([_number(value) for value in values], dtype=float)
    numbers_[~(np.abs(numbers_) <= _LARGEST)] = np.nan
    if log:
        numbers_[~(numbers_ >= 1 / _LARGEST)] = np.nan
    return numbers_


def _width(panel: _PreparedChart) -> float:
    bars = len(panel.shapes) * _BAR + 0.08 if panel.chart.kind == "bars" else 0.0
    return min(max(_WIDTH, len(panel.names) * max(_NAME, bars)), _WIDEST)


def _norms(panels: Sequence[_PreparedChart]) -> dict[str, Normalize]:
    """A scale of colours for each meaning."""
    colours: dict[str, list[NDArray[np.float64]]] = {}
    for panel in panels:
        for shape in panel.drawn:
            if shape.colour is not None and panel.chart.kind == "points":
                values_ = shape.colour[shape.known & np.isfinite(shape.colour)]
                colours.setdefault(panel.chart.colour, []).append(values_)
    joined = {meaning: np.concatenate(values) for meaning, values in colours.items()}
    return {
        meaning: Normalize(*limits(values, log=False, room=0.0))
        for meaning, values in joined.items()
        if len(values)
    }


def _draw(axes: Axes, panel: _PreparedChart, norm: Normalize | None) -> Sequence[Shape]:
    """Draw a panel; return the shapes that have their titles beside them."""
    chart = panel.chart
    figure = axes.get_figure(root=True)
    assert figure is not None
    axes.set_xlabel(wrapped(chart.x, axes.bbox.width / figure.dpi, 9))
    axes.set_ylabel(wrapped(chart.y, axes.bbox.height / figure.dpi, 9))
    axes.tick_params(which="both", length=0, pad=4)
    axes.tick_params(axis="x", pad=6)
    axes.patch.set_alpha(0)
    if not panel.drawn:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "not run", ha="center", va="center", transform=axes.transAxes)
        return []
    marks = _marks(chart)
    x = np.concatenate([shape.x[shape.known] for shape in panel.drawn])
    y = np.concatenate([_reach(chart, panel), list(marks.values())])
    room = 0.08 if chart.kind == "points" else 0.05
    if not panel.names:
        axes.set(xscale="log" if chart.log_x else "linear")
        axes.set_xlim(limits(x, log=chart.log_x, room=room))
    axes.set(yscale="log" if chart.log_y else "linear")
    axes.set_ylim(limits(y, log=chart.log_y, room=room, base=chart.kind == "bars"))
    axes.grid(axis="both" if chart.kind == "points" else "y", lw=0.6, alpha=0.28)
    axes.set_axisbelow(True)
    if panel.names:
        name_ticks(axes, panel.names)
    else:
        number_ticks(axes, "x", x)
    number_ticks(axes, "y", y)
    _fill(axes, panel, norm)
    right = mark(axes, marks)
    if norm is not None and any(shape.colour is not None for shape in panel.drawn):
        scale(axes, norm, chart.colour, right)
    single = panel.single
    others = [shape for shape in panel.drawn if shape not in single]
    return single if label_points(axes, single, others) else []


def _fill(axes: Axes, panel: _PreparedChart, norm: Normalize | None) -> None:
    if panel.chart.kind == "bars":
        draw_bars(axes, panel.shapes)
    for shape in panel.drawn:
        if panel.chart.kind == "lines":
            draw_line(axes, shape)
        elif panel.chart.kind == "points":
            draw_points(axes, shape, norm)


def _marks(chart: Chart) -> dict[str, float]:
    heights = _numbers(list(chart.marks.values()), log=chart.log_y)
    marks = zip(chart.marks, heights.tolist(), strict=True)
    return {label: height for label, height in marks if np.isfinite(height)}


def _reach(chart: Chart, panel: _PreparedChart) -> NDArray[np.float64]:
    """Return all heights that a panel has to show; of a logarithm one decade of spread at most."""
    heights = []
    for shape in panel.drawn:
        lower = shape.y - shape.spread
        if chart.log_y:
            lower = np.maximum(lower, shape.y / 10)
        heights += [shape.y, lower, shape.y + shape.spread]
    return np.concatenate(heights)


def _legends(drawn: Sequence[tuple[Axes, _PreparedChart, set[str]]]) -> dict[str, Artist]:
    """Return the legend of all panels, by title; or draw each its own, and return nothing."""
    titles, handles_by_panel = [], []
    for _, panel, beside in drawn:
        listed = {s.title: s for s in panel.drawn if s.title.strip() and s.title not in beside}
        handles_by_panel.append({title: handle(s, panel.chart.kind) for title, s in listed.items()})
        titles.append({s.title for s in panel.shapes if panel.drawn} - beside)
    if max(titles, key=len) == set().union(*titles):
        order = dict.fromkeys(s.title for _, panel, _ in drawn for s in panel.shapes)
        entries = {
            title: artist
            for handles in reversed(handles_by_panel)
            for title, artist in handles.items()
        }
        return {title: entries[title] for title in order if title in entries}
    for (axes, _, _), handles in zip(drawn, handles_by_panel, strict=True):
        if handles:
            above_axes(axes, handles)
    return {}
