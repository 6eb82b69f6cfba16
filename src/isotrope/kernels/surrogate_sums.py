"""Computes the row sums and the push of a matrix of weights in linear memory, for surrogate losses.

A surrogate loss is defined by the components of its gradient (``paradigm.surrogate``). As only
anchors have gradients, the matrix of weights is needed only for two results: the sum of each row,
and the product with the compared vectors (the push). ``SurrogateSums`` computes both by blocks.
``SurrogatePairs`` takes the place of the backend ``rowblock`` in ``paradigm.parts``, whose weights
are then ``LazyWeights``.

One block of e^{s/tau} serves both directions. In the first direction, the block times the positives
is the push on the anchors. In the second direction, the positives are the anchors, and the
transposed block times the first view is the push on them. At the end, the pushes are divided by the
row sums.

If e^{s/tau} could overflow float32, or positives were gathered from other processes, each direction
has a sweep of its own, which subtracts the maximum of each row.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, NoReturn, cast

import torch
from torch import Tensor

from isotrope.core.rounding import exact
from isotrope.core.terms import AGAINST, Against, By
from isotrope.core.views import Views
from isotrope.kernels.negative_mask import NegativeMask
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.statistics import Unfused
from isotrope.kernels.tiles import Tiles, Vectors, add_product, chunked_topk, similarity_tiles

_MOST = 256  # rows of a block; half of each block on the diagonal of a triangle is wasted
REACH = 60.0  # exponents up to 60 need no shift: e^60 n^2 and e^-60 fit float32
FLOOR = 1e-4  # smallest similarity that is raised to a power

_BY: dict[Against, By] = {"cross": "cross", "within": "anchors", "both": "both"}

# parts of the columns: the other view, the same view, the additional negatives
Part = Literal["cross", "within", "additional"]


@dataclass(frozen=True)
class Exponent:
    """Exponent of a weight for similarity s: s / temperature, or power * log s if power is set."""

    temperature: float = 1.0
    power: float | None = None

    @property
    def reach(self) -> float:
        """The largest absolute value of the exponent."""
        return 1 / self.temperature if self.power is None else -math.log(FLOOR) * self.power

    def of(self, tile: Tensor) -> Tensor:
        """Turn similarities into exponents, in place; -inf (not a negative) does not change."""
        if self.power is None:
            return tile.div_(self.temperature)
        gone = tile == -torch.inf
        return tile.clamp_min_(FLOOR).log_().mul_(self.power).masked_fill_(gone, -torch.inf)


class Masses(NamedTuple):
    """Each anchor's sum of weights and sum of weighted negatives, both divided by e^``top``."""

    top: Tensor
    mass: Tensor
    push: Tensor


class HardestNegatives(NamedTuple):
    """Each anchor's hardest negative; at ties, the one with the first column."""

    column: Tensor  # n integers; -1 for an anchor without negatives
    similarity: Tensor  # n values; -inf for an anchor without negatives


class _Block(NamedTuple):
    """Similarities of some rows of a view, -inf where a column is not a negative."""

    tile: Tensor  # B x c similarities
    view: int  # view that the rows come from, 0 or 1
    rows: slice
    pushing_rows: Tensor  # vectors that push the rows, c x d
    # the last columns of the tile serve as anchors too, unless they are additional negatives
    other_view: int
    others: slice
    pushing_others: Tensor  # vectors that push these other anchors, B x d


class SurrogateSums:
    """Sums over the compared vectors, in both directions of a batch, by blocks in linear memory.

    In direction 0, the anchors are the first view; in direction 1, they are the second view. Each
    sum is computed when it is first used, and kept.

    Args:
        views: Unit views of direction 0, detached.
    """

    def __init__(self, views: Views) -> None:
        self.views = views
        self._is_square = len(views.anchors) == len(views.positives)
        # two tensors, one for each view, by name, part of the columns and settings
        self._swept: dict[tuple[object, ...], list[Tensor]] = {}
        self._one_way_masses: dict[tuple[int, By, Exponent], Masses] = {}
        self._hardest_negatives: dict[tuple[int, By], HardestNegatives] = {}

    @cached_property
    def positive(self) -> Tensor:
        """Similarities of the n positive pairs; both directions use them."""
        return (self.views.anchors * self.views.own).sum(dim=1)

    def masses(self, direction: int, by: By, exponent: Exponent) -> Masses:
        """Return :class:`Masses` of each anchor's unnormalised weights, in direction 0 or 1."""
        if self._shares_blocks(exponent):
            push = self._added("push", direction, by, exponent)  # this also computes the sums
            mass = self._added("mass", direction, by, exponent)
            return Masses(torch.zeros_like(mass), mass, push)
        key = (direction, by, exponent)
        if key not in self._one_way_masses:
            self._one_way_masses[key] = self._one_way(direction, by, exponent)
        return self._one_way_masses[key]

    def logsumexp(self, direction: int, by: By, exponent: Exponent) -> Tensor | None:
        """Return each anchor's log-sum-exp over negatives; None if no sweep has computed it yet."""
        if self._shares_blocks(exponent):
            return self._added("mass", direction, by, exponent).log()
        if (direction, by, exponent) in self._one_way_masses:
            top, mass, _ = self.masses(direction, by, exponent)
            return top + mass.log()
        return None

    def hardest(self, direction: int, by: By) -> Tensor | None:
        """Return each anchor's similarity to its hardest negative; None without a sweep for it."""
        if (direction, by) in self._hardest_negatives:
            return self.hardest_negatives(direction, by).similarity
        if not self._is_square:
            return None
        none = self.views.anchors.new_full((len(self.views.anchors),), -torch.inf)
        parts = [self._statistic("hardest", part)[direction] for part in self._parts(by)]
        return torch.stack([none, *parts]).amax(dim=0)

    def hardest_negatives(self, direction: int, by: By) -> HardestNegatives:
        """Return the hardest negatives of a direction's anchors."""
        if (direction, by) not in self._hardest_negatives:
            mask = NegativeMask(self._compared(direction, by), AGAINST[by])
            largest = [chunked_topk(tile, 1) for tile in similarity_tiles(mask)]
            similarity, column = (torch.cat(x).squeeze(1) for x in zip(*largest, strict=True))
            self._hardest_negatives[direction, by] = HardestNegatives(column, similarity)
        return self._hardest_negatives[direction, by]

    def _shares_blocks(self, exponent: Exponent) -> bool:
        """Whether both directions can share blocks of e^exponent."""
        return self._is_square and exponent.reach <= REACH

    def _parts(self, by: By) -> list[Part]:
        """The parts of the columns that are compared."""
        parts: list[Part] = []
        if self.views.in_batch:
            parts += ["cross"] * (by in ("cross", "both"))
            parts += ["within"] * (by != "cross")
        more = self.views.negatives
        return parts if more is None or len(more) == 0 else [*parts, "additional"]

    def _added(
        self, name: Literal["mass", "push"], direction: int, by: By, exponent: Exponent
    ) -> Tensor:
        """The sum over all columns for each anchor."""
        crossed = by == "positives"  # the other view is compared, the own view pushes
        pushing = crossed if name == "push" else None
        sums = [self._statistic(name, part, exponent, pushing) for part in self._parts(by)]
        if sums:
            first, *others = (of_views[direction ^ crossed] for of_views in sums)
            return sum(others, first)
        return torch.zeros_like(self.views.anchors if name == "push" else self.views.anchors[:, 0])

    def _statistic(
        self,
        name: Literal["hardest", "mass", "push"],
        part: Part,
        exponent: Exponent | None = None,
        crossed: bool | None = None,
    ) -> list[Tensor]:
        """A statistic of the rows of both views, from a sweep if no earlier one computed it."""
        key = {
            "hardest": ("hardest", part),
            "mass": ("mass", part, exponent),
            "push": ("push", part, exponent, crossed),
        }[name]
        if key not in self._swept:
            self._sweep(part, exponent, crossed)
        return self._swept[key]

    def _sweep(self, part: Part, exponent: Exponent | None, crossed: bool | None) -> None:
        """Compare both views with a part of their columns, and keep the statistics."""
        # without an exponent there are no sums, and without ``crossed`` there is no push
        like, n = self.views.anchors, len(self.views.anchors)
        hardest = [like.new_full((n,), -torch.inf) for _ in range(2)]
        mass = [like.new_zeros(n) for _ in range(2)]
        push = [torch.zeros_like(like) for _ in range(0 if crossed is None else 2)]
        for block in self._blocks(part, crossed=bool(crossed)):
            tile, other, others = block.tile, block.other_view, block.others
            end = tile[:, tile.shape[1] - (others.stop - others.start) :]
            top = hardest[block.view][block.rows]
            torch.maximum(top, tile.amax(dim=1), out=top)
            if end.shape[1]:
                top = hardest[other][others]
                torch.maximum(top, end.amax(dim=0), out=top)
            if exponent is None:
                continue
            exponent.of(tile).exp_()
            mass[block.view][block.rows] += tile.sum(dim=1)
            mass[other][others] += end.sum(dim=0)
            if push:
                add_product(push[block.view][block.rows], tile.T, block.pushing_rows)
                if end.shape[1]:
                    add_product(push[other][others], end, block.pushing_others)
        self._swept["hardest", part] = hardest
        if exponent is not None:
            self._swept["mass", part, exponent] = mass
        if push:
            self._swept["push", part, exponent, crossed] = push

    def _blocks(self, part: Part, *, crossed: bool) -> Iterator[_Block]:
        views = self.views
        both = [views.anchors, views.positives]
        tiles = Tiles(_MOST)
        if part == "cross":
            anchors, positives = (Vectors(x, unit=True) for x in both)
            mask = NegativeMask(replace(views, negatives=None), "cross")
            for rows, unit, tile in tiles.of(anchors, [positives], mask):
                yield _Block(tile, 0, rows, both[1], 1, slice(0, len(both[1])), unit)
            return
        for view, h in enumerate(both):
            moved, vectors = both[1 - view] if crossed else h, Vectors(h, unit=True)
            if part == "additional" and views.negatives is not None:
                additional, nobody = Vectors(views.negatives, unit=True), slice(0, 0)
                for rows, _, tile in tiles.of(vectors, [additional], None):
                    yield _Block(tile, view, rows, views.negatives, view, nobody, moved[rows])
                continue
            mask = NegativeMask(replace(views, negatives=None), "within")
            for rows, _, tile in tiles.of(vectors, [vectors], mask, triangle=True):
                others = slice(rows.stop, len(h))
                yield _Block(tile, view, rows, moved[rows.start :], view, others, moved[rows])

    def _one_way(self, direction: int, by: By, exponent: Exponent) -> Masses:
        """Compare a direction's anchors with all columns, subtracting each row's maximum."""
        against = AGAINST[by]
        columns = NegativeMask(self._of_direction(direction), against).columns
        masses = []
        for tile in similarity_tiles(NegativeMask(self._compared(direction, by), against)):
            top = exponent.of(tile).amax(dim=1)
            tile.sub_(top.masked_fill(top == -torch.inf, 0.0)[:, None]).exp_()
            push = torch.zeros_like(self.views.anchors[: len(tile)])
            at = 0
            for x in columns:
                push += tile[:, at : at + len(x)] @ x
                at += len(x)
            masses.append(Masses(top, tile.sum(dim=1), push))
        return Masses(*(torch.cat(x) for x in zip(*masses, strict=True)))

    def _of_direction(self, direction: int) -> Views:
        return self.views.swapped() if direction else self.views

    def _compared(self, direction: int, by: By) -> Views:
        """The views whose similarities are used; their ``anchors`` are the rows."""
        views = self._of_direction(direction)
        return views.among_positives() if by == "positives" else views


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


class SurrogatePairs(Pairs):
    """Statistics of one direction, and weights of the push on its anchors, without gradients.

    Args:
        plain: Object that supplies the statistics of this direction that no sweep computes.
        sums: Sums that both directions share.
        direction: 0 if the first view of the batch has the anchors, 1 if the second view has them.
    """

    def __init__(self, plain: Pairs, sums: SurrogateSums, direction: int = 0) -> None:
        super().__init__(plain.views.detached())
        self.plain, self.sums, self.direction, self.backend = plain, sums, direction, plain.backend

    def of(self, views: Views) -> Pairs:
        return self.plain.of(views)

    def swapped(self) -> "SurrogatePairs":
        return SurrogatePairs(self.plain.swapped(), self.sums, 1 - self.direction)

    def shares(self, by: By, exponent: Exponent, *, whole: bool = False) -> Tensor:
        """Return weights proportional to e^exponent that sum to 1 for each anchor.

        Args:
            by: Which similarities decide the weights, as in ``isotrope.paradigm.parts.Weight``.
            exponent: Exponent of the weights.
            whole: Whether the weights sum to 1 over the whole batch instead of for each anchor.
        """
        top, mass, push = self.sums.masses(self.direction, by, exponent)
        total, scale = exact(mass), exact(torch.ones_like(top))
        if whole:
            highest = top.amax()
            scale = exact(top - highest.masked_fill(highest == -torch.inf, 0.0)).exp()
            total = (scale * total).sum()
        scale = scale / total.where(total != 0, 1.0)
        return self._weights(AGAINST[by], lambda: push, mass) * scale[:, None]

    def single(self, by: By, column: Tensor, weight: Tensor) -> Tensor:
        """Return weights that are 0 except for one negative of each anchor, such as the hardest.

        Args:
            by: Similarities by which this negative was chosen, as for :meth:`shares`.
            column: Column of this negative, n values; -1 for an anchor without one.
            weight: Weight of this negative, n values.
        """
        weight = weight.masked_fill(column < 0, 0.0)
        negatives = self.columns(AGAINST[by])[column.clamp_min(0)]
        return self._weights(AGAINST[by], lambda: weight[:, None] * negatives, weight)

    def products(self, against: Against, rows: Tensor, *compared: Tensor) -> Tensor:
        """Return weights W_ij = rows_i.x_j (W_ii = 0) without forming an n x n matrix.

        Their product with the columns takes 4 n d^2 operations for each view in ``against``.

        Args:
            against: Views from which the columns come: ``cross``, ``within`` or ``both``.
            rows: The vectors rows_i, n x d.
            compared: The vectors x_j, n x d for each view in ``against``.
        """
        pairs = list(zip(compared, NegativeMask(self.views, against).columns, strict=True))
        squares = [(rows * x).sum(dim=1, keepdim=True) for x in compared]

        def push() -> Tensor:
            pushed = torch.zeros_like(rows)
            for (x, columns), itself in zip(pairs, squares, strict=True):
                pushed += rows @ (x.T @ columns) - itself * columns
            return pushed

        mass = rows @ torch.stack([x.sum(dim=0) for x in compared]).sum(dim=0)
        return self._weights(against, push, mass - torch.cat(squares, dim=1).sum(dim=1))

    def _weights(self, against: Against, push: Callable[[], Tensor], mass: Tensor) -> Tensor:
        """Return lazy weights, with the type of the matrix that they replace."""
        width = sum(len(x) for x in NegativeMask(self.views, against).columns)
        return cast("Tensor", LazyWeights(push, mass, width))

    @property
    def positive(self) -> Tensor:
        return self.sums.positive

    def hardest_negatives(self, by: By) -> HardestNegatives:
        """Return each anchor's hardest negative, by the similarities that ``by`` names."""
        return self.sums.hardest_negatives(self.direction, by)

    def hardest(self, against: Against = "cross") -> Tensor:
        hardest = self.sums.hardest(self.direction, _BY[against])
        return self.plain.hardest(against).detach() if hardest is None else hardest

    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor:
        value = self.sums.logsumexp(self.direction, _BY[against], Exponent(float(temperature)))
        return self.plain.logsumexp(temperature, against).detach() if value is None else value

    def _softplus(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self.plain.softplus(temperature, against).detach()

    def count(self, against: Against = "cross") -> Tensor:
        return self.plain.count(against)

    def nearest(self, k: int, against: Against = "cross") -> Tensor:
        return self.plain.nearest(k, against)
