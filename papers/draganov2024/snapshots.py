"""Snapshots of pairs of images in a latent plane during training (Draganov et al., 2024, fig. 4).

These are the records, with their norms and angles; ``papers.draganov2024.latent`` trains.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isotrope.core.views import unit
from isotrope.measures.norms import mean_norm
from isotrope.measures.opposite_halves import opposite_halves
from papers.draganov2024.cosine_checks import FAR

__all__ = ["MEASURES", "LatentSnapshot", "course_csv", "pairs_csv"]

MEASURES = ("norm", "angle", "opposite_halves", "far_opposite", "clusters")


@dataclass(frozen=True, eq=False)
class LatentSnapshot:
    """Pairs of one set of images, as the objective sees them, after an epoch.

    Attributes:
        epoch: 0 before training.
        anchors: n x d, not normalised: SimCLR's projections, BYOL's predictions.
        positives: n x d: SimCLR's projections, BYOL's targets, of the other crop.
    """

    epoch: int
    anchors: Tensor
    positives: Tensor

    @property
    def cosines(self) -> Tensor:
        """The cosines of the n pairs."""
        return (unit(self.anchors) * unit(self.positives)).sum(dim=1)

    def measures(self) -> dict[str, float]:
        """Return the numbers of the snapshot, by the names in ``MEASURES``.

        norm: mean norm of the anchors. angle: mean angle of the pairs, radians. opposite_halves,
        far_opposite: share of pairs more than pi/2 and more than 7 pi/8 apart. clusters: the length
        of the mean of e^{2 i theta} over the anchors' directions in the first two dimensions: 1
        where all lie on one line through the origin (one cluster, or two at antipodes), near 0
        where they are spread around the circle.
        """
        directions = torch.atan2(self.anchors[:, 1], self.anchors[:, 0])
        doubled = torch.polar(torch.ones_like(directions), 2 * directions).mean().abs()
        return {
            "norm": float(mean_norm(self.anchors)),
            "angle": float(self.cosines.clamp(-1, 1).acos().mean()),
            "opposite_halves": float(opposite_halves(self.anchors, self.positives)),
            "far_opposite": float(opposite_halves(self.anchors, self.positives, FAR)),
            "clusters": float(doubled),
        }


def course_csv(runs: Mapping[str, Sequence[LatentSnapshot]]) -> str:
    """Return a table of the measures, one line for every snapshot of every run."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["run", "epoch", *MEASURES])
    for name, snapshots in runs.items():
        for snapshot in snapshots:
            measures = snapshot.measures().values()
            lines.writerow([name, snapshot.epoch, *(f"{number:.6g}" for number in measures)])
    return text.getvalue()


def pairs_csv(runs: Mapping[str, Sequence[LatentSnapshot]]) -> str:
    """Return a table of the pairs, one line for each, in the first two dimensions."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["run", "epoch", "x", "y", "x_positive", "y_positive", "cosine"])
    for name, snapshots in runs.items():
        for snapshot in snapshots:
            points = (snapshot.anchors[:, :2], snapshot.positives[:, :2])
            for row in np.asarray(torch.cat([*points, snapshot.cosines[:, None]], dim=1)):
                lines.writerow([name, snapshot.epoch, *(f"{number:.6g}" for number in row)])
    return text.getvalue()
