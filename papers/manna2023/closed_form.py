"""The closed forms of the supplement, as printed and corrected.

z_n = psi^T h_n for the 2N rows of both views; C_nm is the plain product z_n . z_m that the
supplement differentiates, or the cosine that the losses are of. Sums over pairs are 2N x 2N
matrices with weights that sum to 1.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from isotrope.core.softplus import softplus
from papers.theorems.curvature import Version

__all__ = ["VERSIONS", "Problem", "Way", "gradient", "hessian_as_printed", "loss"]

VERSIONS: tuple[Version, ...] = get_args(Version)
Way = Literal["product", "cosine"]


@dataclass(frozen=True)
class Problem:
    """Features, a linear projector, a temperature.

    Attributes:
        h: 2N x p features, the second half being the other view in the same order.
        psi: p x q weights.
        temperature: tau.
    """

    h: Tensor
    psi: Tensor
    temperature: float

    @classmethod
    def drawn(cls, seed: int) -> "Problem":
        """Return a small random one: N = 4, p = 5, q = 3, tau = .5."""
        generator = torch.Generator().manual_seed(seed)
        h = torch.randn(8, 5, generator=generator, dtype=torch.float64)
        psi = torch.randn(5, 3, generator=generator, dtype=torch.float64)
        return cls(0.7 * h, 0.7 * psi, 0.5)

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Return the weights of positive and negative pairs: 1/T_P and 1/T_N, or 0."""
        rows = len(self.h)
        eye = torch.eye(rows, dtype=self.h.dtype)
        positive = eye.roll(rows // 2, dims=0)
        negative = 1 - eye - positive
        return positive / positive.sum(), negative / negative.sum()


def loss(problem: Problem, psi: Tensor, version: Version, way: Way) -> Tensor:
    """Return the loss of eq. 4, 12 or 18 (supplement 3, 5, 32), for autograd to differentiate."""
    z = problem.h @ psi
    if way == "cosine":
        z = z / z.norm(dim=1, keepdim=True)
    x = z @ z.T / problem.temperature
    positive, negative = problem.pairs()
    attracted = softplus(-x) if version == "v1" else -x
    repelled = x.exp() if version == "v3" else softplus(x)
    return (positive * attracted).sum() + (negative * repelled).sum()


def gradient(problem: Problem, version: Version, *, projected: bool) -> Tensor:
    """Return the gradient by psi in closed form, p x q (supplement eq. 14, 27, 33).

    Args:
        problem: at which.
        version: of the loss.
        projected: False for what is printed, sum_nm phi_nm (z_n^(k) h_m + z_m^(k) h_n), which is
            that of the plain product; True for cosines, where each derivative passes through
            (I - z z^T) / |z| of its own row.
    """
    h, z = problem.h, problem.h @ problem.psi
    length = z.norm(dim=1, keepdim=True)
    if projected:
        z = z / length
    slopes = _slopes(problem, z, version)
    received = (slopes + slopes.T) @ z  # what each row gets from all others
    if projected:
        received = (received - (received * z).sum(dim=1, keepdim=True) * z) / length
    return h.T @ received


def hessian_as_printed(
    problem: Problem, version: Version, right: Tensor, slip: Literal["reversed", "eq. 18"]
) -> Tensor:
    """Return the Hessian with a slip of the print put back in.

    Args:
        problem: at which.
        version: of the loss.
        right: the Hessian without the slip, (q p) x (q p), psi column by column.
        slip: ``reversed``: B where l differs from k, not where they are equal (eq. 28, 34);
            ``eq. 18``: h_m h_m^T for the first term of B.
    """
    h, q = problem.h, problem.psi.shape[1]
    slopes = _slopes(problem, h @ problem.psi, version)
    symmetric = h.T @ (slopes + slopes.T) @ h
    eye = torch.eye(q, dtype=h.dtype)
    if slip == "reversed":
        return right + torch.kron(1 - 2 * eye, symmetric)
    first = (slopes.sum(dim=0)[:, None, None] * h[:, :, None] * h[:, None, :]).sum(dim=0)
    return right + torch.kron(eye, first + h.T @ slopes @ h - symmetric)


def _slopes(problem: Problem, z: Tensor, version: Version) -> Tensor:
    """The derivative of the loss by each C_nm, 2N x 2N."""
    x = z @ z.T / problem.temperature
    positive, negative = problem.pairs()
    attracted = -torch.sigmoid(-x) if version == "v1" else -torch.ones_like(x)
    repelled = x.exp() if version == "v3" else torch.sigmoid(x)
    return (positive * attracted + negative * repelled) / problem.temperature
