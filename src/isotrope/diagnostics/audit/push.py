"""Computes how strongly the rows of a training file would push each other: the *ledger*.

An objective pushes an anchor i away from a negative j with the force GD_i W_ij, which is gradient
dissipation times weight. For two rows a and b, b's positive pushes a's anchor, and b's anchor
pushes a's positive. The ledger stores the geometric mean of these two forces: the push of b on a.
The *reciprocal push* of a and b is the geometric mean of the push of b on a and of a on b.

The push on an anchor depends on the rows with which the anchor is compared. An anchor is compared
with more rows than a batch has, because this ranks false negatives better. Among up to 30,000 rows,
each pair is compared once, in random blocks of up to 8,192. With more rows, a row is compared with
its nearest rows and with 4,096 random rows, so the time is proportional to the number of rows. The
ledger keeps only the *partners* of each row: the rows that push it most.

If the ``coupling`` of an objective is not "none", the push on an anchor depends on other anchors.
Then all pairs are compared; each batch consists of two blocks of rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.progress import bar
from isotrope.core.terms import Against
from isotrope.core.views import Views, unit
from isotrope.data.order import Order
from isotrope.diagnostics.audit.neighbours import NEAREST, Near, compares_all, near_rows, nearest
from isotrope.diagnostics.audit.rows import Embedded
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.negative_mask import NegativeMask
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.tiles import chunked_topk
from isotrope.paradigm.objective import Objective

_ANCHORS, _COLUMNS = 512, 8192  # anchors in a block, and rows that they are compared with
_SQUARE = 1024  # rows in each of the two blocks of a square batch
_DRAWN = 4096  # random rows to compare with
_AGAIN = 0.03  # push from which a nearest row is compared once more, without the others


@dataclass(frozen=True)
class Ledger:
    """The partners of each row (the rows that push it most), and how strongly they push.

    A partner pushes the anchor and the positive of a row. Both forces are divided by ``unit``.

    Attributes:
        partners: Numbers of k partners of each row, the strongest first, int64 (n x k); -1: none.
        push: Geometric mean of a partner's two forces, n x k. Partners are sorted by this mean.
        force: Arithmetic mean of a partner's two forces, n x k. Shares are computed from it.
        row_force: Sum of ``force`` over all rows with which a row was compared, n values.
        unit: Mean over the anchors of the sum of an anchor's weights. InfoNCE: 1/temperature.
    """

    partners: NDArray[np.int64]
    push: NDArray[np.floating[Any]]
    force: NDArray[np.floating[Any]]
    row_force: NDArray[np.float64]
    unit: float


@torch.no_grad()
def ledger(
    embedded: Embedded, objective: Objective, near: Near | None, *, keep: int = 16, seed: int = 0
) -> Ledger:
    """Compare pairs of rows, and return the ``keep`` strongest partners of each row.

    ``near`` holds at least ``keep`` nearest rows of each row, or is None to compute them.
    """
    keep = min(keep, len(embedded) - 1)
    separable = _separable(embedded, objective)
    if compares_all(embedded) or not separable:
        return _of_all_pairs(embedded, objective, keep, seed, separable=separable)
    near = near or nearest(embedded, max(NEAREST, keep), seed=seed)
    return _of_near_rows(embedded, objective, _likely_partners(embedded, near, keep), seed)


def mutual_push(
    book: Ledger, pairs: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two arrays: each pair's reciprocal push, and its share of the force of all pairs.

    The reciprocal push is 0 if one row of the pair is not a partner of the other row.
    """
    n = len(book.partners)
    keys = np.where(book.partners < 0, -1, np.arange(n)[:, None] * n + book.partners).ravel()
    order = np.argsort(keys)
    product, force = np.ones(len(pairs)), np.zeros(len(pairs))
    for pushed, partner in (pairs.T, pairs.T[::-1]):
        wanted = pushed * n + partner
        place = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
        is_partner = keys[place] == wanted
        product *= np.where(is_partner, book.push.ravel()[place], 0)
        force += np.where(is_partner, book.force.ravel()[place], 0)
    return np.sqrt(product), force / max(float(book.row_force.sum()), 1e-300)


def mine_negatives(
    book: Ledger, groups: NDArray[np.int64], marks: NDArray[np.uint64], count: int, hardness: float
) -> NDArray[np.int64]:
    """Return up to ``count`` hard negatives of each row: the other rows that push it most.

    Rows that cause more than the share ``hardness`` of the push on the anchor are not used, because
    they are often false negatives. Rows of the anchor's group are not used either, nor rows whose
    positive is a positive of the anchor, or is one of its negatives already. ``marks`` has the
    hashes of anchors and positives (n x 2).

    Returns:
        Numbers of two rows, m x 2: of the anchor, and of the row whose positive is the negative;
        the negatives of a row from hardest to easiest.
    """
    partners = book.partners
    share = book.force / np.maximum(book.row_force, 1e-300)[:, None]
    usable = (partners >= 0) & (share <= hardness) & (groups[partners] != groups[:, None])
    anchor, positive = (np.unique(side, return_inverse=True)[1] for side in marks.T)
    texts = positive[partners]
    known = np.unique(anchor * len(marks) + positive)
    usable &= ~np.isin(anchor[:, None] * len(marks) + texts, known)
    for place in range(1, partners.shape[1]):
        earlier = usable[:, :place] & (texts[:, :place] == texts[:, place, None])
        usable[:, place] &= ~earlier.any(axis=1)
    taken = np.nonzero(usable & (np.cumsum(usable, axis=1) <= count))
    return np.stack([taken[0], partners[taken]], axis=1)


def _separable(embedded: Embedded, objective: Objective) -> bool:
    """Whether an anchor's push can be computed without that of the rows it is compared with."""
    if objective.coupling != "none":
        return False
    rows = torch.arange(min(4, len(embedded)))
    return objective.components(objective.compare(embedded.batch(rows))).against == "cross"


def _of_all_pairs(
    embedded: Embedded, objective: Objective, keep: int, seed: int, *, separable: bool
) -> Ledger:
    """Return the ledger of rows that are compared with all other rows."""
    n = len(embedded)
    partners = torch.full((n, keep), -1)
    push, force = embedded.anchors.new_zeros(2, n, keep)
    row_force, mass, met = torch.zeros(n, dtype=torch.float64), 0.0, 0
    order = torch.from_numpy(Order(n, seed, 0)[np.arange(n)])
    # without groups, comparing them would cost a fifth
    grouped = embedded.texts is not None or len(embedded.groups.unique()) < n
    with bar(n * n, "push", "pairs") as advance:
        for rows, columns, new in _rectangles(order) if separable else _squares(order):
            both = _directions(embedded, rows, columns, grouped=grouped)
            compared: list[Pairs] = [objective.compare(views) for views in both]
            if embedded.texts is not None:
                same = embedded.same(rows, columns)
                compared = [_WithoutSame(pairs.views, same) for pairs in compared]
            forces = _forces(objective, compared)
            mass, met = mass + forces.mass, met + len(rows)
            strength, mean = forces.geometric_mean(), forces.mean()
            if not bool(new.all()):
                strength.masked_fill_(~new, 0.0)
                mean.masked_fill_(~new, 0.0)
            row_force.index_add_(0, rows, mean.sum(dim=1, dtype=torch.float64))
            best, places = chunked_topk(strength, min(keep, len(columns)))
            places = places.clamp_min(0)
            merged = torch.cat([push[rows], best], dim=1).topk(keep, dim=1)
            push[rows] = merged.values
            others = columns[places].masked_fill(best <= 0, -1)
            for so_far, of_best in ((partners, others), (force, mean.gather(1, places))):
                candidates = torch.cat([so_far[rows], of_best], dim=1)
                so_far[rows] = candidates.gather(1, merged.indices)
            advance(int(new.expand(len(rows), -1).sum()))
    return _book(partners, push, force, row_force, mass / met)


def _book(partners: Tensor, push: Tensor, force: Tensor, row_force: Tensor, unit: float) -> Ledger:
    unit = unit or 1.0
    push, force, row_force = push / unit, force / unit, row_force / unit
    return Ledger(partners.numpy(), push.numpy(), force.numpy(), row_force.numpy(), unit)


def _rectangles(order: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield anchors, rows to compare them with (their own first), and which pairs are new."""
    for rows in order.tensor_split(-(-len(order) // _ANCHORS)):
        others = order[~torch.isin(order, rows)]
        parts = others.tensor_split(max(1, -(-len(others) // (_COLUMNS - len(rows)))))
        for number, part in enumerate(parts):
            columns = torch.cat([rows, part])
            new = torch.ones(len(columns), dtype=torch.bool)
            new[: len(rows)] = number == 0
            yield rows, columns, new


def _squares(order: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield rows, columns and which pairs are new: each block alone, and each two blocks joined."""
    blocks = order.tensor_split(-(-len(order) // _SQUARE))
    for number, block in enumerate(blocks):
        yield block, block, torch.ones(len(block), len(block), dtype=torch.bool)
        for other in blocks[number + 1 :]:
            rows = torch.cat([block, other])
            is_first = torch.arange(len(rows)) < len(block)
            yield rows, rows, is_first[:, None] != is_first


def _directions(embedded: Embedded, rows: Tensor, columns: Tensor, *, grouped: bool) -> list[Views]:
    """Return two ``Views``: anchors with their positives, and the other way round."""
    a, p = embedded.anchors, embedded.positives
    groups = embedded.groups[columns] if grouped else None
    return [Views(a[rows], p[columns], groups=groups), Views(p[rows], a[columns], groups=groups)]


@dataclass(frozen=True)
class _RowForces:
    """The forces GD_i W_ij of c rows on n rows, n x c, in both directions.

    ``mass`` is the sum of all weights W_ij, as a mean over both directions.
    """

    on_anchors: Tensor
    on_positives: Tensor
    mass: float

    def geometric_mean(self) -> Tensor:
        return (self.on_anchors * self.on_positives).sqrt_()

    def mean(self) -> Tensor:
        return (self.on_anchors + self.on_positives).div_(2)

    def last(self, k: int) -> "_RowForces":
        return _RowForces(self.on_anchors[:, -k:], self.on_positives[:, -k:], self.mass)

    def alone(self) -> Tensor:
        """Estimate each row's push if the other rows were not in the softmax's denominator."""
        pushes = torch.ones_like(self.on_anchors)
        for force in (self.on_anchors, self.on_positives):
            rest = (self.mass / len(force) - force.sum(dim=1, keepdim=True)).clamp_min(0)
            pushes *= force / (rest + force).clamp_min(1e-12)
        return pushes.sqrt_()


def _forces(objective: Objective, compared: Iterable[Pairs]) -> _RowForces:
    """Return the forces in the pairs of both ``_directions``; ``mass`` is a mean over both."""
    forces, mass = [], 0.0
    for pairs in compared:
        terms = objective.components(pairs)
        weight = terms.weight.clamp_min(0)
        if terms.against == "both":
            width = len(pairs.views.positives)
            weight = weight[:, :width] + weight[:, width:]
        forces.append(terms.dissipation[:, None] * weight)
        mass += float(weight.sum(dim=1).sum())
    on_anchors, on_positives = forces
    return _RowForces(on_anchors, on_positives, mass / 2)


class _WithoutSame(EagerPairs):
    """Pairs without the negatives in ``same``, booleans for n anchors and at least n positives."""

    def __init__(self, views: Views, same: Tensor) -> None:
        super().__init__(views)
        self._same = same

    def of(self, views: Views) -> "_WithoutSame":
        return _WithoutSame(views, self._same)

    def swapped(self) -> "_WithoutSame":
        return self.of(self.views.swapped())

    def _excluded(self, against: Against) -> Tensor:
        if against not in self._masks:
            sources = [self._same[:, : len(x)] for x in NegativeMask(self.views, against).columns]
            self._masks[against] = super()._excluded(against) | torch.cat(sources, dim=1)
        return self._masks[against]


def _likely_partners(embedded: Embedded, near: Near, keep: int) -> Tensor:
    """Return the rows that are likely to push each row most, n x keep; -1 for none."""
    # These are nearest by the cosine of either row's anchor with the other's positive, summed over
    # both rows. The push of two rows on each other grows with this sum.
    partners = torch.full((len(embedded), keep), -1)
    for rows, others, (_, _, to_positive, to_anchor) in near_rows(embedded, near):
        best = (to_positive + to_anchor).topk(min(keep, others.shape[1]), dim=1).indices
        partners[rows, : best.shape[1]] = others.gather(1, best)
    return partners


def _of_near_rows(embedded: Embedded, objective: Objective, near: Tensor, seed: int) -> Ledger:
    """Return the ledger of rows that are compared with their nearest rows and with random rows."""
    # All nearest rows of a row share the push on it, while a training batch has few of them. A
    # nearest row whose push would be ``_AGAIN`` or more without the others is therefore compared
    # once more, in a batch without them.
    n, keep = near.shape
    push, force = embedded.anchors.new_zeros(2, n, keep)
    row_force, mass = torch.zeros(n, dtype=torch.float64), 0.0
    is_strong = torch.zeros(n, keep, dtype=torch.bool)
    draw = torch.Generator().manual_seed(seed)
    order = torch.from_numpy(Order(n, seed, 0)[np.arange(n)])
    with bar(n, "push", "rows") as advance:
        for rows in order.split(max(1, _COLUMNS // keep)):
            forces = _sample(embedded, objective, rows, near[rows], _DRAWN, draw)
            of_near, mean = forces.last(keep), forces.mean()
            push[rows], force[rows] = of_near.geometric_mean(), mean[:, -keep:]
            row_force[rows] = mean.sum(dim=1, dtype=torch.float64)
            is_strong[rows] = of_near.alone() >= _AGAIN
            mass += forces.mass
            advance(len(rows))
    again = is_strong.nonzero()
    again = again[torch.randperm(len(again), generator=draw)]
    with bar(len(again), "push of one", "pairs") as advance:
        for piece in again.split(_ANCHORS) if len(again) else ():
            rows, slots = piece.unbind(dim=1)
            given = near[rows, slots][:, None]
            forces = _sample(embedded, objective, rows, given, _COLUMNS - len(rows), draw).last(1)
            push[rows, slots] = forces.geometric_mean().squeeze(1)
            force[rows, slots] = forces.mean().squeeze(1)
            advance(len(rows))
    push, places = push.sort(dim=1, descending=True, stable=True)
    partners = near.gather(1, places).masked_fill_(push <= 0, -1)
    return _book(partners, push, force.gather(1, places), row_force, mass / n)


def _sample(
    embedded: Embedded,
    objective: Objective,
    rows: Tensor,
    given: Tensor,
    count: int,
    draw: torch.Generator,
) -> _RowForces:
    """Return the forces on n rows: of each other, of ``count`` random rows, of k ``given`` rows.

    A row may occur several times. ``given`` is n x k (-1: no row); its forces are the last k.
    """
    k = given.shape[1]
    drawn = torch.randint(len(embedded), (count,), generator=draw).unique()
    columns = torch.cat([rows, drawn[~torch.isin(drawn, rows)]])
    excluded = _excluded(embedded, rows, columns, given)
    compared = []
    both = _directions(embedded, rows, columns, grouped=True)
    for views, others in zip(both, (embedded.positives, embedded.anchors), strict=True):
        # k columns, whose similarities ``_WithGiven`` replaces by those of the given rows
        pairs = objective.compare(replace(views, negatives=others[:k]), "eager")
        to_given = torch.einsum("nd,nkd->nk", pairs.views.anchors, unit(others[given]))
        pairs = _WithGiven(pairs, to_given.masked_fill_(given < 0, -torch.inf))
        pairs.similarity()[:, : len(columns)].masked_fill_(excluded, -torch.inf)
        compared.append(pairs)
    return _forces(objective, compared)


def _excluded(embedded: Embedded, rows: Tensor, columns: Tensor, given: Tensor) -> Tensor:
    """Return which columns a row does not meet: given rows, repeated rows and rows of its texts."""
    excluded = (given[:, :, None] == columns).any(dim=1)
    is_repeated = torch.ones(len(rows), dtype=torch.bool)
    is_repeated[torch.from_numpy(np.unique(rows, return_index=True)[1])] = False
    excluded[:, : len(rows)] |= is_repeated & ~torch.eye(len(rows), dtype=torch.bool)
    if embedded.texts is not None:
        excluded |= embedded.same(rows, columns) & (rows[:, None] != columns)
    return excluded


class _WithGiven(EagerPairs):
    """Pairs with other additional negatives for each anchor, given by n x k similarities."""

    def __init__(self, pairs: Pairs, to_given: Tensor) -> None:
        super().__init__(pairs.views)
        shared = pairs.views.anchors @ pairs.views.positives.T
        self._matrices["cross", False] = torch.cat([shared, to_given], dim=1)

    def nearest(self, k: int, against: Against = "cross") -> Tensor:
        # for objectives that mix vectors, which the given rows do not have here
        return EagerPairs(replace(self.views, negatives=None)).nearest(k, against)
