"""Results of Draganov et al. 2024 that nothing but the tests asks for."""

import torch
from torch import Tensor

from isotrope.core.errors import MissingExtra
from isotrope.core.views import unit
from isotrope.paradigm.assemble import tangent
from papers.draganov2024.cosine import angle, attraction, most_progress, squared_norm_after
from tests.theorems.bound import Bound


def attraction_norm(z: Tensor, other: Tensor) -> Bound:
    """Return the length of :func:`attraction` and sin(phi) / |z|, which are equal (Prop. 3.1)."""
    return Bound(attraction(z, other).norm(dim=1), angle(z, other).sin() / z.norm(dim=1))


def infonce_gradient(z: Tensor, other: Tensor, negatives: Tensor) -> Tensor:
    """Return the gradient of -cos(z, other) + log sum_k e^cos(z, z_k) by z, n x d (Cor. B.1).

    (1/|z|) times the part orthogonal to z of -z_j/|z_j| + sum_k softmax_k z_k/|z_k|: the positive
    and the negatives have opposite signs, where the printed formula has two plus signs.
    """
    weight = (unit(z) @ unit(negatives).T).softmax(dim=1)
    direction = weight @ unit(negatives) - unit(other)
    length: Tensor = z.norm(dim=1, keepdim=True)
    return tangent(direction, unit(z)) / length


def cosine_tail(dimension: int, epsilon: float) -> Bound:
    """Return P(cos >= 1 - eps) of two random directions and 1 / (2 d (1 - eps)^2) (Prop. C.1).

    (1 + cos) / 2 is Beta((d-1)/2, (d-1)/2) distributed, which gives the left side exactly. The
    bound is Chebyshev's and says nothing where 2 d (1 - eps)^2 < 1. By symmetry it also bounds
    P(cos <= -(1 - eps)), the opposite halves that the paper asks about.

    Example:
        >>> tail = cosine_tail(3, 0.5)  # cosines are uniform on the sphere
        >>> float(tail.left), round(float(tail.right), 4)
        (0.25, 0.6667)
    """
    if dimension < 2 or not 0 < epsilon < 1:
        raise ValueError(
            f"needs a dimension of 2 or more and epsilon in (0, 1); found {dimension}, {epsilon:g}"
        )
    try:
        from scipy.special import betainc
    except ImportError as error:
        raise MissingExtra("scipy", extra="train") from error
    shape = (dimension - 1) / 2
    # P(B >= 1 - eps/2) = P(B <= eps/2): small tails keep their digits
    exact = torch.tensor(float(betainc(shape, shape, epsilon / 2)), dtype=torch.float64)
    return Bound(exact, torch.full_like(exact, 1 / (2 * dimension * (1 - epsilon) ** 2)))


def norm_growth(z: Tensor, other: Tensor, step: float) -> Bound:
    """Return |z|^2 and |z'|^2 after a step of descent on -cos(z, other) (Cor. 3.2), n of each."""
    return Bound(z.square().sum(dim=1), squared_norm_after(z, other, step))


def progress(phi: Tensor, rho: Tensor | float, step: Tensor | float) -> Bound:
    """Return the change of the cosine when both embeddings take a step, and its bound (Thm 3.3).

    Left, exact: 2 x s^2 (1 - x c) / (1 + x^2 s^2), with x = step / rho^2.
    """
    x = torch.as_tensor(step, dtype=phi.dtype) / torch.as_tensor(rho, dtype=phi.dtype) ** 2
    c, square = phi.cos(), phi.sin().square()
    exact = 2 * x * square * (1 - x * c) / (1 + x.square() * square)
    return Bound(exact, most_progress(phi, rho, step))
