"""The spectrum of a loss's Hessian at a point, by Lanczos: extremes, counts, density.

Source: Manna et al., 2023, section 2.5 and figures 2 to 6. Its counts are those of 100 *Ritz*
values, which are not eigenvalues: Lanczos finds the ends of a spectrum first, and the bulk around
zero, millions of eigenvalues wide, is stood for by a few. So next to the counts there is an
estimate of the eigenvalues themselves, by the weights: for v uniform on the unit sphere,
E[v' f(H) v] = tr f(H) / N, and k steps of Lanczos from v give v' f(H) v as sum_i w_i f(theta_i),
exactly for polynomials of degree 2k - 1 (Golub and Welsch 1969; Ubaru, Chen and Saad 2017; for
networks Ghorbani, Krishnan and Xiao 2019).
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from isotrope.core import InputError

Floats = NDArray[np.float64]

_ROUNDING = 32  # units of precision that a product may be wrong by, of the largest value
_ZERO = 1e-4  # of the largest eigenvalue in size; see `Spectrum.zero`
_SPREADS = 4.0  # standard deviations that a picture shows beyond the outermost Ritz value
THRESHOLD = 1.0
"""Ritz values from 0 to here are counted as nearly flat."""


class Operator(Protocol):
    """A symmetric matrix of ``size`` rows, of which only products are needed."""

    size: int

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its vectors."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of its vectors."""
        ...

    def __matmul__(self, vector: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Ritz:
    """The Ritz values of k steps of Lanczos, with what they say about the eigenvalues.

    Attributes:
        values: k, ascending.
        errors: k: within this distance of a value there is an eigenvalue (the norm of the residual
            of value and vector, or one rounding of the largest value if that is more).
        weights: k, with sum 1: the squared share of the start vector in each direction. For a
            random start, the mass of the spectrum there.
    """

    values: Floats
    errors: Floats
    weights: Floats


def lanczos(operator: Operator, iterations: int, *, seed: int = 0) -> Ritz:
    """Run the process from a random start vector, uniform on the sphere, one product a step.

    Each new vector is made orthogonal to all before it twice, which is enough (Parlett, "The
    symmetric eigenvalue problem", section 6.9), so that no eigenvalue appears more often than it is
    found. Where the start vector is used up before, there are fewer values, and all are exact.

    Raises:
        InputError: a product that is not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(operator.size, generator=generator, dtype=torch.float64)
    start = start / torch.linalg.vector_norm(start)
    basis = torch.empty(
        min(iterations, operator.size) + 1,
        operator.size,
        dtype=operator.dtype,
        device=operator.device,
    )
    basis[0] = start.to(operator.device, operator.dtype)
    rows: list[tuple[float, float]] = []
    for k in range(len(basis) - 1):
        w = operator @ basis[k]
        alpha = _dot(w, basis[k])
        if not math.isfinite(alpha):
            raise InputError(
                f"the curvature is not finite in iteration {k + 1}: the second derivatives "
                "overflow; use float64, or check the checkpoint"
            )
        w = w - alpha * basis[k]
        known = basis[: k + 1]
        for _ in range(2):
            w = w - known.T @ (known @ w)
        beta = math.sqrt(_dot(w, w))
        basis[k + 1] = w / beta if beta else w
        rows.append((alpha, beta))
        scale = max(max(abs(a), b) for a, b in rows)
        if beta <= _ROUNDING * torch.finfo(operator.dtype).eps * scale:
            break
    diagonal, beside = np.array(rows).T
    values, vectors = eigh_tridiagonal(diagonal, beside[:-1])
    rounding = torch.finfo(operator.dtype).eps * np.abs(values).max()
    errors = np.maximum(np.abs(beside[-1] * vectors[-1]), rounding)
    return Ritz(values, errors, vectors[0] ** 2)


def _dot(a: Tensor, b: Tensor) -> float:
    """Sum in float64: a million products in float32 lose digits."""
    return float(torch.dot(a.double(), b.double()))


def density(ritz: Ritz, where: Floats, *, width: float) -> Floats:
    """Return the density of the eigenvalues at m places, by Gaussians; its integral is 1."""
    distance = (where[:, None] - ritz.values) / width
    bells = np.exp(-(distance**2) / 2) / (width * math.sqrt(2 * math.pi))
    height: Floats = bells @ ritz.weights
    return height


def grid(low: float, high: float, *, width: float, points: int = 1000) -> Floats:
    """Return places that show all of a density between two eigenvalues."""
    return np.linspace(low - _SPREADS * width, high + _SPREADS * width, points)


@dataclass(frozen=True)
class Spectrum:
    """The spectrum of a Hessian of N parameters at one point.

    Attributes:
        size: N.
        loss: L.
        gradient_norm: the norm of the gradient of L.
        ritz: Ritz values.
    """

    size: int
    loss: float
    gradient_norm: float
    ritz: Ritz

    @property
    def largest(self) -> tuple[float, float]:
        """lambda_max, and within which distance there is an eigenvalue."""
        return float(self.ritz.values[-1]), float(self.ritz.errors[-1])

    @property
    def smallest(self) -> tuple[float, float]:
        """lambda_min, and within which distance there is an eigenvalue."""
        return float(self.ritz.values[0]), float(self.ritz.errors[0])

    @property
    def trace(self) -> tuple[float, float]:
        """The estimated trace and its standard error, from the same products.

        N v' H v has mean tr H, and for v uniform on the sphere variance
        2N / (N + 2) (tr H^2 - (tr H)^2 / N), which the second moment estimates.
        """
        first = float(self.size * (self.ritz.weights @ self.ritz.values))
        second = float(self.size * (self.ritz.weights @ self.ritz.values**2))
        variance = 2 * self.size / (self.size + 2) * max(0.0, second - first**2 / self.size)
        return first, math.sqrt(variance)

    @property
    def zero(self) -> float:
        """Up to where a value counts as not positive: 1e-4 of the largest in size.

        One Ritz value stands for most of a network's eigenvalues, so close to 0 that its sign is
        rounding; counted by its sign they would all be positive or all negative by chance.
        """
        return _ZERO * max(abs(self.largest[0]), abs(self.smallest[0]))

    def count(self, low: float, high: float) -> float:
        """Return how many Ritz values lie in (low, high)."""
        return float(((self.ritz.values > low) & (self.ritz.values < high)).sum())

    def eigenvalues(self, low: float, high: float) -> float:
        """Return the estimated number of eigenvalues in (low, high]."""
        values, weights = self.ritz.values, self.ritz.weights
        return self.size * float(weights[values <= high].sum() - weights[values <= low].sum())

    def numbers(self) -> dict[str, Any]:
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
            "ritz_values": len(self.ritz.values),
            "negative": self.count(-np.inf, 0.0),
            "flat": self.count(0.0, THRESHOLD),
            "threshold": THRESHOLD,
            "trace": total,
            "trace_error": total_error,
            "eigenvalues_not_positive": self.eigenvalues(-np.inf, self.zero),
            "eigenvalues_positive": self.eigenvalues(self.zero, np.inf),
        }
