"""Plots some quantities of a run in one matplotlib figure, for a notebook."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from isotrope.core.errors import InputError, nearest
from isotrope.reports.plots import draw, expanded, heading
from isotrope.reports.quantities import QUANTITIES
from isotrope.reports.runs import read_run

__all__ = ["Drawing", "figure_of"]

_USUAL = ("loss", "dev", "dissipation", "hardest_share")
_WIDE = 2  # pictures side by side


class Drawing(Figure):
    """A figure that a notebook shows, whether or not pyplot is imported."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def figure_of(folder: Path, quantities: Sequence[str] = ()) -> Drawing:
    """Draw quantities of a run as its report does, each with its heading.

    Args:
        folder: of the run.
        quantities: columns of metrics.csv; none: loss, dev score, gradient dissipation and the
            share of the hardest negative, as far as they were measured.

    Raises:
        InputError: a quantity that no picture has or that was not measured, or a damaged run.
    """
    run = read_run(Path(folder))
    known = {
        line.column: quantity
        for quantity in reversed(expanded(QUANTITIES, [run]))
        for line in quantity.lines
        if np.isfinite(run.series.get(line.column, np.nan)).any()
    }
    for name in quantities:
        if name not in known:
            raise InputError(
                f"no picture of {name!r}{nearest(name, known)}; there are {', '.join(known)}"
            )
    chosen = list(
        {known[name].key: known[name] for name in quantities or _USUAL if name in known}.values()
    )
    if not chosen:
        raise InputError(f"{folder} has logged nothing that a picture could show yet")
    rows = -(-len(chosen) // _WIDE)
    figure = Drawing(figsize=(4.6 * min(len(chosen), _WIDE), 2.8 * rows), layout="constrained")
    for place, quantity in enumerate(chosen, start=1):
        axes = figure.add_subplot(rows, min(len(chosen), _WIDE), place)
        draw(axes, quantity, [run])
        axes.set_title(heading(quantity, [run])[0], loc="left")
        axes.set_xlabel(quantity.across)
    return figure
