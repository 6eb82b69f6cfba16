"""Pictures of points in the plane: an anchor before and after a step, and its pairs.

Illustrations, drawn to one scale in both directions. Roles differ in colour and in marker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from isotrope.reports.plots import INK
from isotrope.reports.surfaces import Picture, settings, written

__all__ = ["Dots", "Plane", "Role", "planes"]

Role = Literal["anchor", "anchor after the step", "positive", "negative"]

_STYLES: dict[Role, tuple[str, str, str, float]] = {  # colour, marker, face, size
    "anchor": (INK, "o", INK, 5.0),
    "anchor after the step": (INK, "o", "none", 5.0),
    "positive": ("#009e73", "s", "#009e73", 8.5),
    "negative": ("#d55e00", "D", "#d55e00", 6.0),
}
_SIDE, _ROOM, _TOP, _LEGEND = 2.1, 0.25, 0.35, 0.3  # inches


@dataclass(frozen=True)
class Dots:
    """Points of one role.

    Attributes:
        role: what they are.
        at: k x 2.
        strength: k numbers from 0 to 1, how opaque each is; None draws all alike.
    """

    role: Role
    at: NDArray[np.float64]
    strength: Sequence[float] | None = None


@dataclass(frozen=True)
class Plane:
    """One panel.

    Attributes:
        title: above it.
        dots: what lies in it.
        steps: pairs of points, an arrow from the first to the second.
        circles: centre and radius of each.
    """

    title: str
    dots: Sequence[Dots]
    steps: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]] = ()
    circles: Sequence[tuple[NDArray[np.float64], float]] = ()


def planes(panels: Sequence[Plane], *, columns: int = 2) -> Picture:
    """Draw panels of one size, those of a row to one scale, and one legend.

    Args:
        panels: one or more.
        columns: panels in a row.
    """
    across, down = min(columns, len(panels)), -(-len(panels) // columns)
    width = across * (_SIDE + _ROOM) + _ROOM
    height = down * (_SIDE + _TOP + _ROOM) + _LEGEND
    with mpl.rc_context(settings(ascii([panel.title for panel in panels]))):
        figure = Figure(figsize=(width, height))
        for i, panel in enumerate(panels):
            row, column = divmod(i, columns)
            x = _ROOM + column * (_SIDE + _ROOM)
            y = _ROOM + (down - 1 - row) * (_SIDE + _TOP + _ROOM)
            box = (x / width, y / height, _SIDE / width, _SIDE / height)
            axes = figure.add_axes(box)
            _draw(axes, panel)
            _frame(axes, panels[row * columns : (row + 1) * columns])
        used = {dots.role for panel in panels for dots in panel.dots}
        handles = [_handle(role) for role in get_args(Role) if role in used]
        figure.legend(
            handles=handles,
            ncols=len(handles),
            loc="upper left",
            frameon=False,
            fontsize=8,
            handletextpad=0.1,
            columnspacing=1.0,
        )
        return written(figure)


def _handle(role: Role) -> Line2D:
    colour, marker, face, size = _STYLES[role]
    return Line2D([], [], ls="", marker=marker, ms=size, color=colour, mfc=face, label=role)


def _draw(axes: Axes, panel: Plane) -> None:
    axes.set(xticks=[], yticks=[])
    axes.patch.set_alpha(0)
    axes.axis("off")
    axes.set_title(panel.title)
    turn = np.linspace(0, 2 * np.pi, 200)
    for (x, y), radius in panel.circles:
        rim = x + radius * np.cos(turn), y + radius * np.sin(turn)
        axes.plot(*rim, color=INK, lw=0.8, alpha=0.5)
    for start, end in panel.steps:
        axes.annotate(
            "",
            xy=(float(end[0]), float(end[1])),
            xytext=(float(start[0]), float(start[1])),
            arrowprops={"arrowstyle": "->", "color": INK, "lw": 1.0, "shrinkA": 4, "shrinkB": 4},
        )
    for dots in panel.dots:
        colour, marker, face, size = _STYLES[dots.role]
        for point, strength in zip(dots.at, dots.strength or [1.0] * len(dots.at), strict=True):
            axes.plot(*point, marker, ms=size, color=colour, mfc=face, alpha=strength, mew=1.2)


def _frame(axes: Axes, panels: Sequence[Plane]) -> None:
    """Show all that lies in these panels, and as much to the right as upwards."""
    points = [dots.at for panel in panels for dots in panel.dots]
    for panel in panels:
        points += [np.array([at - radius, at + radius]) for at, radius in panel.circles]
    all_points = np.concatenate(points)
    low, high = all_points.min(axis=0), all_points.max(axis=0)
    half = 0.56 * float((high - low).max()) or 1.0
    middle = (low + high) / 2
    axes.set_xlim(middle[0] - half, middle[0] + half)
    axes.set_ylim(middle[1] - half, middle[1] + half)
