"""Pictures of spectra: density over eigenvalues, and every Ritz value as a tick below.

As in figures 3 to 6 of Manna et al. 2023, the scale is logarithmic: the bulk around zero is orders
of magnitude denser than what lies outside, and on a linear scale nothing else would be seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from isotrope.reports import INK, Picture, settings, styles, written

_FLOOR = 1e-5  # of the largest density; less is drawn as nothing


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
    """Draw one or more spectra over each other, their Ritz values in rows below."""
    with mpl.rc_context(settings("spectrum")):
        figure = Figure(figsize=(5.8, 3.0 + 0.36 * len(curves)), layout="constrained")
        heights = [2.2, 0.16 * len(curves)]
        upper, lower = figure.subplots(2, sharex=True, height_ratios=heights)
        top = max(float(curve.density.max()) for curve in curves)
        for row, (curve, style) in enumerate(zip(curves, styles(len(curves)), strict=True)):
            visible = np.where(curve.density > _FLOOR * top, curve.density, np.nan)
            (line,) = upper.plot(curve.where, visible, color=style.colour, label=curve.title)
            if style.dash:
                line.set_dashes(style.dash)
            below = len(curves) - 1 - row
            lower.vlines(curve.values, below + 0.12, below + 0.88, color=style.colour, lw=0.7)
        upper.set(yscale="log", ylim=(_FLOOR * top, 2 * top), ylabel="density")
        lower.set(ylim=(0, len(curves)), yticks=[], xlabel="eigenvalue (ticks: Ritz values)")
        for axes in (upper, lower):
            axes.axvline(0, lw=0.6, color=INK, alpha=0.6)
        figure.legend(loc="outside upper left", frameon=False)
        return written(figure)
