"""What figures 2, 3, 4 and 10 share: simulations on drawn angles, nothing trained."""

import functools
from collections.abc import Sequence

from isotrope.diagnostics.figures import FIGURES, figure
from isotrope.diagnostics.landscape import Landscape
from isotrope.experiments.reproduce.artifact import Scale, Shown, Table

__all__ = ["GRID", "dissipated"]

GRID: dict[Scale, tuple[int, int]] = {"smoke": (8, 20), "cpu": (100, 1000), "paper": (100, 1000)}
"""Values of each mean, and batches drawn for each pair of them."""


def dissipated(scale: Scale, titles: Sequence[str]) -> Shown:
    """Return where the mean dissipation of objectives falls, and its picture."""
    found = {title: _simulated(scale)[title] for title in titles}
    rows = [[t, f"{one.crossing(0.5236) or 0:.3f}"] for t, one in found.items()]
    return Shown(tables=[Table(["objective", "mu_neg where GD is .5"], rows)])


@functools.cache
def _simulated(scale: Scale) -> dict[str, Landscape]:
    grid, batches = GRID[scale]
    panels = FIGURES["dissipation"]
    found = figure("dissipation", panels, grid=grid, batches=batches)
    return {panel.title: one for panel, one in zip(panels, found, strict=True)}
