"""The similarities that a loss compared, as anchors with their candidates.

:mod:`isotrope.paradigm.similarities` finds them in the graph of a loss. This module arranges the
operands of an operation and its gradient in rows, and measures which pairs are pulled together and
which are pushed apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

_MOST_ENTRIES = 1 << 20  # of a table; rows of larger tables are sampled
_MOST_OWN = 512  # rows with candidates of their own, which become columns of one table
_BALANCED = 0.02  # relative difference allowed between pull and push of a row of a softmax
_ROUNDING = 1e-6  # of the largest gradient of a row; smaller gradients have no sign
_SAME = 1e-5  # 1 - cosine of a row with itself


@dataclass(frozen=True)
class Operands:
    """An operation that compares embeddings, with its gradient.

    Attributes:
        operation: Name of its backward, such as ``Mm``.
        a: First operand, in the layout of the operation.
        b: Second operand.
        gradient: Gradient of the loss with respect to the result.
        parts: The same gradient, split by the uses of the result or of a multiple of it.
        value: The result, if autograd kept it.
        distance: Whether a smaller result is a larger similarity.
        both: Whether the gradient reaches both sides.
        lengths: Norms of the embeddings before normalisation, in any order; None if they were not
            normalised.
        roots: Graph nodes that either side comes from.
    """

    operation: str
    a: Tensor
    b: Tensor
    gradient: Tensor
    parts: tuple[Tensor, ...]
    value: Tensor | None
    distance: bool
    both: bool
    lengths: tuple[Tensor | None, Tensor | None]
    roots: tuple[frozenset[Any], frozenset[Any]]


@dataclass(frozen=True)
class Compared:
    """Anchors, the candidates of each, and what the loss does with each pair.

    Attributes:
        anchors: n x d, as the loss compares them.
        columns: m x d, as the loss compares them.
        scores: n x m; a larger score is more similar.
        gradient: n x m, dL/dscores: below 0 a pair is pulled together, above 0 pushed apart.
        mask: n x m, whether the pair was compared.
        rows: Number of anchors in the batch, of which these n are a sample.
        both: Whether the gradient reaches both sides.
        distance: Whether the scores are negated distances.
        lengths: Norms of the anchors before normalisation; None if they were not normalised.
        roots: Graph nodes that anchors and columns come from.
        rounded: Whether the gradient has half precision, in which a small pull is lost.
    """

    anchors: Tensor
    columns: Tensor
    scores: Tensor
    gradient: Tensor
    mask: Tensor
    rows: int
    both: bool
    distance: bool
    lengths: Tensor | None
    roots: tuple[frozenset[Any], frozenset[Any]]
    rounded: bool = False

    @property
    def pulled(self) -> Tensor:
        """The pairs that are pulled together, n x m."""
        return self.mask & (self.gradient < -self._least)

    @property
    def pushed(self) -> Tensor:
        """The pairs that are pushed apart, n x m."""
        return self.mask & (self.gradient > self._least)

    @property
    def _least(self) -> Tensor:
        size = self.gradient.abs()
        return _ROUNDING * size.amax(dim=1, keepdim=True).clamp_min(1e-6 * size.max())

    @property
    def single(self) -> bool:
        """Whether each anchor is compared with a single candidate."""
        return int(self.mask.sum(dim=1).max()) < 2

    @property
    def cosines(self) -> bool:
        """Whether all rows of a side have the same length."""
        return all(_even(x) for x in (self.anchors, self.columns))

    @property
    def vectors(self) -> bool:
        """Whether there are embeddings and not only scores."""
        return self.anchors.shape[1] > 0

    @property
    def balanced(self) -> bool:
        """Whether an anchor is pulled as much as it is pushed, as in a softmax."""
        return _imbalance(self.gradient, 1) <= _BALANCED

    @property
    def blocks(self) -> bool:
        """Whether each anchor has candidates of its own."""
        return len(self.mask) > 1 and int(self.mask.sum(dim=0).max()) < 2

    def mirrors(self, others: Sequence["Compared"]) -> bool:
        """Whether anchors and candidates have exchanged roles in other tables."""
        anchors = frozenset[Any]().union(*(o.roots[0] for o in others))
        columns = frozenset[Any]().union(*(o.roots[1] for o in others))
        mine, theirs = self.roots
        return bool(mine and theirs) and mine <= columns and theirs <= anchors and mine != theirs


def _even(x: Tensor) -> bool:
    norm = torch.linalg.vector_norm(x.float(), dim=-1)
    return float(norm.std(correction=0)) <= 1e-2 * float(norm.mean())


def _imbalance(gradient: Tensor, dim: int) -> float:
    size = float(gradient.abs().sum())
    return float(gradient.sum(dim=dim).abs().sum()) / size if size else 0.0


def tables(given: Operands) -> list[Compared]:
    """Return what an operation compared: one table, or two where rows and columns are anchors."""
    normal = _normal(given)
    if normal is None:
        return []
    anchors, candidates, scores, gradient, parts = normal
    lengths, roots = given.lengths, given.roots
    if given.distance:
        gradient, parts = -gradient, [-p for p in parts]
    swapped = given.operation in ("Mv",) or (
        given.operation == "Bmm" and given.a.shape[1] != 1 < given.a.shape[0]
    )
    if swapped:
        lengths, roots = lengths[::-1], roots[::-1]
    made = []
    for part in _directions(gradient, parts) if candidates.ndim == 2 else [gradient]:
        turned = candidates.ndim == 2 and _turned(part)
        made.append(
            _table(
                *((candidates, anchors) if turned else (anchors, candidates)),
                None if scores is None else scores.T if turned else scores,
                part.T if turned else part,
                given,
                lengths[turned],
                roots[::-1] if turned else roots,
            )
        )
    return made


def _directions(gradient: Tensor, parts: list[Tensor]) -> list[Tensor]:
    """Return the gradient split by the uses of the scores, if each use is a separate loss.

    A symmetric loss uses one matrix twice: by rows and by columns.
    """
    parts = [p for p in parts if bool(p.any())]
    if len(parts) < 2 or any(p.shape != gradient.shape for p in parts):
        return [gradient]
    whole = torch.stack(parts).sum(dim=0)
    scale = float((gradient * whole).sum() / whole.square().sum().clamp_min(1e-38))
    alone = all(min(_imbalance(p, 0), _imbalance(p, 1)) <= _BALANCED for p in parts)
    fits = float((gradient - scale * whole).norm()) <= _BALANCED * float(gradient.norm())
    return [scale * p for p in parts] if alone and fits else [gradient]


def _turned(gradient: Tensor) -> bool:
    """Whether the anchors are the columns: only there are pull and push equal."""
    rows, columns = _imbalance(gradient, 1), _imbalance(gradient, 0)
    return columns <= _BALANCED and columns < 0.5 * rows


Normal = tuple[Tensor, Tensor, Tensor | None, Tensor, list[Tensor]]


def _normal(given: Operands) -> Normal | None:
    """Return anchors n x d, candidates m x d or n x k x d, scores, gradient and its parts."""
    a, b, g = _wide(given.a), _wide(given.b), _wide(given.gradient)
    parts, value = [_wide(p) for p in given.parts], given.value
    value = None if value is None else _wide(value)
    match given.operation:
        case "Mm" | "Addmm":
            return a, b.T, None, g, parts
        case "Mv":
            return b[None], a, None, g[None], []
        case "Dot":
            return a[None], b[None], None, g.reshape(1, 1), []
        case "scores":
            return a, g.new_zeros(*g.shape, 0), value, g, []
        case "tokens":
            return _texts(a, b, g, value)
        case "Bmm" | "Baddbmm" if len(a) == 1:
            return a[0], b[0].T, None, g[0], [p[0] for p in parts if p.ndim == 3]
        case "Bmm" | "Baddbmm" if a.shape[1] == 1:
            return a[:, 0], b.transpose(1, 2), None, g[:, 0], []
        case "Bmm" | "Baddbmm":
            return b[:, :, 0], a, None, g[:, :, 0], []
        case "Cdist" | "EuclideanDist":
            if a.ndim == 3:
                if len(a) > 1:
                    return None
                a, b, g, value = a[0], b[0], g[0], None if value is None else value[0]
            return a, b, None if value is None else -value, g, []
        case "Pdist":
            i, j = torch.triu_indices(len(a), len(a), 1, device=a.device)
            full, distances = g.new_zeros(len(a), len(a)), g.new_zeros(len(a), len(a))
            for target, numbers in ((full, g / 2), (distances, -value if value is not None else g)):
                target[i, j] = target[j, i] = numbers
            return a, a, distances, full, []
    return _rowwise(a, b, g, value)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize < 4 else x


def _rowwise(a: Tensor, b: Tensor, g: Tensor, value: Tensor | None) -> Normal | None:
    """Return the normal form of a row-by-row comparison of operands that broadcast."""
    dims = max(a.ndim, b.ndim)
    a, b = (x.reshape(*[1] * (dims - x.ndim), *x.shape) for x in (a, b))
    if dims not in (1, 2, 3):
        return None
    if dims == 1:
        a, b = a[None], b[None]
    shape = torch.broadcast_shapes(a.shape, b.shape)
    g = g.reshape(shape[:-1])
    scores = None if value is None else -value.reshape(shape[:-1])
    if dims < 3:
        a, b = (x.expand(shape) for x in (a, b))
        return a, b[:, None], None if scores is None else scores[:, None], g[:, None], []
    if a.shape[1] == 1 == b.shape[0] and shape[0] > 1:
        return a[:, 0], b[0], scores, g, []
    if b.shape[1] == 1 == a.shape[0] and shape[0] > 1:
        return b[:, 0], a[0], scores, g, []
    for x, y in ((a, b), (b, a)):  # torch repeats the rows before it takes cosines
        if x.shape == y.shape and bool((x == x[:, :1]).all()) and bool((y == y[:1]).all()):
            return x[:, 0], y[0], scores, g, []
    a, b = (b, a) if b.shape[1] == 1 < a.shape[1] else (a, b)
    if a.shape[1] == 1:
        return a[:, 0].expand(shape[0], -1), b.expand(shape), scores, g, []
    flat = [x.expand(shape).flatten(0, 1) for x in (a, b)]
    scores = None if scores is None else scores.reshape(-1, 1)
    return flat[0], flat[1][:, None], scores, g.reshape(-1, 1), []


def _texts(a: Tensor, b: Tensor, g: Tensor, value: Tensor | None) -> Normal | None:
    """Return the normal form of a comparison of tokens, for the pairs that have a score."""
    if g.ndim != 4 or value is None or a.shape[0] != 1:
        return None
    queries, texts, s, t = g.shape
    if a.shape[1] != queries * s or b.shape[2] != texts * t:
        return None
    on = g != 0
    count = on.sum(dim=(2, 3)).clamp_min(1)
    scores = torch.where(on, value, 0).sum(dim=(2, 3))
    means = [
        x.reshape(n, k, -1).mean(dim=1) for x, n, k in ((a[0], queries, s), (b[0].T, texts, t))
    ]
    return means[0], means[1], scores, g.sum(dim=(2, 3)) / count, []


def _table(
    anchors: Tensor,
    candidates: Tensor,
    scores: Tensor | None,
    gradient: Tensor,
    given: Operands,
    lengths: Tensor | None,
    roots: tuple[frozenset[Any], frozenset[Any]],
) -> Compared:
    """Return a table of at most 2^20 entries; rows are sampled evenly from larger ones."""
    rows, own = len(anchors), candidates.ndim == 3
    most = _MOST_OWN if own else max(16, _MOST_ENTRIES // max(1, len(candidates)))
    if rows > most:
        some = torch.linspace(0, rows - 1, most, device=anchors.device).long()
        anchors, gradient = anchors[some], gradient[some]
        scores = None if scores is None else scores[some]
        candidates = candidates[some] if own else candidates
    if scores is None:
        scores = _scores(anchors, candidates, given)
    if _even(anchors) and _even(candidates) and not given.distance:  # in units of cosines
        sizes = [torch.linalg.vector_norm(x, dim=-1).mean() for x in (anchors, candidates)]
        size = float(sizes[0] * sizes[1]) or 1.0
        scores, gradient = scores / size, gradient * size
        anchors, candidates = (
            x / n.clamp_min(1e-30) for x, n in zip((anchors, candidates), sizes, strict=True)
        )
    mask = torch.ones_like(gradient, dtype=torch.bool)
    if own:
        n, k = gradient.shape
        index = torch.arange(n * k, device=anchors.device).reshape(n, k)
        blocks = [
            torch.zeros(n, n * k, dtype=x.dtype, device=x.device) for x in (scores, gradient, mask)
        ]
        scores, gradient, mask = (
            block.scatter(1, index, x)
            for block, x in zip(blocks, (scores, gradient, mask), strict=True)
        )
        candidates = candidates.flatten(0, 1)
    table = Compared(
        *(anchors, candidates, scores, gradient, mask, rows),
        *(given.both, given.distance, lengths, roots, given.gradient.dtype.itemsize < 4),
    )
    return replace(table, mask=mask & ~_left_out(table))


def _scores(anchors: Tensor, candidates: Tensor, given: Operands) -> Tensor:
    if not given.distance and candidates.ndim == 2:
        return anchors @ candidates.T
    if not given.distance:
        return (anchors[:, None] * candidates).sum(dim=2)
    if candidates.ndim == 2:
        distance = torch.cdist(anchors, candidates)
    else:
        distance = torch.linalg.vector_norm(anchors[:, None] - candidates, dim=2)
    return -distance.square() if given.operation == "Sum" else -distance


def _left_out(table: Compared) -> Tensor:
    """The pairs that the loss left out, n x m: the anchor itself and masked pairs.

    The weight of a distant pair can also underflow; then only nearer pairs have a gradient.
    """
    zero, scores = table.gradient == 0, table.scores
    unit = [torch.nn.functional.normalize(x, dim=1) for x in (table.anchors, table.columns)]
    itself = zero & (unit[0] @ unit[1].T > 1 - _SAME)
    lowest = scores.masked_fill(~(table.gradient > 0), torch.inf).amin(dim=1, keepdim=True)
    return itself | (zero & (scores > lowest))


def joined(compared: Sequence[Compared]) -> list[Compared]:
    """Return the tables, with those merged that one softmax compares side by side."""
    whole: list[Compared] = []
    left: list[Compared] = []
    group: list[Compared] = []
    for table in compared:
        if group and not _fit(group[0], table):
            left, group = left + group, []
        if table.balanced:
            whole.append(table)
        elif group and (both := _beside([*group, table])).balanced:
            whole, group = [*whole, both], []
        else:
            group = [*group, table]
    directions, left = _both_directions(left + group)
    # tables out of balance beside balanced tables are additional terms, such as a penalty
    return _without_repetitions(whole + directions or _of_one_anchor(left))


def _both_directions(
    tables: list[Compared],
) -> tuple[list[Compared], list[Compared]]:
    """Return the tables of a loss that pulls in one table for both directions, and the others.

    Such a loss takes the positive once and the mean of two log-sum-exps: the first table pulls
    twice as much as it pushes, the second only pushes. Half of the pull belongs to each.
    """
    directions: list[Compared] = []
    left = list(tables)
    for one in tables:
        excess = one.gradient.sum(dim=1, keepdim=True)
        alone = one.pulled.sum(dim=1, keepdim=True) == 1
        if not bool((alone & (excess < 0)).all()):
            continue
        moved = torch.where(one.pulled, excess, 0)
        for other in tables:
            for turned in (other, _swapped(other)):
                if other is one or turned.gradient.shape != one.gradient.shape:
                    continue
                rest = replace(turned, gradient=turned.gradient + moved)
                turned_rest = _swapped(rest)
                fitting = next((t for t in (rest, turned_rest) if t.balanced), None)
                if fitting is not None and _held(one, left) and _held(other, left):
                    first = replace(one, gradient=one.gradient - moved)
                    directions += [first, replace(fitting, mask=fitting.mask | fitting.pulled)]
                    left = [t for t in left if t is not one and t is not other]
    return directions, left


def _held(table: Compared, tables: list[Compared]) -> bool:
    return any(t is table for t in tables)


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
    """Return unbalanced tables, with those of the same anchors merged side by side."""
    groups: list[list[Compared]] = []
    for table in tables:
        for group in groups:
            if _fit(group[0], table) and group[0].roots[0] == table.roots[0] and table.roots[0]:
                group.append(table)
                break
        else:
            groups.append([table])
    return [_beside(group) if len(group) > 1 else group[0] for group in groups]


def _fit(one: Compared, other: Compared) -> bool:
    same = len(one.gradient) == len(other.gradient) and one.distance == other.distance
    return same and one.anchors.shape[1] == other.anchors.shape[1] and one.rows == other.rows


def _beside(group: list[Compared]) -> Compared:
    scores, gradient, mask = (
        torch.cat([getattr(t, name) for t in group], dim=1)
        for name in ("scores", "gradient", "mask")
    )
    roots = group[0].roots[0], frozenset[Any]().union(*(t.roots[1] for t in group))
    columns = torch.cat([t.columns for t in group])
    return replace(
        group[0], columns=columns, scores=scores, gradient=gradient, mask=mask, roots=roots
    )


def _without_repetitions(whole: list[Compared]) -> list[Compared]:
    """Return the tables of the longest embeddings; shorter ones may be their prefixes."""
    with_gradient = [t for t in whole if bool(t.gradient.any())] or whole
    width = max((t.anchors.shape[1] for t in with_gradient), default=0)
    longest = [t for t in with_gradient if t.anchors.shape[1] == width]
    pulling = [t for t in longest if bool(t.pulled.any())]
    return pulling or longest


def stacked(whole: Sequence[Compared]) -> Compared:
    """Return the tables as one; no anchor is compared with columns of another table."""
    if len(whole) == 1:
        return whole[0]
    blocks = [
        torch.block_diag(*(getattr(t, name).to(whole[0].scores.dtype) for t in whole))
        for name in ("scores", "gradient", "mask")
    ]
    known = [t.lengths for t in whole if t.lengths is not None]
    return Compared(
        torch.cat([t.anchors for t in whole]),
        torch.cat([t.columns for t in whole]),
        blocks[0],
        blocks[1],
        blocks[2] > 0,
        sum(t.rows for t in whole),
        all(t.both for t in whole),
        all(t.distance for t in whole),
        torch.cat(known) if len(known) == len(whole) else None,
        whole[0].roots,
        any(t.rounded for t in whole),
    )


@dataclass(frozen=True)
class SoftmaxEvidence:
    """Sums over pairs that give the temperature of a softmax; they add up over steps.

    In a softmax the log of the push is linear in the scores of a row, with slope 1 / temperature.
    The weight of a pair is the square root of its share of the push of its row.
    """

    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0
    pairs: int = 0

    @classmethod
    def of(cls, table: Compared) -> "SoftmaxEvidence":
        """Return the evidence of one table."""
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
        """Return the evidence of both."""
        pairs = self.pairs + other.pairs
        return SoftmaxEvidence(self.xx + other.xx, self.xy + other.xy, self.yy + other.yy, pairs)

    def __mul__(self, share: float) -> "SoftmaxEvidence":
        """Return evidence that counts for less, such as that of earlier steps."""
        return SoftmaxEvidence(
            share * self.xx, share * self.xy, share * self.yy, round(share * self.pairs)
        )

    @property
    def temperature(self) -> float | None:
        """The temperature; None if the pushes do not follow one."""
        if self.pairs < _LEAST_PAIRS or self.xx <= 0 or self.xy <= 0 or self.misfit > _SURE:
            return None
        return self.xx / self.xy

    @property
    def misfit(self) -> float:
        """The share of the variation of the log pushes that the slope leaves out."""
        if self.yy <= 0:
            return 1.0
        return max(0.0, 1 - self.xy * self.xy / (self.xx * self.yy)) ** 0.5 if self.xx > 0 else 1.0


_LEAST_PAIRS = 4
_SURE = 0.1
