"""How small gradients become in stochastic gradient descent: Manna et al. 2023, supplement 6.2."""

from torch import Tensor

from papers.theorems.bound import Bound

__all__ = ["gradient_sum_bound", "mean_gradient_bound"]


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
