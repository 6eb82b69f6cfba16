"""How fast gradient descent converges: Manna et al. 2023, section 2.5 and supplement 6."""

import torch
from torch import Tensor

from tests.theorems.bound import Bound


def linear_rate_bound(gaps: Tensor, mu: float, lipschitz: float) -> Bound:
    """Return both sides of eq. 20, for gradient descent with a rate of 1/L.

    f(w_k) - f* <= (1 - mu/L)^k (f(w_0) - f*), where the gradient obeys the Polyak-Lojasiewicz
    inequality |grad f|^2 / 2 >= mu (f - f*). On average over eigenvectors, each with a mu of its
    own, that is eq. 24 from its third line on. Its first line, from eq. 21, has (1 - mu_i/lambda_i)
    in place of 1 - mu_i/L, which is so only for a rate of 1/lambda_i along each of them.

    Args:
        gaps: f(w_k) - f* for k = 0, 1, ...
        mu: of the inequality.
        lipschitz: L.
    """
    steps = torch.arange(len(gaps), dtype=gaps.dtype)
    return Bound(gaps, (1 - mu / lipschitz) ** steps * gaps[0])


def gradient_sum_bound(
    rates: Tensor, squares: Tensor, gap: float, lipschitz: float, variance: float = 0.0
) -> Bound:
    """Return both sides of supplement eq. 45, for a loss with L-Lipschitz gradients.

    sum_t (eta_t - eta_t^2 L/2) E|grad f(w_t)|^2 <= f(w_1) - f* + (sigma^2 L/2) sum_t eta_t^2.

    The gap is that of the *first* weights. Eq. 25 of the main text prints the gap that is left
    at the end in its place, which tends to 0 while the left side does not.

    Args:
        rates: T learning rates eta_t.
        squares: T expected squared norms of the full gradient, before each step.
        gap: f(w_1) - f*.
        lipschitz: L.
        variance: sigma^2, the expected squared error of a stochastic gradient.

    Raises:
        ValueError: as many rates as norms are needed.
    """
    if rates.shape != squares.shape or rates.ndim != 1:
        raise ValueError(
            "rates and squares hold one number for each step; found shapes "
            f"{tuple(rates.shape)} and {tuple(squares.shape)}"
        )
    left = ((rates - rates.square() * lipschitz / 2) * squares).sum()
    return Bound(left, gap + variance * lipschitz / 2 * rates.square().sum())


def mean_gradient_bound(
    squares: Tensor, gap: float, lipschitz: float, variance: float = 0.0
) -> Bound:
    """Return both sides of supplement eq. 46: the case of a constant learning rate 1/L.

    mean_t E|grad f(w_t)|^2 <= 2 L (f(w_1) - f*) / T + sigma^2.

    Args:
        squares: T expected squared norms of the full gradient, before each step.
        gap: f(w_1) - f*.
        lipschitz: L.
        variance: sigma^2, the expected squared error of a stochastic gradient.
    """
    mean = squares.mean()
    return Bound(mean, mean.new_tensor(2 * lipschitz * gap / len(squares) + variance))
