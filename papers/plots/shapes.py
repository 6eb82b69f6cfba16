"""Draws one series of a chart: its line and band, its points, or its bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from isotrope.reports.plots import INK, styles
from isotrope.reports.surfaces import DASHES

__all__ = [
    "COLOURS",
    "SeriesStyle",
    "Shape",
    "draw_bars",
    "draw_line",
    "draw_points",
    "handle",
    "style_at",
]

Array = NDArray[np.float64]

COLOURS = "cividis"
"""The scale of colours, as in the heatmaps."""
_MARKERS = "os^DvP"
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----")
_MOST_MARKED = 12  # points of a line up to which each has a marker
_SMALL_FROM = 60  # points from which they are drawn smaller
_GROUP = 0.8  # of the room of a name is filled by its bars


@dataclass(frozen=True)
class SeriesStyle:
    """How one title looks: colour and marker, dashes of its line, hatch of its bars."""

    colour: str
    marker: str
    dash: tuple[float, ...]
    hatch: str


@dataclass(frozen=True, eq=False)
class Shape:
    """A series as it is drawn.

    Attributes:
        title: in the legend, or beside its only point.
        style: of the title.
        x: m places.
        y: m values; NaN where nothing is drawn.
        spread: m standard deviations; NaN where there is none.
        colour: m values on the scale of colours, NaN where there is none; or None.
    """

    title: str
    style: SeriesStyle
    x: Array
    y: Array
    spread: Array
    colour: Array | None = None

    @property
    def known(self) -> NDArray[np.bool_]:
        """m, where something is drawn."""
        return np.isfinite(self.y)


def style_at(place: int) -> SeriesStyle:
    """Return the look of the title at a place; 36 differ, and all six next to each other."""
    i, again = place % 6, place // 6 % 6
    shift = (i + again) % 6
    return SeriesStyle(styles(6)[i].colour, _MARKERS[shift], DASHES[shift], _HATCHES[shift])


def draw_line(axes: Axes, shape: Shape) -> None:
    """Draw a line with its band, broken where a value is missing; a lone point has a marker."""
    x, y, style = shape.x, shape.y, shape.style
    (line,) = axes.plot(x, y, color=style.colour, lw=1.7)
    if style.dash:
        line.set_dashes(style.dash)
    few = shape.known.sum() <= _MOST_MARKED
    dots = shape.known if few else _alone(shape.known)
    axes.plot(x[dots], y[dots], style.marker, color=style.colour, ms=4)
    banded = shape.known & np.isfinite(shape.spread)
    lone = _alone(banded)
    low, high = _ends(axes, shape)
    if (banded & ~lone).any():
        axes.fill_between(x, low, high, where=banded & ~lone, color=style.colour, alpha=0.2, lw=0)
    _whiskers(axes, shape, x, lone, style.colour)


def draw_points(axes: Axes, shape: Shape, norm: Normalize | None) -> None:
    """Draw points, on the scale of colours if they have one; hollow where its value is missing."""
    x, y, style = shape.x, shape.y, shape.style
    size = 30 if shape.known.sum() < _SMALL_FROM else 12
    _whiskers(axes, shape, x, shape.known, style.colour if shape.colour is None else INK)
    plain: dict[str, Any] = {"marker": style.marker, "s": size, "linewidths": 0.8, "zorder": 3}
    if shape.colour is None or norm is None:
        finite = shape.known
        axes.scatter(x[finite], y[finite], color=style.colour, alpha=0.85, **plain)
        return
    coloured = shape.known & np.isfinite(shape.colour)
    scaled: dict[str, Any] = {"c": shape.colour[coloured], "cmap": COLOURS, "norm": norm}
    axes.scatter(x[coloured], y[coloured], edgecolors=INK, **scaled, **plain)
    hollow = shape.known & ~coloured
    axes.scatter(x[hollow], y[hollow], facecolors="none", edgecolors=INK, **plain)


def draw_bars(axes: Axes, shapes: Sequence[Shape]) -> None:
    """Draw the bars of all series side by side, from zero, or from below on a log axis."""
    base = axes.get_ylim()[0] if axes.get_yscale() == "log" else 0.0
    width = _GROUP / len(shapes)
    for i, shape in enumerate(shapes):
        style, finite = shape.style, shape.known
        x = shape.x + (i - (len(shapes) - 1) / 2) * width
        axes.bar(
            x[finite],
            shape.y[finite] - base,
            width * 0.88,
            bottom=base,
            facecolor=(style.colour, 0.4),
            edgecolor=style.colour,
            hatch=style.hatch,
            linewidth=0.8,
        )
        _whiskers(axes, shape, x, finite, style.colour)
    if base == 0:
        axes.axhline(0, color=INK, lw=0.6)


def handle(shape: Shape, kind: str) -> Artist:
    """Return what stands for a series in a legend."""
    style = shape.style
    if kind == "bars":
        face = (style.colour, 0.4)
        return Patch(facecolor=face, edgecolor=style.colour, hatch=style.hatch, linewidth=0.8)
    if kind == "points":
        colour = style.colour if shape.colour is None else INK
        return Line2D([], [], color=colour, marker=style.marker, ms=5, ls="")
    marker = style.marker if shape.known.sum() <= _MOST_MARKED else ""
    line = Line2D([], [], color=style.colour, lw=1.7, marker=marker, ms=4)
    if style.dash:
        line.set_dashes(style.dash)
    return line


def _ends(axes: Axes, shape: Shape) -> tuple[Array, Array]:
    """Return where band or whiskers end; on a log axis they reach down to its limit at most."""
    low = shape.y - shape.spread
    if axes.get_yscale() == "log":
        low = np.maximum(low, axes.get_ylim()[0])
    return low, shape.y + shape.spread


def _whiskers(axes: Axes, shape: Shape, x: Array, where: NDArray[np.bool_], colour: str) -> None:
    low, high = _ends(axes, shape)
    where = where & np.isfinite(shape.spread)
    if where.any():
        axes.vlines(x[where], low[where], high[where], color=colour, lw=1.3)


def _alone(finite: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell which have no neighbour."""
    padded = np.pad(finite, 1)
    return finite & ~padded[:-2] & ~padded[2:]
