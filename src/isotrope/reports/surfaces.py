"""Plots a quantity over two angles: heatmaps, and curves where one angle is fixed.

The horizontal axis is the angle to the negatives, and the vertical axis is the angle to the
positive. Ticks are multiples of pi. Colours go from dark to light, so they also work in greyscale
and for colour-blind readers. Undefined values are grey and hatched.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator
from numpy.typing import NDArray

from isotrope.reports.plots import INK, Picture, multiple, settings, styles, written

MEANS = (r"$\mu_\mathrm{neg}$", r"$\mu_\mathrm{pos}$")
ANGLES = (r"$\theta_{ij'}$", r"$\theta_{ii'}$")

_COLOURS = "cividis"
UNDEFINED = "#c9ccd1"
_TICKS = tuple(np.pi * np.array([1 / 20, 1 / 4, 1 / 2, 3 / 4, 1]))
DASHES = ((), (6, 2), (2, 1.5), (6, 2, 1.5, 2), (1, 1), (9, 3))
# inches
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM, _TOP = 2.0, 1.6, 0.6, 0.75, 0.55, 0.35
_COLUMNS = 4


@dataclass(frozen=True)
class Surface:
    """The values of one panel or curve.

    Attributes:
        title: Title above the panel, or in the legend.
        x: Angles to the negatives in radians, q values.
        y: Angles to the positive in radians, p values.
        value: Value at each pair of angles, p x q.
        defined: Whether each value is defined, p x q booleans.
    """

    title: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    value: NDArray[np.float64]
    defined: NDArray[np.bool_]


def heatmaps(
    surfaces: Sequence[Surface],
    quantity: str,
    *,
    limits: tuple[float, float] | None = None,
    lines: Sequence[float] = (),
    labels: tuple[str, str] = MEANS,
) -> Picture:
    """Draw one panel for each surface, four in a row.

    Args:
        surfaces: One or more surfaces, each with at least 2 x 2 values.
        quantity: Name of the coloured quantity.
        limits: Limits of the colours for all panels. By default, every panel has its own limits,
            which include 0.
        lines: Values at which contours are drawn.
        labels: The labels of the axes x and y.
    """
    columns = min(_COLUMNS, len(surfaces))
    rows = -(-len(surfaces) // columns)
    across = 0.32 if limits else 0.75
    down = _BOTTOM + _TOP
    width = _LEFT + columns * (_WIDTH + across) - across + _RIGHT
    height = rows * (_HEIGHT + down)
    with mpl.rc_context(settings(quantity)):
        figure = Figure(figsize=(width, height))
        for i, surface in enumerate(surfaces):
            row, column = divmod(i, columns)
            x = _LEFT + column * (_WIDTH + across)
            y = _BOTTOM + (rows - 1 - row) * (_HEIGHT + down)
            axes = figure.add_axes((x / width, y / height, _WIDTH / width, _HEIGHT / height))
            mesh = surface_panel(axes, surface, limits, lines)
            axes.set_xlabel(labels[0])
            axes.tick_params(labelleft=column == 0)
            if column == 0:
                axes.set_ylabel(labels[1])
            ends = column == columns - 1 or i == len(surfaces) - 1
            if ends or not limits:
                box = ((x + _WIDTH + 0.08) / width, y / height, 0.08 / width, _HEIGHT / height)
                colour_scale(figure, mesh, box, quantity if ends else "")
        return written(figure)


def curves(surfaces: Sequence[Surface], quantity: str) -> Picture:
    """Draw the first row of each surface over the angle to the negatives; y goes from 0 to 1."""
    with mpl.rc_context(settings(quantity)):
        figure = Figure(figsize=(5.6, 2.9))
        axes = figure.add_axes((0.11, 0.18, 0.64, 0.76))
        for i, (surface, style) in enumerate(zip(surfaces, styles(len(surfaces)), strict=True)):
            visible = np.where(surface.defined, surface.value, np.nan)[0]
            (line,) = axes.plot(surface.x, visible, color=style.colour, lw=1.7, label=surface.title)
            line.set_dashes(DASHES[i % len(DASHES)])
        axes.set_xlim(surfaces[0].x.min(), surfaces[0].x.max())
        axes.set_ylim(-0.02, 1.02)
        pi_ticks(axes, "x")
        axes.set_xlabel(MEANS[0])
        axes.set_ylabel(quantity)
        axes.grid(axis="y", lw=0.6, alpha=0.28)
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), frameon=False)
        return written(figure)


def surface_panel(
    axes: Axes, surface: Surface, limits: tuple[float, float] | None, lines: Sequence[float]
) -> QuadMesh:
    """Draw one surface with ticks in multiples of pi; undefined values are grey and hatched."""
    axes.patch.set(facecolor=UNDEFINED, edgecolor=INK, hatch="////", linewidth=0)
    visible = np.ma.masked_where(~surface.defined, surface.value)
    inside = visible.compressed() if surface.defined.any() else np.zeros(1)
    low, high = limits or (min(0.0, float(inside.min())), float(inside.max()))
    if low == high:  # a constant surface needs a scale, too
        low, high = low - 0.5, high + 0.5
    mesh = axes.pcolormesh(
        surface.x, surface.y, visible, cmap=_COLOURS, vmin=low, vmax=high, rasterized=True
    )
    passed = [line for line in lines if inside.min() < line < inside.max()]
    if passed:
        drawn = axes.contour(surface.x, surface.y, visible, passed, colors="white", linewidths=1)
        for label in axes.clabel(drawn, fmt="%g", fontsize=7):
            place = axes.transLimits.transform(label.get_position())
            label.set_visible(bool((place > 0.04).all() and (place < 0.96).all()))
    axes.set_title(surface.title)
    pi_ticks(axes, "x")
    pi_ticks(axes, "y")
    axes.tick_params(length=2, pad=3)
    return mesh


def pi_ticks(axes: Axes, which: str) -> None:
    """Put ticks at the multiples of pi that lie within the limits."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    inside = [tick for tick in _TICKS if low - 0.02 <= tick <= high + 0.02]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_major_formatter(FixedFormatter([multiple(tick) for tick in inside]))


def colour_scale(
    figure: Figure, mesh: QuadMesh, box: tuple[float, float, float, float], label: str
) -> None:
    """Draw the scale of a surface's colours in a box of the figure."""
    axes = figure.add_axes(box)
    bar = figure.colorbar(mesh, cax=axes, ticks=MaxNLocator(5))
    bar.outline.set_visible(False)
    bar.ax.ticklabel_format(axis="y", scilimits=(-2, 3))
    axes.yaxis.set_offset_position("left")  # the power of ten begins above the bar
    axes.tick_params(length=0, pad=3)
    axes.set_ylabel(label)
