"""The spectrum of a loss's Hessian at a point: extremes, counts and step sizes.

Source: Manna et al., 2023, section 2.5 and figures 2 to 6. Its counts are those of 100 *Ritz*
values, which are not eigenvalues: Lanczos finds the ends of a spectrum first, and the bulk around
zero, millions of eigenvalues wide, is stood for by a few. So next to the counts there is an
estimate of the eigenvalues themselves, by the weights (``density``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from isotrope.diagnostics.curvature import Hessian
from papers.manna2023.density import share_below, trace
from papers.manna2023.lanczos import Lanczos, Ritz

_ZERO = 1e-4  # of the largest eigenvalue in size; see `Spectrum.zero`


@dataclass(frozen=True)
class Spectrum:
    """The spectrum of a Hessian of N parameters at one point.

    Attributes:
        size: N.
        loss: L.
        gradient_norm: the norm of the gradient of L.
        probes: Ritz values of independent start vectors, one or more.
    """

    size: int
    loss: float
    gradient_norm: float
    probes: tuple[Ritz, ...]

    @classmethod
    def of(cls, hessian: Hessian, processes: Sequence[Lanczos]) -> "Spectrum":
        """Return the spectrum that Lanczos processes on one Hessian have found."""
        norm = float(torch.linalg.vector_norm(hessian.gradient, dtype=torch.float64))
        return cls(hessian.size, hessian.loss, norm, tuple(p.ritz() for p in processes))

    @property
    def largest(self) -> tuple[float, float]:
        """lambda_max, and within which distance there is an eigenvalue."""
        best = max(self.probes, key=lambda r: float(r.values[-1]))
        return float(best.values[-1]), float(best.errors[-1])

    @property
    def smallest(self) -> tuple[float, float]:
        """lambda_min, and within which distance there is an eigenvalue."""
        best = min(self.probes, key=lambda r: float(r.values[0]))
        return float(best.values[0]), float(best.errors[0])

    @property
    def trace(self) -> tuple[float, float]:
        """The estimated trace and its standard error."""
        return trace(self.probes, self.size)

    @property
    def zero(self) -> float:
        """Up to where a value counts as not positive: 1e-4 of the largest in size.

        One Ritz value stands for most of a network's eigenvalues, so close to 0 that its sign is
        rounding; counted by its sign they would all be positive or all negative by chance.
        """
        return _ZERO * max(abs(self.largest[0]), abs(self.smallest[0]))

    def count(self, low: float, high: float) -> float:
        """Return how many Ritz values lie in (low, high), the mean over probes."""
        return float(np.mean([((r.values > low) & (r.values < high)).sum() for r in self.probes]))

    def negative(self) -> float:
        """Return how many Ritz values are below 0, the mean over probes."""
        return self.count(-np.inf, 0.0)

    def eigenvalues(self, low: float, high: float) -> float:
        """Return the estimated number of eigenvalues in (low, high]."""
        shares = share_below(self.probes, high, equal=True) - share_below(
            self.probes, low, equal=True
        )
        return self.size * float(shares.mean())

    def verdict(self) -> str:
        """Return what kind of point this is, as far as the error bounds allow."""
        value, error = self.smallest
        at = f"lambda_min = {value:.3g} (error {error:.1g})"
        if value + error < 0:
            return f"strict saddle or slope, not a minimum: {at} < 0"
        if value - error > 0:
            return f"convex along all that was found: {at} > 0"
        return f"undecided: {at}; more iterations would tell"

    def step(self, learning_rate: float) -> str:
        """Return how a learning rate stands to 1/lambda_max and to 2/lambda_max.

        The first is the bound of Manna et al. (2023, section 2.5), the second where plain gradient
        descent on a quadratic starts to diverge.
        """
        top = self.largest[0]
        if top <= 0:
            return f"learning rate {learning_rate:.3g}: no positive curvature limits it"
        stable, edge = 1 / top, 2 / top
        if learning_rate <= stable:
            how = "within 1/lambda_max"
        elif learning_rate <= edge:
            how = "above 1/lambda_max, within 2/lambda_max"
        else:
            how = "above 2/lambda_max: plain gradient descent would oscillate along the top"
        return f"learning rate {learning_rate:.3g} is {how} (1/lambda_max = {stable:.3g})"

    def numbers(self, threshold: float = 1.0) -> dict[str, Any]:
        """Return all single numbers, by name."""
        (top, top_error), (low, low_error) = self.largest, self.smallest
        total, total_error = self.trace
        return {
            "parameters": self.size,
            "loss": self.loss,
            "gradient_norm": self.gradient_norm,
            "lambda_max": top,
            "lambda_max_error": top_error,
            "lambda_min": low,
            "lambda_min_error": low_error,
            "ritz_values": sum(len(r.values) for r in self.probes) / len(self.probes),
            "negative": self.negative(),
            "flat": self.count(0.0, threshold),
            "threshold": threshold,
            "trace": total,
            "trace_error": total_error,
            "eigenvalues_not_positive": self.eigenvalues(-np.inf, self.zero),
            "eigenvalues_positive": self.eigenvalues(self.zero, np.inf),
        }
