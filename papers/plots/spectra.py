"""Pictures of spectra: density over eigenvalues, and every Ritz value as a tick below.

As in figures 3 to 6 of Manna et al. 2023, the scale is logarithmic: the bulk around zero is orders
of magnitude denser than what lies outside, and on a linear scale nothing else would be seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from isotrope.reports.plots import INK, Style, styles
from isotrope.reports.surfaces import Picture, settings, written

__all__ = ["DensityCurve", "spectra"]

_FLOOR = 1e-5  # of the largest density; less is drawn as nothing
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 5.8, 0.7, 0.15, 0.15, 0.5  # inches
_HEIGHT, _TICKS, _LEGEND = 2.2, 0.16, 0.2  # of the density, of a row of ticks, of a line of legend


@dataclass(frozen=True)
class DensityCurve:
    """One spectrum.

    Attributes:
        title: in the legend.
        where: m eigenvalues.
        density: m, at these.
        values: k Ritz values.
    """

    title: str
    where: NDArray[np.float64]
    density: NDArray[np.float64]
    values: NDArray[np.float64]


def spectra(curves: Sequence[DensityCurve]) -> Picture:
    """Draw spectra over each other.

    Args:
        curves: one or more.
    """
    rows = len(curves) * _TICKS
    height = _BOTTOM + rows + 0.08 + _HEIGHT + _TOP + len(curves) * _LEGEND
    across = (_WIDTH - _LEFT - _RIGHT) / _WIDTH
    with mpl.rc_context(settings("spectrum")):
        figure = Figure(figsize=(_WIDTH, height))
        lower = figure.add_axes((_LEFT / _WIDTH, _BOTTOM / height, across, rows / height))
        base = (_BOTTOM + rows + 0.08) / height
        upper = figure.add_axes((_LEFT / _WIDTH, base, across, _HEIGHT / height), sharex=lower)
        drawn = list(zip(curves, styles(len(curves)), strict=True))
        _densities(upper, drawn)
        _values(lower, drawn)
        upper.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False, borderaxespad=0.3)
        return written(figure)


def _densities(axes: Axes, drawn: Sequence[tuple[DensityCurve, Style]]) -> None:
    top = max(float(curve.density.max()) for curve, _ in drawn)
    for curve, style in drawn:
        visible = np.where(curve.density > _FLOOR * top, curve.density, np.nan)
        (line,) = axes.plot(curve.where, visible, color=style.colour, lw=1.3, label=curve.title)
        if style.dash:
            line.set_dashes(style.dash)
    axes.set_yscale("log")
    axes.set_ylim(_FLOOR * top, 2 * top)
    axes.set_ylabel("density")
    axes.axvline(0, lw=0.6, color=INK, alpha=0.6)
    axes.tick_params(labelbottom=False, length=2)


def _values(axes: Axes, drawn: Sequence[tuple[DensityCurve, Style]]) -> None:
    """One row of ticks for each spectrum."""
    for row, (curve, style) in enumerate(reversed(drawn)):
        axes.vlines(curve.values, row + 0.12, row + 0.88, color=style.colour, lw=0.7)
    axes.set_ylim(0, len(drawn))
    axes.axvline(0, lw=0.6, color=INK, alpha=0.6)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=2)
    axes.set_xlabel("eigenvalue (ticks: Ritz values)")
