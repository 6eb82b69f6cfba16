"""What one step on the cosine similarity does to embeddings: the results of Draganov et al. 2024.

phi is the angle of two embeddings, rho a norm, gamma a step; x = gamma / rho^2. Vectors are rows
and must not be zero.
"""

import torch
from torch import Tensor

from isotrope.core import unit
from isotrope.paradigm import tangent


def attraction(z: Tensor, other: Tensor) -> Tensor:
    """Return the gradient of -cos(z, other) by z, n x d (Draganov et al. 2024, Prop. 3.1).

    It is -(other / |other|) orthogonal to z, over |z|. The printed vector lacks the minus: it is
    the direction of ascent of the cosine, the one a descent step goes.
    """
    length: Tensor = z.norm(dim=1, keepdim=True)
    return -tangent(unit(other), unit(z)) / length


def squared_norm_after(z: Tensor, other: Tensor, step: float) -> Tensor:
    """Return |z'|^2 after a step of descent on -cos(z, other) (Cor. 3.2), n numbers.

    |z'|^2 = |z|^2 + gamma^2 sin^2(phi) / |z|^2 exactly: norms only grow. (The printed proof takes
    the part of z_j orthogonal to z_i where it means that of the unit vector.)
    """
    square = z.square().sum(dim=1)
    return square + (step * angle(z, other).sin()).square() / square


def most_progress(phi: Tensor, rho: Tensor | float, step: Tensor | float) -> Tensor:
    """Return a bound on the change of the cosine when both embeddings take a step (Thm 3.3).

    2 x s^2 (1 + x max(0, -c)), with c = cos(phi), s = sin(phi). For phi <= pi/2 it is the printed
    2 gamma sin^2(phi) / rho^2; for obtuse angles the printed bound is false wherever |c| > x s^2.
    The theorem's step takes the *unit* vectors' orthogonal parts, as the gradient has them; the
    statement prints those of z_i and z_j.
    """
    x = torch.as_tensor(step, dtype=phi.dtype) / torch.as_tensor(rho, dtype=phi.dtype) ** 2
    return 2 * x * phi.sin().square() * (1 + x * (-phi.cos()).relu())


def angle(z: Tensor, other: Tensor) -> Tensor:
    """Return the angles of n pairs, exact near 0 and pi too."""
    u, v = unit(z), unit(other)
    return 2 * torch.atan2((u - v).norm(dim=1), (u + v).norm(dim=1))
