"""Draws the picture of an objective's page: its three components side by side."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from isotrope.paradigm.portrait import Portrait
from isotrope.reports.plots import INK, settings, written
from isotrope.reports.surfaces import (
    ANGLES,
    UNDEFINED,
    Surface,
    colour_scale,
    pi_ticks,
    surface_panel,
)

LINE = "#0072b2"


def triptych(portrait: Portrait, name: str) -> bytes:
    """Draw the three components of an objective side by side, as SVG.

    Dissipation and ratio over the angles of positive and negatives; the weight of each negative
    over its angle, the positive at pi/6.

    Args:
        portrait: what to draw.
        name: of the objective.
    """
    near, far = portrait.near.numpy(), portrait.far.numpy()
    nothing = np.full(portrait.dissipation.shape, np.nan)
    ratio = nothing if portrait.ratio is None else portrait.ratio.numpy()
    gd = portrait.dissipation.numpy()
    with mpl.rc_context(settings(name)):
        figure = Figure(figsize=(8.6, 2.5))
        left, middle, right = (figure.add_axes((x, 0.2, 0.2, 0.64)) for x in (0.075, 0.43, 0.71))
        for axes, title, value, limits, at in (
            (left, "gradient dissipation", gd, (0.0, 1.0), 0.285),
            (right, "ratio", ratio, None, 0.92),
        ):
            finite = np.isfinite(value)
            mesh = surface_panel(axes, Surface(title, far, near, value, finite), limits, ())
            axes.set_xlabel(ANGLES[0])
            if finite.any():
                colour_scale(figure, mesh, (at, 0.2, 0.012, 0.64), "")
        left.set_ylabel(ANGLES[1])
        right.tick_params(labelleft=False)
        if portrait.ratio is None:
            plain: dict[str, Any] = {"ha": "center", "va": "center", "transform": right.transAxes}
            none = not portrait.weight.any()
            why = "nothing pushes" if none else "one for each coordinate"
            right.text(0.5, 0.5, why, fontsize=8, backgroundcolor=UNDEFINED, **plain)
        middle.axhline(0, lw=0.6, color=INK)
        middle.plot(
            portrait.angles.numpy(), portrait.weight.numpy(), "o-", ms=2.2, lw=1, color=LINE
        )
        middle.set_title("weight")
        middle.set_xlabel(ANGLES[0])
        pi_ticks(middle, "x")
        middle.yaxis.set_major_locator(MaxNLocator(4))
        middle.tick_params(length=2, pad=3)
        return written(figure).svg
