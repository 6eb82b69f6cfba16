"""Figure 4: the two views of images in a latent space of two dimensions, during training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from isotrope.reports import INK, Picture, settings, written
from papers.draganov2024.trainings import latent
from papers.machinery.artifact import Results, Scale
from papers.machinery.verdicts import Ruling, above, spread
from papers.plots.charts import charts

RUNS = (
    *("SimCLR", "SimCLR, decay .05", "SimCLR, cut 3"),
    *("BYOL", "BYOL, no batch norm", "BYOL, cut 9"),
)
_RIM = "#009e73"
LEAST = 0.1
"""Of the anchors at the smaller pole, for there to be two."""


@dataclass(frozen=True)
class PlanePairs:
    """n pairs in the plane after an epoch: n x 2 each, and their cosines."""

    epoch: int
    anchors: NDArray[np.float64]
    positives: NDArray[np.float64]
    cosines: NDArray[np.float64]


def two_poles(scale: Scale, results: Results) -> Ruling:
    """Return whether BYOL's anchors are at both ends of the line that they lie on."""
    shares = {}
    for job in latent(scale, "BYOL"):
        if (result := results.get(job)) is None:
            continue
        x = np.array(result.details["pairs"]["1"]["anchors"], dtype=float)
        angles = np.arctan2(x[:, 1], x[:, 0])
        axis = np.angle(np.exp(2j * angles).mean()) / 2
        share = float((np.cos(angles - axis) > 0).mean())
        shares[job.seed] = min(share, 1 - share)
    pole = spread(shares)
    percent = spread(100 * share for share in shares.values())
    return Ruling(
        "after its first epoch BYOL is at two opposite poles",
        above(pole, LEAST),
        f"percent of anchors at the smaller one: {percent.text(1)}" if percent else "",
    )


def drawn(scale: Scale, results: Results) -> Picture:
    """Draw the first seed."""
    runs = {}
    for name in RUNS:
        result = results.get(jobs[0]) if (jobs := latent(scale, name)) else None
        if result is None:
            continue
        pairs = []
        for epoch, both in result.details["pairs"].items():
            a, b = (np.array(both[side], dtype=float) for side in ("anchors", "positives"))
            lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
            cosines = (a * b).sum(axis=1) / np.where(lengths == 0, 1, lengths)
            pairs.append(PlanePairs(int(epoch), a, b, cosines))
        runs[name] = pairs
    return pairs_in_plane(runs) if runs else charts([])


def pairs_in_plane(runs: Mapping[str, Sequence[PlanePairs]]) -> Picture:
    """Draw a row of panels for each run, and in each a line between the two views of every image.

    Lines go from red (opposite) to blue (together), as in Draganov et al. 2024, figure 4. Every
    panel has its own scale, which is written in it; the cross is the origin, and on the circle lie
    the directions of the anchors, which are all that a cosine sees.
    """
    columns = len(next(iter(runs.values())))
    with mpl.rc_context(settings("pairs in the plane")):
        size = (1.5 * columns + 2.2, 1.5 * len(runs) + 0.3)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(runs), columns, squeeze=False)
        for row, (name, snapshots) in zip(grid, runs.items(), strict=True):
            for axes, snapshot in zip(row, snapshots, strict=True):
                drawn = _pairs(axes, snapshot)
                if axes in grid[0]:
                    axes.set_title(f"epoch {snapshot.epoch}" if snapshot.epoch else "before")
            row[0].set_ylabel(name, rotation=0, ha="right", va="center")
        bar = figure.colorbar(drawn, ax=grid, shrink=0.5, ticks=(-1, 0, 1))
        bar.set_label("cosine of the pair")
        bar.outline.set_visible(False)
        return written(figure)


def _pairs(axes: Axes, snapshot: PlanePairs) -> LineCollection:
    both = np.concatenate([snapshot.anchors, snapshot.positives])
    reach = float(np.linalg.norm(both, axis=1).max()) * 1.25 or 1.0
    lengths = np.linalg.norm(snapshot.anchors, axis=1, keepdims=True)
    directions = snapshot.anchors / np.where(lengths == 0, 1, lengths) * reach * 0.93
    axes.plot(*directions.T, "o", ms=1.6, mec="none", color=_RIM, alpha=0.5, rasterized=True)
    lines = LineCollection(
        list(np.stack([snapshot.anchors, snapshot.positives], axis=1)), cmap="RdBu", linewidths=0.5
    )
    lines.set_array(snapshot.cosines)
    lines.set_clim(-1, 1)
    lines.set(alpha=0.7, rasterized=True)
    axes.add_collection(lines)
    axes.plot(*both.T, ".", ms=1.2, color=INK, rasterized=True)
    axes.plot(0, 0, "+", ms=6, color=INK)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
    axes.text(0.03, 0.03, f"\N{PLUS-MINUS SIGN}{reach:.2g}", fontsize=6, transform=axes.transAxes)
    for side in axes.spines.values():
        side.set_visible(True)
    return lines
