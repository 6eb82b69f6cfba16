"""Charts of measured numbers: small panels of lines, points or bars, in a grid.

Series of one title look the same in all panels. Where nothing was measured, nothing is drawn, and a
panel without any value says ``not run``. Room for texts is matplotlib's own (constrained layout).
The same numbers give the same bytes.
"""

import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from isotrope.reports import DASHES, INK, Picture, settings, styles, written

Kind = Literal["lines", "points", "bars"]
Values = Sequence[float | None]

_WIDTH, _HEIGHT = 3.5, 2.9  # inches of a panel
_NAME, _BAR = 0.26, 0.11  # of a name below it, of a bar
_MARKERS = "os^DvP"
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----")
_MOST_MARKED = 12  # points of a line up to which each has a marker
_LARGEST = 1e250  # what lies beyond is not drawn


@dataclass(frozen=True)
class Series:
    """The measured points of one title.

    Attributes:
        title: in the legend.
        x: m numbers; or m names, for bars and for lines over names.
        y: m values. None, NaN and infinities: nothing is drawn there.
        spread: m standard deviations: the band of a line, the whiskers of points and bars.

    Raises:
        ValueError: lengths differ.
    """

    title: str
    x: Sequence[float] | Sequence[str]
    y: Values
    spread: Values | None = None

    def __post_init__(self) -> None:
        for name in ("y", "spread"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.x):
                raise ValueError(
                    f"series {self.title!r} has {len(self.x)} x and {len(values)} {name}; "
                    f"give one {name} for each x, None where nothing was measured"
                )


@dataclass(frozen=True)
class Chart:
    """One panel.

    Attributes:
        title: above it.
        series: what is drawn; without any value the panel says ``not run``.
        x: label of the horizontal axis.
        y: label of the vertical axis.
        kind: ``lines``, ``points``, or ``bars``, grouped by name, from zero.
        log_x: a logarithmic axis, without what is not positive.
        log_y: likewise.
        marks: heights of dashed lines, by the label at their right end.

    Raises:
        ValueError: no such kind.
    """

    title: str
    series: Sequence[Series]
    x: str = ""
    y: str = ""
    kind: Kind = "lines"
    log_x: bool = False
    log_y: bool = False
    marks: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(
                f"chart {self.title!r} is of kind {self.kind!r}; choose {', '.join(get_args(Kind))}"
            )

    @property
    def names(self) -> list[Any]:
        """What stands below the axis where it is no axis of numbers."""
        every = [x for series in self.series for x in series.x]
        if any(isinstance(x, str) for x in every):
            return list(dict.fromkeys(every))
        return sorted(set(every)) if self.kind == "bars" else []


def charts(panels: Sequence[Chart], *, columns: int = 3) -> Picture:
    """Draw a panel for each chart, and one legend above them."""
    shown = list(panels) or [Chart("", ())]
    titles = list(dict.fromkeys(s.title for chart in shown for s in chart.series))
    looks = {title: place for place, title in enumerate(titles)}
    width = max(_width(chart) for chart in shown)
    columns = max(1, min(columns, len(shown), int(13 / width)))
    rows = -(-len(shown) // columns)
    with mpl.rc_context({**settings(ascii(titles)), "text.parse_math": False}):
        figure = Figure(figsize=(columns * width, rows * _HEIGHT + 0.3), layout="constrained")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph", UserWarning)  # a script without a font
            grid = figure.subplots(rows, columns, squeeze=False).ravel()
            for axes, chart in zip(grid, shown, strict=False):
                _draw(axes, chart, looks)
            for axes in grid[len(shown) :]:
                axes.axis("off")
            _legend(figure, list(grid), titles)
            return written(figure)


def _width(chart: Chart) -> float:
    bars = len(chart.series) * _BAR + 0.1 if chart.kind == "bars" else 0.0
    return max(_WIDTH, 0.8 + len(chart.names) * max(_NAME, bars))


def _legend(figure: Figure, grid: Sequence[Axes], titles: Sequence[str]) -> None:
    found: dict[str, Any] = {}
    for axes in grid:
        for handle, title in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(title, handle)
    listed = [title for title in titles if title.strip() and title in found]
    if listed:
        longest = max(map(len, listed))
        fit = max(1, int(figure.get_size_inches()[0] / (0.55 + 0.075 * min(longest, 60))))
        figure.legend(
            [found[title] for title in listed],
            [textwrap.shorten(title, 60, placeholder="…") for title in listed],
            loc="outside upper left",
            ncols=min(fit, len(listed)),
            frameon=False,
        )


def _numbers(values: Values, *, log: bool) -> np.ndarray:
    """Return what can be drawn of numbers, NaN for the others."""
    numbers = np.array([np.nan if v is None else float(v) for v in values], dtype=float)
    numbers[~(np.abs(numbers) <= _LARGEST)] = np.nan
    if log:
        numbers[~(numbers > 0)] = np.nan
    return numbers


def _draw(axes: Axes, chart: Chart, looks: Mapping[str, int]) -> None:
    axes.set_title("\n".join(textwrap.wrap(chart.title, 44)), loc="left")
    axes.set_xlabel("\n".join(textwrap.wrap(chart.x, 50)))
    axes.set_ylabel("\n".join(textwrap.wrap(chart.y, 40)))
    axes.patch.set_alpha(0)
    drawn = False
    for place, series in enumerate(chart.series):
        names = chart.names
        places: Values = [names.index(v) if names else float(v) for v in series.x]
        x = _numbers(places, log=chart.log_x and not names)
        y = _numbers(series.y, log=chart.log_y)
        y[~np.isfinite(x)] = np.nan
        if not np.isfinite(y).any():
            continue
        drawn = True
        blank: Values = [None] * len(x)
        spread = _numbers(series.spread if series.spread is not None else blank, log=False)
        look = looks[series.title]
        if chart.kind == "lines":
            _line(axes, series.title, x, y, spread, look)
        elif chart.kind == "points":
            _points(axes, series.title, x, y, spread, look)
        else:
            width = 0.8 / len(chart.series)
            _bars(
                axes,
                series.title,
                x + (place - (len(chart.series) - 1) / 2) * width,
                y,
                spread,
                look,
                width,
            )
    if not drawn:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "not run", ha="center", va="center", transform=axes.transAxes)
        return
    for axis, log in ((axes.xaxis, chart.log_x), (axes.yaxis, chart.log_y)):
        if log:  # the usual labels are mathematics, which is off here
            getattr(axes, f"set_{axis.axis_name}scale")("log")
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=7))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
    if chart.names:
        shown = [v if isinstance(v, str) else f"{v:g}" for v in chart.names]
        turned = 90 if max(map(len, shown)) * len(shown) > 40 else 0
        axes.set_xticks(range(len(shown)), [s[:30] for s in shown], rotation=turned)
    axes.grid(axis="both" if chart.kind == "points" else "y", lw=0.6, alpha=0.28)
    axes.set_axisbelow(True)
    for label, height in chart.marks.items():
        axes.axhline(height, color=INK, lw=0.8, ls="--", alpha=0.7)
        axes.annotate(
            label, (1.01, height), xycoords=("axes fraction", "data"), va="center", fontsize=7.5
        )


def _colour(look: int) -> str:
    return styles(6)[look % 6].colour


def _shift(look: int) -> int:
    """36 looks differ: dash, marker and hatch move on with every six colours."""
    return (look % 6 + look // 6) % 6


def _line(axes: Axes, title: str, x: np.ndarray, y: np.ndarray, s: np.ndarray, look: int) -> None:
    known = np.isfinite(y)
    marker = _MARKERS[_shift(look)] if known.sum() <= _MOST_MARKED else None
    (line,) = axes.plot(x, y, color=_colour(look), lw=1.7, marker=marker, ms=4, label=title)
    if dash := DASHES[_shift(look)]:
        line.set_dashes(dash)
    if (banded := known & np.isfinite(s)).any():
        low = np.maximum(y - s, y / 10) if (y[known] > 0).all() else y - s
        axes.fill_between(x, low, y + s, where=banded, color=_colour(look), alpha=0.2, lw=0)


def _points(axes: Axes, title: str, x: np.ndarray, y: np.ndarray, s: np.ndarray, look: int) -> None:
    colour = _colour(look)
    known = np.isfinite(y)
    axes.errorbar(x[known], y[known], np.nan_to_num(s[known]), fmt="none", ecolor=colour, lw=1.3)
    axes.scatter(
        x[known],
        y[known],
        color=colour,
        alpha=0.85,
        label=title,
        marker=_MARKERS[_shift(look)],
        s=30 if known.sum() < 60 else 12,
        linewidths=0.8,
        zorder=3,
    )


def _bars(
    axes: Axes, title: str, x: np.ndarray, y: np.ndarray, s: np.ndarray, look: int, width: float
) -> None:
    known = np.isfinite(y)
    axes.bar(
        x[known],
        y[known],
        width * 0.88,
        yerr=np.nan_to_num(s[known]),
        facecolor=(_colour(look), 0.4),
        edgecolor=_colour(look),
        ecolor=_colour(look),
        hatch=_HATCHES[_shift(look)],
        linewidth=0.8,
        label=title,
    )
