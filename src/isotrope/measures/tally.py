"""Accumulates the moments of embeddings in one pass, in O(d^2) memory for any number of rows."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.core.views import unit
from isotrope.measures.effective_rank import rank_of_moment
from isotrope.measures.mean_cosine import mean_cosine_of_sum


@dataclass(frozen=True)
class Tally:
    """Moments of n rows in float64; the tally of two blocks is the sum of their tallies.

    Attributes:
        count: Number n of rows.
        mean: The mean of the rows, d.
        scatter: Scatter matrix sum_i (x_i - mean)(x_i - mean)^T, d x d.
        total: Sum of the rows after normalisation to length 1, d.
        squares: Sum of the squared norms of the normalised rows: n minus the number of zero rows.
        norm_mean: The mean of the Euclidean norms.
        norm_scatter: Sum of the squared deviations of the norms.
        norm_min: The smallest norm.
        norm_max: The largest norm.
    """

    count: int
    mean: Tensor
    scatter: Tensor
    total: Tensor
    squares: Tensor
    norm_mean: float
    norm_scatter: float
    norm_min: float
    norm_max: float

    def __add__(self, other: "Tally") -> "Tally":
        # the update of Chan, Golub and LeVeque 1983: no difference of large numbers
        n = self.count + other.count
        share = other.count / n
        shift, step = other.mean - self.mean, other.norm_mean - self.norm_mean
        return Tally(
            count=n,
            mean=self.mean + share * shift,
            scatter=self.scatter + other.scatter + self.count * share * torch.outer(shift, shift),
            total=self.total + other.total,
            squares=self.squares + other.squares,
            norm_mean=self.norm_mean + share * step,
            norm_scatter=self.norm_scatter + other.norm_scatter + self.count * share * step**2,
            norm_min=min(self.norm_min, other.norm_min),
            norm_max=max(self.norm_max, other.norm_max),
        )

    @property
    def std(self) -> Tensor:
        """Standard deviation of each dimension, d; the variance divides by n."""
        return (self.scatter.diagonal() / self.count).sqrt()

    @property
    def norm_std(self) -> float:
        """Standard deviation of the norms; the variance divides by n."""
        return math.sqrt(self.norm_scatter / self.count)

    @property
    def mean_cosine(self) -> float:
        """Mean cosine of all pairs of distinct rows, see :mod:`isotrope.measures.mean_cosine`."""
        return float(mean_cosine_of_sum(self.total, self.squares, self.count))

    def effective_rank(self, *, centre: bool = True) -> float:
        """Effective rank, see :func:`isotrope.measures.effective_rank.effective_rank`."""
        offset = 0 if centre else self.count * torch.outer(self.mean, self.mean)
        return float(rank_of_moment(self.scatter + offset))


def tally(embeddings: Tensor) -> Tally:
    """Return the tally of ``embeddings`` (n x d).

    Example:
        >>> import torch
        >>> found = tally(torch.tensor([[3.0, 4.0]])) + tally(torch.tensor([[0.0, 1.0]]))
        >>> found.norm_mean, found.norm_std, found.std.tolist()
        (3.0, 2.0, [1.5, 1.5])
    """
    if not len(embeddings):
        raise ValueError("a tally needs embeddings; found 0 rows")
    x = embeddings.double()
    mean, norms, h = x.mean(dim=0), torch.linalg.vector_norm(x, dim=1), unit(x)
    centred = x - mean
    return Tally(
        count=len(x),
        mean=mean,
        scatter=centred.T @ centred,
        total=h.sum(dim=0),
        squares=h.square().sum(),
        norm_mean=float(norms.mean()),
        norm_scatter=float((norms - norms.mean()).square().sum()),
        norm_min=float(norms.min()),
        norm_max=float(norms.max()),
    )
