"""Computes the weighted sums of negatives in blocks, without a matrix of weights.

If only anchors have gradients, the matrix of weights is needed only for two results: the sum of
each row, and the product with the compared vectors. A block of e^{s/tau} times these vectors is the
push on the anchors of the block. The maximum of each row is subtracted, so nothing overflows. Each
direction of the batch has sweeps of its own; both find results of each other that are known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, NoReturn, cast

import torch
from torch import Tensor

from isotrope.core.rounding import exact
from isotrope.core.terms import AGAINST, Against, By
from isotrope.core.views import Views
from isotrope.kernels.mask import Mask
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.rowblock import RowBlockPairs
from isotrope.kernels.statistics import Unfused
from isotrope.kernels.tiles import chunked_topk, similarity_tiles

FLOOR = 1e-4  # smallest similarity that is raised to a power

_BY: dict[Against, By] = {"cross": "cross", "within": "anchors", "both": "both"}


@dataclass(frozen=True)
class Exponent:
    """Exponent of a weight for similarity s: s / temperature, or power * log s if power is set."""

    temperature: float = 1.0
    power: float | None = None

    def of(self, tile: Tensor) -> Tensor:
        """Turn similarities into exponents, in place; -inf (not a negative) does not change."""
        if self.power is None:
            return tile.div_(self.temperature)
        gone = tile == -torch.inf
        return tile.clamp_min_(FLOOR).log_().mul_(self.power).masked_fill_(gone, -torch.inf)


class LazyWeights:
    """Weights that replace an n x c matrix: only row sums and one product are computed.

    Allowed are: scaling by one number or by n x 1 numbers, the sum over each row, and the product
    with the columns. Any other operation would need the n x c matrix and raises ``Unfused``.
    """

    def __init__(self, push: Callable[[], Tensor], mass: Tensor, columns: int) -> None:
        self.shape = (len(mass), columns)
        self._push, self._mass = push, mass
        # float64, because an error in a factor affects the whole row; it is rounded at the end
        self._factor = exact(mass.new_ones((len(mass), 1)))

    def __len__(self) -> int:
        return self.shape[0]

    def __mul__(self, factor: float | Tensor) -> "LazyWeights":
        """Scale by a number or by n x 1 numbers."""
        scaled = LazyWeights(self._push, self._mass, self.shape[1])
        scaled._factor = self._factor * factor
        return scaled

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "LazyWeights":
        return self * (1 / divisor)

    def __matmul__(self, columns: Tensor) -> Tensor:
        return self._push() * self._factor.to(self._mass.dtype)

    def sum(self, dim: Literal[1]) -> Tensor:
        return (self._factor.squeeze(1) * self._mass).to(self._mass.dtype)

    def any(self) -> Tensor:
        return self._mass.any() or self._push().any()

    def detach(self) -> "LazyWeights":
        return self  # the sums have no autograd history

    def __getattr__(self, name: str) -> NoReturn:
        raise Unfused(f"the weights have no {name}")

    @classmethod
    def __torch_function__(cls, *asked: object) -> NoReturn:
        raise Unfused("a torch function is called with the weights, and they are not a tensor")


class Masses(NamedTuple):
    """Each anchor's sum of weights and sum of weighted negatives, both divided by e^``top``.

    ``largest`` is the similarity with the hardest negative.
    """

    largest: Tensor
    top: Tensor
    mass: Tensor
    push: Tensor


class SurrogatePairs(Pairs):
    """Statistics of one direction, and weights of the push on its anchors, without gradients.

    Args:
        plain: Object that supplies the statistics of this direction that no sweep computes. The
            results of sweeps are stored in ``plain.shared``.
    """

    def __init__(self, plain: RowBlockPairs) -> None:
        super().__init__(plain.views.detached())
        self.plain, self.backend = plain, plain.backend

    def of(self, views: Views) -> Pairs:
        return self.plain.of(views)

    def swapped(self) -> "SurrogatePairs":
        return SurrogatePairs(self.plain.swapped())

    def shares(self, by: By, exponent: Exponent, *, whole: bool = False) -> Tensor:
        """Return weights proportional to e^exponent that sum to 1 for each anchor.

        Args:
            by: Which similarities decide the weights, as in ``isotrope.paradigm.parts.Weight``.
            exponent: Exponent of the weights.
            whole: Whether the weights sum to 1 over the whole batch instead of for each anchor.
        """
        _, top, mass, push = self._masses(by, exponent)
        total, scale = exact(mass), exact(torch.ones_like(top))
        if whole:
            highest = top.amax()
            scale = exact(top - highest.masked_fill(highest == -torch.inf, 0.0)).exp()
            total = (scale * total).sum()
        scale = scale / total.where(total != 0, 1.0)
        return self._weights(AGAINST[by], lambda: push, mass) * scale[:, None]

    def single(self, by: By, at: Tensor, weight: Tensor) -> Tensor:
        """Return weights that are 0 except for one negative of each anchor, such as the hardest.

        Args:
            by: Similarities by which this negative was chosen, as for :meth:`shares`.
            at: Column of this negative, n values; -1 for an anchor without one.
            weight: Weight of this negative, n values.
        """
        weight = weight.masked_fill(at < 0, 0.0)
        column = self.columns(AGAINST[by])[at.clamp_min(0)]
        return self._weights(AGAINST[by], lambda: weight[:, None] * column, weight)

    def products(self, against: Against, rows: Tensor, *compared: Tensor) -> Tensor:
        """Return weights W_ij = rows_i.x_j (W_ii = 0) without forming an n x n matrix.

        Their product with the columns takes 4 n d^2 operations for each view in ``against``.

        Args:
            against: Views from which the columns come: ``cross``, ``within`` or ``both``.
            rows: The vectors rows_i, n x d.
            compared: The vectors x_j, n x d for each view in ``against``.
        """
        met = list(zip(compared, Mask(self.views, against).columns, strict=True))
        squares = [(rows * x).sum(dim=1, keepdim=True) for x in compared]

        def push() -> Tensor:
            pushed = torch.zeros_like(rows)
            for (x, columns), itself in zip(met, squares, strict=True):
                pushed += rows @ (x.T @ columns) - itself * columns
            return pushed

        mass = rows @ torch.stack([x.sum(dim=0) for x in compared]).sum(dim=0)
        return self._weights(against, push, mass - torch.cat(squares, dim=1).sum(dim=1))

    def _weights(self, against: Against, push: Callable[[], Tensor], mass: Tensor) -> Tensor:
        """Return lazy weights, with the type of the matrix that they replace."""
        width = sum(len(x) for x in Mask(self.views, against).columns)
        return cast("Tensor", LazyWeights(push, mass, width))

    def first(self, by: By) -> tuple[Tensor, Tensor]:
        """Return the columns of the anchors' hardest negatives, and the similarities with these.

        Ties go to the first column. The column is -1 for an anchor without negatives.
        """
        key = (self.plain.direction, by, None)
        if key not in self.plain.shared:
            largest = [chunked_topk(tile, 1) for _, tile in similarity_tiles(self._compared(by))]
            top, at = (torch.cat(x).squeeze(1) for x in zip(*largest, strict=True))
            self.plain.shared[key] = at, top
        return cast("tuple[Tensor, Tensor]", self.plain.shared[key])

    def _masses(self, by: By, exponent: Exponent) -> Masses:
        """Return the :class:`Masses` of each anchor's unnormalised weights."""
        key = (self.plain.direction, by, exponent)
        if key not in self.plain.shared:
            columns, masses = self.columns(AGAINST[by]), []
            for _, tile in similarity_tiles(self._compared(by)):
                largest = tile.amax(dim=1)
                top = exponent.of(largest.clone())
                exponent.of(tile).sub_(top.masked_fill(top == -torch.inf, 0.0)[:, None]).exp_()
                masses.append(Masses(largest, top, tile.sum(dim=1), tile @ columns))
            self.plain.shared[key] = Masses(*(torch.cat(x) for x in zip(*masses, strict=True)))
        return cast("Masses", self.plain.shared[key])

    def _compared(self, by: By) -> Mask:
        """The similarities on which weights depend."""
        views = self.views.among_positives() if by == "positives" else self.views
        return Mask(views, AGAINST[by])

    def hardest(self, against: Against = "cross") -> Tensor:
        for (direction, by, exponent), known in self.plain.shared.items():
            if exponent is not None and (direction, by) == (self.plain.direction, _BY[against]):
                return cast("Masses", known).largest
        return self.first(_BY[against])[1]

    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor:
        key = (self.plain.direction, _BY[against], Exponent(float(temperature)))
        if key in self.plain.shared:  # a weight has the same temperature
            _, top, mass, _ = cast("Masses", self.plain.shared[key])
            return top + mass.log()
        return self.plain.logsumexp(temperature, against).detach()

    def _softplus(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self.plain.softplus(temperature, against).detach()

    def count(self, against: Against = "cross") -> Tensor:
        return self.plain.count(against)

    def nearest(self, k: int, against: Against = "cross") -> Tensor:
        return self.plain.nearest(k, against)
