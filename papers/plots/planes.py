"""Pictures of points in the plane: an anchor before and after a step, and its pairs.

Illustrations, drawn to one scale in both directions. Roles differ in colour and in marker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from numpy.typing import NDArray

from isotrope.reports import INK, Picture, settings, written

Role = Literal["anchor", "anchor after the step", "positive", "negative"]

_STYLES: dict[Role, tuple[str, str, str, float]] = {  # colour, marker, face, size
    "anchor": (INK, "o", INK, 5.0),
    "anchor after the step": (INK, "o", "none", 5.0),
    "positive": ("#009e73", "s", "#009e73", 8.5),
    "negative": ("#d55e00", "D", "#d55e00", 6.0),
}


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
    """Draw panels of one size, those of a row to one scale, and one legend."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with mpl.rc_context(settings(ascii([panel.title for panel in panels]))):
        figure = Figure(figsize=(2.4 * columns, 2.7 * rows + 0.3), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharex="row", sharey="row")
        for axes, panel in zip(grid.ravel(), panels, strict=False):
            axes.set_title(panel.title)
            axes.set(aspect="equal", adjustable="box")
            for centre, radius in panel.circles:
                axes.add_patch(Circle(tuple(centre), radius, fill=False, color=INK, alpha=0.5))
            for start, end in panel.steps:
                axes.annotate("", tuple(end), tuple(start), arrowprops={"arrowstyle": "->"})
            for dots in panel.dots:
                colour, marker, face, size = _STYLES[dots.role]
                strengths = dots.strength or [1.0] * len(dots.at)
                for point, strength in zip(dots.at, strengths, strict=True):
                    axes.plot(*point, marker, ms=size, color=colour, mfc=face, alpha=strength)
            axes.margins(0.1)
        for axes in grid.ravel():
            axes.axis("off")
        used = {dots.role for panel in panels for dots in panel.dots}
        figure.legend(
            handles=[_handle(role) for role in get_args(Role) if role in used],
            ncols=2 if columns < 3 else 4,
            loc="outside upper left",
            frameon=False,
            fontsize=8,
        )
        return written(figure)


def _handle(role: Role) -> Line2D:
    colour, marker, face, size = _STYLES[role]
    return Line2D([], [], ls="", marker=marker, ms=size, color=colour, mfc=face, label=role)
