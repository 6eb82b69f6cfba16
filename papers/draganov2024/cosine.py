"""What one step on the cosine similarity does to embeddings: the results of Draganov et al. 2024.

phi is the angle of two embeddings, rho a norm, gamma a step; x = gamma / rho^2. Vectors are rows
and must not be zero.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.core import unit
from isotrope.paradigm import tangent


@dataclass(frozen=True)
class Bound:
    """The claim left <= right, element by element.

    Attributes:
        left: the smaller side, in the shape of the claim (one number, or one per anchor).
        right: the larger side, of the same shape.
    """

    left: Tensor
    right: Tensor

    @property
    def gap(self) -> Tensor:
        """The right side less the left: how much is given away; 0 where the two are equal."""
        return self.right - self.left

    @property
    def holds(self) -> Tensor:
        """Booleans: left <= right up to rounding, so that an equality holds.

        The sides are sums of numbers of order 1: what is smaller is not more exact than those.
        """
        size = torch.maximum(self.left.abs(), self.right.abs()).clamp(min=1.0)
        return self.left <= self.right + 64 * torch.finfo(self.left.dtype).eps * size


def attraction(z: Tensor, other: Tensor) -> Tensor:
    """Return the gradient of -cos(z, other) by z, n x d (Draganov et al. 2024, Prop. 3.1).

    It is -(other / |other|) orthogonal to z, over |z|. The printed vector lacks the minus: it is
    the direction of ascent of the cosine, the one a descent step goes.
    """
    length: Tensor = z.norm(dim=1, keepdim=True)
    return -tangent(unit(other), unit(z)) / length


def norm_growth(z: Tensor, other: Tensor, step: float) -> Bound:
    """Return |z|^2 and |z'|^2 after a step of descent on -cos(z, other) (Cor. 3.2), n of each.

    |z'|^2 = |z|^2 + gamma^2 sin^2(phi) / |z|^2 exactly: norms only grow. (The printed proof takes
    the part of z_j orthogonal to z_i where it means that of the unit vector.)
    """
    square = z.square().sum(dim=1)
    return Bound(square, square + (step * angle(z, other).sin()).square() / square)


def progress(phi: Tensor, rho: Tensor | float, step: Tensor | float) -> Bound:
    """Return the change of the cosine when both embeddings take a step, and its bound (Thm 3.3).

    Left, exact: 2 x s^2 (1 - x c) / (1 + x^2 s^2). Right: 2 x s^2 (1 + x max(0, -c)), with
    c = cos(phi), s = sin(phi).

    For phi <= pi/2 the right side is the printed 2 gamma sin^2(phi) / rho^2; for obtuse angles the
    printed bound is false wherever |c| > x s^2. The theorem's step takes the *unit* vectors'
    orthogonal parts, as the gradient has them; the statement prints those of z_i and z_j.
    """
    x = torch.as_tensor(step, dtype=phi.dtype) / torch.as_tensor(rho, dtype=phi.dtype) ** 2
    c, square = phi.cos(), phi.sin().square()
    exact = 2 * x * square * (1 - x * c) / (1 + x.square() * square)
    return Bound(exact, 2 * x * square * (1 + x * (-c).relu()))


def angle(z: Tensor, other: Tensor) -> Tensor:
    """Return the angles of n pairs, exact near 0 and pi too."""
    u, v = unit(z), unit(other)
    return 2 * torch.atan2((u - v).norm(dim=1), (u + v).norm(dim=1))
