"""Compares the distribution of a model's angles with the assumptions of Li et al. (2024).

Their simulations draw theta_ii' and theta_ij' from normal distributions with given means and
spreads (section 3.1); appendix A.1 and figure 9 say that trained models stay within these. Beside
mean and spread there are the skewness, the excess kurtosis and the Kolmogorov-Smirnov distance to
the normal distribution of that mean and spread. Figure 5 is the density of the cosines.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.core.views import Views
from isotrope.objectives.infonce import InfoNCE

ASSUMED = {
    "positive": ((math.pi / 20, math.pi / 2), 0.05),
    "negative": ((math.pi / 20, math.pi), 0.10),
}
"""The range of the mean and the spread that Li et al. (2024, section 3.1) draw from, in radians."""

_KEPT = 20_000  # cosines that a density is made of: quantiles of those there are


@dataclass(frozen=True)
class AngleStatistics:
    """How angles are distributed, in radians.

    Attributes:
        mean: mu.
        std: sigma; the variance divides by the number of angles.
        skew: third standardised moment, 0 for a normal distribution.
        kurtosis: fourth, less 3: 0 for a normal distribution.
        ks: largest distance between the distribution function and that of N(mu, sigma^2). It is no
            test: mu and sigma come from the same angles, and angles of one anchor are dependent.
        in_range: whether mu lies in the range that Li et al. (2024) assume.
        spread: sigma over the one that they assume.
        count: the number of angles.
    """

    mean: float
    std: float
    skew: float
    kurtosis: float
    ks: float
    in_range: bool
    spread: float
    count: int


@dataclass(frozen=True, eq=False)
class Density:
    """A density of cosines (Li et al., 2024, figure 5).

    Attributes:
        cosine: k points from -1 to 1.
        positive: k, of cosines with positives.
        negative: k, with negatives.
    """

    cosine: Tensor
    positive: Tensor
    negative: Tensor


def angle_statistics(batches: Sequence[Views]) -> dict[str, AngleStatistics]:
    """Return the statistics of the angles with positives and with negatives of all batches."""
    statistics = {}
    for name, cosines in zip(("positive", "negative"), _cosines(batches), strict=True):
        angles = cosines.clamp(-1, 1).arccos()
        (low, high), sigma = ASSUMED[name]
        mean, std = float(angles.mean()), float(angles.std(correction=0))
        z = (angles - mean) / std if std > 0 else torch.zeros_like(angles)
        statistics[name] = AngleStatistics(
            mean=mean,
            std=std,
            skew=float((z**3).mean()),
            kurtosis=float((z**4).mean()) - 3 if std > 0 else 0.0,
            ks=_kolmogorov_smirnov(z),
            in_range=low <= mean <= high,
            spread=std / sigma,
            count=len(angles),
        )
    return statistics


def densities(batches: Sequence[Views], *, points: int = 201) -> Density:
    """Return Gaussian kernel estimates of the densities, with Scott's bandwidth."""
    grid = torch.linspace(-1, 1, points, dtype=torch.float64)
    return Density(grid, *(_density(cosines, grid) for cosines in _cosines(batches)))


@torch.no_grad()
def _cosines(batches: Sequence[Views]) -> tuple[Tensor, Tensor]:
    """Return the cosines with positives and with negatives of all batches, in float64."""
    seen = [InfoNCE().compare(b.map(lambda x: x.detach().cpu().double())) for b in batches]
    near = [pairs.positive for pairs in seen]
    far = [pairs.similarity()[pairs.negative()] for pairs in seen]
    if not any(map(len, far)):
        raise ValueError("angles with negatives need a batch of two pairs or more; found none")
    return torch.cat(near), torch.cat(far)


def _kolmogorov_smirnov(z: Tensor) -> float:
    """Return the distance of the distribution of ``z`` from the standard normal one."""
    below = torch.special.ndtr(z.sort().values)
    steps = torch.arange(len(z) + 1, dtype=z.dtype) / len(z)
    return float(torch.maximum(steps[1:] - below, below - steps[:-1]).max())


def _density(values: Tensor, grid: Tensor) -> Tensor:
    """Return a Gaussian kernel estimate of the density of ``values`` on the grid."""
    if len(values) > _KEPT:
        values = values.sort().values[torch.linspace(0, len(values) - 1, _KEPT).long()]
    spread = values.std(correction=0).clamp_min(1e-3)  # of equal values: a narrow bell
    width = spread * len(values) ** -0.2
    bells = ((grid[:, None] - values) / width).square().mul_(-0.5).exp_()
    density: Tensor = bells.mean(dim=1) / (width * math.sqrt(2 * math.pi))
    return density
