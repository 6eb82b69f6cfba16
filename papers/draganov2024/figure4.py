"""Figure 4: the two views of images in a latent space of two dimensions, during training."""

import numpy as np

from isotrope.reports import Picture
from papers.draganov2024.pictures import PlanePairs, pairs_in_plane
from papers.draganov2024.trainings import latent
from papers.machinery.artifact import Results, Scale
from papers.machinery.verdicts import Ruling, spread
from papers.plots.charts import charts

RUNS = (
    *("SimCLR", "SimCLR, decay .05", "SimCLR, cut 3"),
    *("BYOL", "BYOL, no batch norm", "BYOL, cut 9"),
)
LEAST = 0.1
"""Of the anchors at the smaller pole, for there to be two."""


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
        None if pole is None else pole.mean > LEAST,
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
