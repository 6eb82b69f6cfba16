"""Tables of the similarities that a loss has computed between anchors and their candidates.

Candidates are the vectors that an anchor is compared with. A table (``Compared``) says for each
pair whether the loss pulls it together or pushes it apart. ``joined`` merges tables that share a
softmax, such as a table of positives and a table of negatives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BALANCED = 0.02  # relative difference allowed between pull and push of a row of a softmax
_SLIGHT = 0.1  # share of the largest pull of a row below which a pull is not counted
_ROUNDING = 1e-6  # share of the largest gradient of a row; below it, the sign is rounding
_LEAST_PAIRS = 4
_SURE = 0.1  # largest misfit with which a temperature is given
_EQUAL = 1e-4  # largest distance of two rows of about unit length that count as one
_ROUNDED = 0.02  # the same distance if one of the rows may be rounded to half precision


@dataclass(frozen=True)
class Compared:
    """Anchors, their candidates, and what the loss does with each pair.

    Attributes:
        anchors: Vectors of the anchors as the loss compares them, n x d.
        columns: Vectors of the candidates as the loss compares them, m x d.
        scores: Score of each pair, n x m; a larger score is more similar.
        gradient: Derivative of the loss with respect to each score, n x m. Below 0, the pair is
            pulled together; above 0, it is pushed apart.
        mask: Whether each pair was compared, n x m.
        rows: Number of anchors in the batch, from which the n anchors are a sample.
        is_two_sided: Whether the gradient reaches both the anchors and the candidates.
        has_distances: Whether the scores are negated distances.
        lengths: Norms of the anchors before they were normalised; None if they were not.
        roots: Two sets of graph nodes: those that compute the anchors, and the columns.
        is_rounded: Whether the gradient has half precision, so that small pulls are rounded to 0.
        scale: Number by which the loss multiplies all scores before the exponential; 1 /
            temperature in a softmax. None if the loss multiplies scores by different numbers.
        beside: Graph node that concatenates these scores with others; None without such a node.
        summed: Number of cosines that are added up to each score; 1 if unknown.
        has_soft_targets: Whether targets are soft, so that the positives are unknown.
        has_sigmoids: Whether the loss takes a sigmoid of each score by itself.
    """

    anchors: Tensor
    columns: Tensor
    scores: Tensor
    gradient: Tensor
    mask: Tensor
    rows: int
    is_two_sided: bool
    has_distances: bool
    lengths: Tensor | None
    roots: tuple[frozenset[Any], frozenset[Any]]
    is_rounded: bool = False
    scale: float | None = None
    beside: Any = None
    summed: float = 1.0
    has_soft_targets: bool = False
    has_sigmoids: bool = False

    @property
    def pulled(self) -> Tensor:
        """The pairs that are pulled together, n x m.

        Label smoothing also pulls other candidates slightly; such pairs do not count.
        """
        pull = -torch.where(self.mask, self.gradient, 0)
        pulled, most = pull > self._least, pull.amax(dim=1, keepdim=True)
        much = (pull > _SLIGHT * most) & (most > _SLIGHT**2 * most.max())
        return pulled & (much | (pulled.sum(dim=1, keepdim=True) == 1))

    @property
    def pushed(self) -> Tensor:
        """The pairs that are pushed apart, n x m."""
        return self.mask & (self.gradient > self._least)

    @property
    def _least(self) -> Tensor:
        size = self.gradient.abs()
        return _ROUNDING * size.amax(dim=1, keepdim=True).clamp_min(1e-6 * size.max())

    @cached_property
    def units(self) -> tuple[Tensor, Tensor]:
        """Unit vectors of anchors and columns."""
        return F.normalize(self.anchors, dim=1), F.normalize(self.columns, dim=1)

    @cached_property
    def cosine(self) -> Tensor:
        """The cosines of all anchors with all columns, n x m."""
        return self.units[0] @ self.units[1].T

    @property
    def has_single_pairs(self) -> bool:
        """Whether each anchor is compared with a single candidate."""
        return int(self.mask.sum(dim=1).max()) < 2

    @property
    def has_even_norms(self) -> bool:
        """Whether all anchors have the same norm, and all candidates have the same norm."""
        return all(even(x) for x in (self.anchors, self.columns))

    @property
    def has_vectors(self) -> bool:
        """Whether there are embeddings and not only scores."""
        return self.anchors.shape[1] > 0

    @property
    def is_balanced(self) -> bool:
        """Whether each anchor is pulled as much as it is pushed, as in a softmax."""
        return imbalance(self.gradient, 1) <= BALANCED

    @property
    def has_own_candidates(self) -> bool:
        """Whether there are several anchors, and no two of them have a candidate in common."""
        return len(self.mask) > 1 and int(self.mask.sum(dim=0).max()) < 2

    def mirrors(self, others: Sequence["Compared"]) -> bool:
        """Whether ``others`` compare the same vectors, with anchors and candidates exchanged."""
        anchors, columns = _roots(others, 0), _roots(others, 1)
        mine, theirs = self.roots
        return bool(mine and theirs) and mine <= columns and theirs <= anchors and mine != theirs


def even(x: Tensor) -> bool:
    """Return whether all rows have the same norm."""
    norm = torch.linalg.vector_norm(x.float(), dim=-1)
    return float(norm.std(correction=0)) <= 1e-2 * float(norm.mean())


def imbalance(gradient: Tensor, dim: int) -> float:
    """Return abs(push - pull) of the rows (``dim=1``) or columns, as a share of push + pull."""
    size = float(gradient.abs().sum())
    return float(gradient.sum(dim=dim).abs().sum()) / size if size else 0.0


def joined(compared: Sequence[Compared]) -> list[Compared]:
    """Merge tables whose candidates share one softmax. Return the merged and the other tables."""
    # a table without gradient, such as of pairs beyond a margin, does not show how pairs balance
    live = [t for t in compared if bool(t.gradient.any())] or compared
    whole: list[Compared] = []
    left: list[Compared] = []
    group: list[Compared] = []  # unbalanced tables of the same anchors, perhaps of one softmax
    for table in map(_of_repeated, _side_by_side(_once(live))):
        if group and not _fit(group[0], table):
            left, group = left + group, []
        # the same columns again, such as in the other direction
        again = table.has_vectors and any(
            t.roots == table.roots and t.columns.equal(table.columns) for t in group
        )
        if table.is_balanced:
            whole.append(table)
        elif not again and (merged := _beside([*group, table])).is_balanced:
            whole, group = [*whole, merged], []
        else:
            group = [*group, table]
    directions, left = _both_directions(left + group)
    # tables out of balance beside balanced tables are additional terms, such as a penalty
    tables = _rows_together(_without_repetitions(whole + directions or _of_one_anchor(left)))
    soft = any(t.has_soft_targets for t in compared)  # of one term, such as that of a teacher
    return [replace(t, has_soft_targets=soft) for t in tables]


def _grouped(
    tables: Sequence[Compared], fits: Callable[[list[Compared], Compared], bool]
) -> list[list[Compared]]:
    """Return the tables in groups; a table joins the first group that it fits."""
    groups: list[list[Compared]] = []
    for table in tables:
        for group in groups:
            if fits(group, table):
                group.append(table)
                break
        else:
            groups.append([table])
    return groups


def _of_repeated(table: Compared) -> Compared:
    """Return a table of single pairs with each anchor's pairs in one row, if these rows balance.

    A loss may repeat each anchor for each of its candidates, and compare row by row.
    """
    if not table.has_single_pairs or not table.has_vectors or len(table.columns) != table.rows:
        return table
    for one in (table, _swapped(table)):
        number = one.anchors.unique(dim=0, return_inverse=True)[1]  # the same for equal anchors
        first = (number == number[:, None]).int().argmax(dim=1)
        different, place = first.unique(return_inverse=True)
        sums = F.one_hot(place, len(different)).to(one.scores).T  # adds up the rows of an anchor
        grouped = replace(
            one,
            anchors=one.anchors[different],
            rows=len(different),
            scores=sums @ one.scores,
            gradient=sums @ one.gradient.to(sums),
            mask=sums @ one.mask.to(sums) > 0,
        )
        if len(different) < table.rows and grouped.is_balanced:
            return grouped
    return table


def _once(compared: Sequence[Compared]) -> list[Compared]:
    """Remove pairs that are in two tables from the smaller one; return all tables."""
    # A loss may compute its positives row by row, and all pairs with them in one product.
    tables = list(compared)
    for one in compared:
        if not any(t is one for t in tables):  # it has been replaced by a table with other pairs
            continue
        for i, other in enumerate(tables):
            merged = None if other is one else _placed(one, other)
            if merged is None:
                continue
            changed = merged.gradient != other.gradient
            if bool(other.mask[changed].all()):  # all pairs of ``one`` were in ``other`` already
                tables[i] = merged
                tables = [t for t in tables if t is not one]
                break
    return tables


def _side_by_side(compared: Sequence[Compared]) -> list[Compared]:
    """Merge the tables whose scores the loss itself concatenates; return all tables."""
    groups = _grouped(
        compared,
        lambda g, t: (
            _fit(g[0], t) and t.beside is g[0].beside is not None and _beside([*g, t]).is_balanced
        ),
    )
    return [_beside(group) for group in groups]


def _rows_together(tables: list[Compared]) -> list[Compared]:
    """Merge the tables whose anchors have the same candidates; return all tables."""
    alike = _grouped(
        tables,
        lambda g, t: (
            g[0].has_distances == t.has_distances
            and g[0].roots[1] == t.roots[1]
            and g[0].columns.equal(t.columns)
        ),
    )
    return [_below(group) if len(group) > 1 else group[0] for group in alike]


def _below(group: list[Compared]) -> Compared:
    """Return a table with the rows of all tables, one below the other."""
    return replace(
        group[0],
        **_concatenated(group, ("anchors", "scores", "gradient", "mask"), 0),
        rows=sum(t.rows for t in group),
        lengths=_lengths(group),
        roots=(_roots(group, 0), group[0].roots[1]),
    )


def _concatenated(group: Sequence[Compared], names: Sequence[str], dim: int) -> dict[str, Any]:
    return {name: torch.cat([getattr(t, name) for t in group], dim=dim) for name in names}


def _lengths(group: Sequence[Compared]) -> Tensor | None:
    known = [t.lengths for t in group if t.lengths is not None]
    return torch.cat(known) if len(known) == len(group) else None


def _roots(group: Sequence[Compared], side: int) -> frozenset[Any]:
    return frozenset[Any]().union(*(t.roots[side] for t in group))


def _both_directions(tables: list[Compared]) -> tuple[list[Compared], list[Compared]]:
    """Return two lists: tables whose loss pulls in one of two directions, and other tables."""
    # Such a loss subtracts the positive once from the mean of two log-sum-exps. Its first table
    # pulls twice as much as it pushes, and the second only pushes. Each gets half of the pull.
    directions: list[Compared] = []
    left = list(tables)
    for one in tables:
        excess = one.gradient.sum(dim=1, keepdim=True)
        has_one_positive = one.pulled.sum(dim=1, keepdim=True) == 1
        if not bool((has_one_positive & (excess < 0)).all()):
            continue
        moved = torch.where(one.pulled, excess, 0)
        half = replace(one, gradient=moved, mask=one.pulled)
        for other in tables:
            rest = None if other is one else _placed(half, other)
            turned = [] if rest is None else [rest, _swapped(rest)]
            turned.sort(key=lambda t: imbalance(t.gradient, 1))
            unused = [t for t in left if t is not one and t is not other]
            if turned and turned[0].is_balanced and len(unused) == len(left) - 2:
                directions += [replace(one, gradient=one.gradient - moved), turned[0]]
                left = unused
    return directions, left


def _placed(one: Compared, other: Compared) -> Compared | None:
    """Return ``other`` with the gradients of the pairs of ``one`` added; None if it lacks any pair.

    A loss may compute its positives row by row, and all other pairs in one product.
    """
    if one.has_distances != other.has_distances or one.anchors.shape[1] != other.anchors.shape[1]:
        return None
    if not one.has_single_pairs or not one.has_vectors:
        return None
    if other.has_single_pairs:  # a loss may also compute the same similarities twice
        again = one.anchors.equal(other.anchors) and one.columns.equal(other.columns)
        return replace(other, gradient=other.gradient + one.gradient) if again else None
    i, j = one.mask.nonzero(as_tuple=True)
    anchors, columns = one.anchors[i], one.columns[j]
    # the anchor of a pair may be among the columns of ``other``, and its candidate an anchor there
    ways = [
        (_equal_rows(other.anchors, first), _equal_rows(other.columns, second))
        for first, second in ((anchors, columns), (columns, anchors))
    ]
    places = torch.stack([a.sum(dim=0) * b.sum(dim=0) for a, b in ways]).sum(dim=0)
    if not bool(places.all()):
        return None
    share = one.gradient[i, j] / places
    moved = torch.stack([(a * share) @ b.T for a, b in ways]).sum(dim=0)
    return replace(other, gradient=other.gradient + moved, mask=other.mask | (moved != 0))


def _equal_rows(x: Tensor, y: Tensor) -> Tensor:
    """Return for each row of x (n x d) and each of y (m x d) 1 if they are equal, else 0."""
    distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    return (distance <= _EQUAL).to(x)


def _swapped(table: Compared) -> Compared:
    """Return a table with its columns as anchors."""
    return replace(
        table,
        anchors=table.columns,
        columns=table.anchors,
        scores=table.scores.T,
        gradient=table.gradient.T,
        mask=table.mask.T,
        rows=len(table.columns),
        lengths=None,
        roots=table.roots[::-1],
    )


def _of_one_anchor(tables: list[Compared]) -> list[Compared]:
    """Merge unbalanced tables with the same anchors side by side; return all unbalanced ones."""
    groups = _grouped(tables, lambda g, t: _fit(g[0], t) and g[0].roots[0] == t.roots[0] != set())
    return [_beside(group) for group in groups]


def _fit(one: Compared, other: Compared) -> bool:
    """Whether two tables have the same anchors, in the same order."""
    if one.anchors.shape != other.anchors.shape or one.rows != other.rows:
        return False
    apart = torch.linalg.vector_norm(one.units[0] - other.units[0], dim=1)
    return one.has_distances == other.has_distances and float(apart.max()) <= _ROUNDED


def _beside(group: list[Compared]) -> Compared:
    """Return a table with the columns of all tables, side by side."""
    if len(group) == 1:
        return group[0]
    return replace(
        group[0],
        **_concatenated(group, ("columns",), 0),
        **_concatenated(group, ("scores", "gradient", "mask"), 1),
        roots=(group[0].roots[0], _roots(group, 1)),
    )


def _without_repetitions(whole: list[Compared]) -> list[Compared]:
    """Return the tables of the longest embeddings; shorter ones may be their prefixes."""
    width = max((t.anchors.shape[1] for t in whole), default=0)
    longest = [t for t in whole if t.anchors.shape[1] == width]
    pulling = [t for t in longest if bool(t.pulled.any())]
    lone = not any(bool(t.pushed.any()) for t in pulling)
    return longest if lone else pulling


def stacked(whole: Sequence[Compared]) -> Compared:
    """Join tables into one; each anchor is still compared only with the candidates of its table."""
    if len(whole) == 1:
        return whole[0]
    scores, gradient, mask = (
        torch.block_diag(*(getattr(t, name).to(whole[0].scores.dtype) for t in whole))
        for name in ("scores", "gradient", "mask")
    )
    return replace(
        whole[0],
        **_concatenated(whole, ("anchors", "columns"), 0),
        scores=scores,
        gradient=gradient,
        mask=mask > 0,
        rows=sum(t.rows for t in whole),
        is_two_sided=all(t.is_two_sided for t in whole),
        has_distances=all(t.has_distances for t in whole),
        lengths=_lengths(whole),
        is_rounded=any(t.is_rounded for t in whole),
        scale=whole[0].scale if len({t.scale for t in whole}) == 1 else None,
        beside=None,
    )


@dataclass(frozen=True)
class SoftmaxEvidence:
    """Sums over pairs, for the temperature of a softmax; the sums of several steps can be added.

    In a softmax, the log of a pair's push is linear in its score, with slope 1 / temperature. The
    weight of a pair in the fit is the square root of its share in the push of its row.
    """

    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0
    pairs: int = 0

    @classmethod
    def of(cls, table: Compared) -> "SoftmaxEvidence":
        """Return the sums over the pairs of one table."""
        on = table.mask & (table.gradient > 1e-30 * table.gradient.amax(dim=1, keepdim=True))
        on = on & (table.gradient > 0) & (on.sum(dim=1, keepdim=True) > 1)
        if not bool(on.any()):
            return cls()
        push = torch.where(on, table.gradient, 0).cpu().double()
        on = on.cpu()
        share = push / push.sum(dim=1, keepdim=True).clamp_min(1e-300)
        weight = share.sqrt()
        weight = weight / weight.sum(dim=1, keepdim=True).clamp_min(1e-300)
        x = torch.where(on, table.scores.cpu().double(), 0)
        y = torch.where(on, push, 1).log()
        x = torch.where(on, x - (weight * x).sum(dim=1, keepdim=True), 0)
        y = torch.where(on, y - (weight * y).sum(dim=1, keepdim=True), 0)
        return cls(
            float((weight * x * x).sum()),
            float((weight * x * y).sum()),
            float((weight * y * y).sum()),
            int(on.sum() - on.any(dim=1).sum()),
        )

    def __add__(self, other: "SoftmaxEvidence") -> "SoftmaxEvidence":
        """Return the sums over the pairs of both objects."""
        pairs = self.pairs + other.pairs
        return SoftmaxEvidence(self.xx + other.xx, self.xy + other.xy, self.yy + other.yy, pairs)

    def __mul__(self, share: float) -> "SoftmaxEvidence":
        """Return the sums with less weight, as for earlier steps."""
        return SoftmaxEvidence(
            share * self.xx, share * self.xy, share * self.yy, round(share * self.pairs)
        )

    @property
    def temperature(self) -> float | None:
        """The temperature; None if the pushes do not follow a softmax, or if pairs are too few."""
        if self.pairs < _LEAST_PAIRS or self.xx <= 0 or self.xy <= 0 or self.misfit > _SURE:
            return None
        return self.xx / self.xy

    @property
    def misfit(self) -> float:
        """How far the logarithms of the pushes are from the fitted line: 0 at best, 1 at worst."""
        if self.yy <= 0:
            return 1.0
        return max(0.0, 1 - self.xy * self.xy / (self.xx * self.yy)) ** 0.5 if self.xx > 0 else 1.0
