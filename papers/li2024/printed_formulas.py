"""Tables 1 and 2: checks that a printed loss and its three printed components agree.

Both are written down once more, from the paper alone, and differentiated by autograd in float64;
beside them stands the proof of the same objective in the registry.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from isotrope import Objective
from isotrope.core import unit
from isotrope.paradigm import BATCHES, EXACT, batch, double_entry, tangent
from papers.machinery.artifact import Scale, Sheet
from papers.machinery.verdicts import Ruling

_SHAPES: dict[Scale, list[tuple[int, int]]] = {
    "smoke": [(8, 3)],
    "cpu": [(3, 5), (8, 3), (33, 16), (64, 48)],
    "paper": [(3, 5), (8, 3), (33, 16), (64, 48), (128, 768)],
}
WORDS = tomllib.loads(Path(__file__).with_name("formulas.toml").read_text(encoding="utf-8"))
"""GD, W and R in words."""

_REGULAR = ("random", "clustered")  # where no printed formula divides by zero


@dataclass(frozen=True)
class PrintedComponents:
    """GD (n), W (n x n), R (n; n x d of a diagonal matrix) and the vectors that push (n x d)."""

    dissipation: Tensor
    weight: Tensor
    ratio: Tensor
    negatives: Tensor

    def gradient(self, positives: Tensor) -> Tensor:
        """Return GD_i sum_j W_ij (x_j - R_i h'_i)."""
        mass = self.weight.sum(dim=1, keepdim=True)
        pull = mass * (self.ratio if self.ratio.ndim == 2 else self.ratio[:, None])
        return self.dissipation[:, None] * (self.weight @ self.negatives - pull * positives)


@dataclass(frozen=True)
class PrintedLoss:
    """A row of table 1 or a column of table 2.

    Attributes:
        name: as here.
        loss: as printed, of unit anchors and positives.
        parts: what the paper prints of its gradient.
        objective: the same in the registry.
    """

    name: str
    loss: Callable[[Tensor, Tensor], Tensor]
    parts: Callable[[Tensor, Tensor], PrintedComponents]
    objective: Objective

    def error(self, scale: Scale) -> float:
        """Return the largest difference between autograd and the printed components.

        It is relative to the largest gradient of a batch. What lies along h_i is left out: it
        never reaches an embedding that is normalised afterwards.
        """
        return max(self._error(kind, *shape) for kind in _REGULAR for shape in _SHAPES[scale])

    def _error(self, kind: str, n: int, d: int) -> float:
        a, b = (unit(x) for x in batch(kind, n, d))
        leaf = a.clone().requires_grad_()
        (measured,) = torch.autograd.grad(self.loss(leaf, b), leaf)
        expected = self.parts(a, b).gradient(b)
        size = float(max(measured.abs().max(), expected.abs().max()))
        return float(tangent(measured - expected, a).abs().max()) / (size or 1.0)


def proof_of(objective: Objective, scale: Scale) -> float:
    """Return the largest error between an objective's formula and its components."""
    shapes = _SHAPES[scale]
    return max(double_entry(objective, *batch(kind, *s)) for kind in BATCHES for s in shapes)


def proved(
    scale: Scale, losses: Sequence[PrintedLoss], title: str = ""
) -> tuple[Sheet, list[Ruling]]:
    """Return the components in words, the errors of both proofs, and the verdict."""
    rows, verdicts = [], []
    for loss in losses:
        error, proof = loss.error(scale), proof_of(loss.objective, scale)
        errors = [f"{error:.1g}", f"{proof:.1g} ({loss.objective.name})"]
        words = WORDS["printed"][loss.name]
        parts = [words[part] for part in ("gd", "w", "r")]
        rows.append([loss.name, *parts, *errors, words.get("differs", "-")])
        verdicts.append(
            Ruling(
                f"{loss.name}: GD, W and R as printed are the gradient of the printed loss",
                error <= EXACT and proof <= EXACT,
                f"largest error {error:.1g}, of the registry's own {proof:.1g}",
            )
        )
    header = ["loss", "GD", "W", "R", "error as printed", "in the registry", "what differs there"]
    return Sheet(header, rows, title=title), verdicts


def off(x: Tensor) -> Tensor:
    """Return the n x n mask of pairs of different rows."""
    return ~torch.eye(len(x), dtype=torch.bool)


def nearest(similarity: Tensor) -> Tensor:
    """Return n x n, 1 at each row's most similar other, else 0."""
    other = similarity.masked_fill(~off(similarity), -torch.inf)
    return torch.nn.functional.one_hot(other.argmax(dim=1), len(other)).to(similarity.dtype)


def square(a: Tensor, b: Tensor) -> Tensor:
    """Return ||h_i - h'_i||^2, n."""
    return (a - b).square().sum(dim=1)


def upper(a: Tensor, exponents: Tensor) -> Tensor:
    """Return the log of the sum over k < l of e to ``exponents``, n x n."""
    rows, columns = torch.triu_indices(len(a), len(a), 1)
    return exponents[rows, columns].logsumexp(dim=0)


def smallest(a: Tensor) -> Tensor:
    """Return min_{j != i} ||h_i - h_j||, n, with h_j constant."""
    return (torch.cdist(a, a.detach()) + 9 * torch.eye(len(a))).amin(dim=1)


def ones(a: Tensor) -> Tensor:
    """Return n ones."""
    return torch.ones(len(a), dtype=a.dtype)
