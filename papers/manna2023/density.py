"""Estimates the density of eigenvalues by stochastic Lanczos quadrature, from a few start vectors.

For v uniform on the unit sphere, E[v' f(H) v] = tr f(H) / N, and k steps of Lanczos from v give
v' f(H) v as sum_i w_i f(theta_i), exactly for polynomials of degree 2k - 1 (Golub and Welsch 1969).
So the Ritz values with their weights stand for all N eigenvalues. Source: Ubaru, Chen and Saad
2017, "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature"; for networks Ghorbani,
Krishnan and Xiao 2019.
"""

import math
from collections.abc import Sequence

import numpy as np

from isotrope.core.errors import InputError
from papers.manna2023.lanczos import Floats, Ritz

_SPREADS = 4.0  # standard deviations that a picture shows beyond the outermost Ritz value


def density(probes: Sequence[Ritz], where: Floats, *, width: float) -> Floats:
    """Return the density of the eigenvalues at some places: its integral is 1."""
    if not width > 0:
        raise InputError(f"the width of the density's Gaussians must be above 0; found {width:g}")
    height = np.zeros(len(where))
    for ritz in probes:
        distance = (where[:, None] - ritz.values) / width
        bells = np.exp(-(distance**2) / 2) / (width * math.sqrt(2 * math.pi))
        height += bells @ ritz.weights / len(probes)
    return height


def grid(probes: Sequence[Ritz], *, width: float, points: int = 1000) -> Floats:
    """Return places that show all of a density."""
    low = min(ritz.values[0] for ritz in probes) - _SPREADS * width
    high = max(ritz.values[-1] for ritz in probes) + _SPREADS * width
    return np.linspace(low, high, points)


def share_below(probes: Sequence[Ritz], bound: float, *, equal: bool = False) -> Floats:
    """Return each probe's estimate of the share of eigenvalues below ``bound`` (or equal to it)."""
    compare = np.less_equal if equal else np.less
    return np.array([ritz.weights[compare(ritz.values, bound)].sum() for ritz in probes])


def trace(probes: Sequence[Ritz], size: int) -> tuple[float, float]:
    """Return the trace and its standard error, from the same products.

    N v' H v has mean tr H, and for v uniform on the sphere variance
    2N / (N + 2) (tr H^2 - (tr H)^2 / N), which the second moments estimate: one probe has an error.
    """
    first = float(np.mean([size * (r.weights @ r.values) for r in probes]))
    second = float(np.mean([size * (r.weights @ r.values**2) for r in probes]))
    variance = 2 * size / (size + 2) * max(0.0, second - first**2 / size)
    return first, math.sqrt(variance / len(probes))
