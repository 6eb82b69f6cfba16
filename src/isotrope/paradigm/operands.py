"""Turns an operation that compares embeddings into a table of pairs and their gradients."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from isotrope.core.rounding import at_least_float, exact
from isotrope.paradigm.compared import BALANCED, Compared, even, imbalance
from isotrope.paradigm.graph import Node
from isotrope.paradigm.similarity import Kind, Similarity

MOST_ENTRIES = 1 << 20  # of a table; rows of larger tables are sampled
_MOST_OWN = 512  # most rows of a table in which each row has candidates of its own
_ROUNDED = 0.01  # change of a norm of 1 by half precision
_SAME = 1e-5  # largest 1 - cosine of a row with itself


@dataclass(frozen=True)
class _OperandPairs:
    """Anchors, the candidates that they are compared with, and the gradient on each pair.

    Attributes:
        anchors: Vectors of the anchors, n x d.
        candidates: Vectors of the candidates, m x d; n x m x d if each anchor has its own.
        gradient: Derivative of the loss with respect to each product or distance, n x m.
        scores: Similarity of each pair, n x m; None if autograd did not keep it.
        parts: Summands of ``gradient``, one for each use of the scores; empty if unknown.
        lengths: Norms of anchors and candidates before they were normalised; None if unknown.
        roots: The graph nodes that compute the anchors, and those that compute the candidates.
        is_exchanged: Whether the anchors are the second operand of the operation.
    """

    anchors: Tensor
    candidates: Tensor
    gradient: Tensor
    scores: Tensor | None = None
    parts: tuple[Tensor, ...] = ()
    lengths: tuple[Tensor | None, Tensor | None] = (None, None)
    roots: tuple[frozenset[Node], frozenset[Node]] = (frozenset(), frozenset())
    is_exchanged: bool = False

    @property
    def has_own_candidates(self) -> bool:
        """Whether each anchor has candidates of its own."""
        return self.candidates.ndim == 3

    def swapped(self) -> "_OperandPairs":
        """Return the pairs with anchors and candidates exchanged."""
        return _OperandPairs(
            self.candidates,
            self.anchors,
            self.gradient.T,
            None if self.scores is None else self.scores.T,
            lengths=self.lengths[::-1],
            roots=self.roots[::-1],
        )

    def sampled(self, most: int) -> "_OperandPairs":
        """Return the pairs of at most ``most`` anchors, sampled evenly."""
        if len(self.anchors) <= most:
            return self
        rows = torch.linspace(0, len(self.anchors) - 1, most, device=self.anchors.device).long()
        return replace(
            self,
            anchors=self.anchors[rows],
            candidates=self.candidates[rows] if self.has_own_candidates else self.candidates,
            gradient=self.gradient[rows],
            scores=None if self.scores is None else self.scores[rows],
        )


def tables(operations: Iterable[Similarity]) -> list[Compared]:
    """Return the pairs that a loss compared: a table for each direction of each operation.

    The rows of large tables are sampled evenly. Tables with equally many rows keep the same rows,
    because they may share a softmax.
    """
    sides = [(similarity, pairs) for similarity in operations for pairs in _sides(similarity)]
    most: dict[int, int] = {}  # from the number of rows of a table to the number that is kept
    for _, pairs in sides:
        rows, limit = len(pairs.anchors), _MOST_OWN
        if not pairs.has_own_candidates:
            limit = max(16, MOST_ENTRIES // max(1, len(pairs.candidates)))
        most[rows] = min(limit, most.get(rows, rows))
    return [_table(similarity, pairs, most[len(pairs.anchors)]) for similarity, pairs in sides]


def _sides(seen: Similarity) -> list[_OperandPairs]:
    """Return the pairs of an operation, twice if a loss compares them in two directions."""
    if seen.gradient is None or seen.a is None or seen.b is None:
        return []
    operation = seen.operation
    a, b, g = (at_least_float(x.detach()) for x in (seen.a, seen.b, seen.gradient))
    g = g * seen.alpha
    value = None if seen.value is None else at_least_float(seen.value.detach())
    parts = tuple(at_least_float(p).reshape(g.shape) * seen.alpha for p in seen.parts.values())
    if seen.whole:
        g, parts = g.expand(len(a)), ()
    pairs = _normal(operation, a, b, g, value, parts)
    if pairs is None:
        return []
    gradient, parts, lengths, roots = pairs.gradient, pairs.parts, seen.lengths, seen.roots
    if seen.kind == "distance":
        gradient, parts = -gradient, tuple(-p for p in parts)
    if pairs.is_exchanged:
        lengths, roots = lengths[::-1], roots[::-1]
    pairs = replace(pairs, lengths=lengths, roots=roots)
    if pairs.has_own_candidates:
        return [replace(pairs, gradient=gradient)]
    sides = []
    for part in _directions(gradient, parts):
        turned = _turned(part) if seen.use.turned is None else seen.use.turned
        side = replace(pairs, gradient=part)
        sides.append(side.swapped() if turned else side)
    return sides


def _directions(gradient: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradient split by the uses of the scores, if each use is a separate loss."""
    # A symmetric loss uses one matrix twice: by rows and by columns.
    parts = [p for p in parts if bool(p.any())]
    pulls, pushes = ([p for p in parts if not bool((sign * p > 0).any())] for sign in (1, -1))
    if len(parts) == len(pulls) + len(pushes) and pulls and pushes:  # some only push: log-sum-exps
        pull, push = (torch.stack(x).sum(dim=0) for x in (pulls, pushes))
        parts = [p + pull * (p.sum() / push.sum()) for p in pushes]
    if len(parts) < 2:
        return [gradient]
    whole = torch.stack(parts).sum(dim=0)
    scale = float((gradient * whole).sum() / whole.square().sum().clamp_min(1e-38))
    alone = all(min(imbalance(p, 0), imbalance(p, 1)) <= BALANCED for p in parts)
    fits = float((gradient - scale * whole).norm()) <= BALANCED * float(gradient.norm())
    return [scale * p for p in parts] if alone and fits else [gradient]


def _turned(gradient: Tensor) -> bool:
    """Whether the anchors are the columns: pull and push are equal in columns, not in rows."""
    rows, columns = imbalance(gradient, 1), imbalance(gradient, 0)
    return columns <= BALANCED and columns < 0.5 * rows


def _normal(
    operation: str, a: Tensor, b: Tensor, g: Tensor, value: Tensor | None, parts: tuple[Tensor, ...]
) -> _OperandPairs | None:
    """Return the pairs of an operation; g: gradient of its result. Only one matrix keeps parts."""
    match operation:
        case "Mm" | "Addmm":  # n x d, d x m; g: n x m
            return _OperandPairs(a, b.T, g, parts=parts)
        case "Mv":  # m x d, d; g: m
            return _OperandPairs(b[None], a, g[None], is_exchanged=True)
        case "Dot":  # d, d; g: one number
            return _OperandPairs(a[None], b[None], g.reshape(1, 1))
        case "scores":  # no vectors: n x 0 each; g: n x m
            return _OperandPairs(a, g.new_zeros(*g.shape, 0), g, value)
        case "tokens":
            return _texts(a, b, g, value)
        case "Bmm" | "Baddbmm" if len(a) == 1:  # 1 x n x d, 1 x d x m; g: 1 x n x m
            return _OperandPairs(a[0], b[0].T, g[0], parts=tuple(p[0] for p in parts))
        case "Bmm" | "Baddbmm" if a.shape[1] == 1:  # n x 1 x d, n x d x m; g: n x 1 x m
            return _OperandPairs(a[:, 0], b.transpose(1, 2), g[:, 0])
        case "Bmm" | "Baddbmm":  # n x m x d, n x d x 1; g: n x m x 1
            return _OperandPairs(b[:, :, 0], a, g[:, :, 0], is_exchanged=True)
        case "Cdist" | "EuclideanDist":  # n x d, m x d; g: n x m; or each with a leading 1
            if a.ndim == 3:
                if len(a) > 1:
                    return None
                a, b, g, value = a[0], b[0], g[0], None if value is None else value[0]
            return _OperandPairs(a, b, g, None if value is None else -value)
        case "Pdist":  # a and b are the same n x d; g: n (n - 1) / 2
            scores = None if value is None else _symmetric(-value, len(a))
            return _OperandPairs(a, a, _symmetric(g / 2, len(a)), scores)
    return _rowwise(a, b, g, value)


def _symmetric(numbers: Tensor, n: int) -> Tensor:
    """Return the symmetric n x n matrix with these numbers above its diagonal, which is 0."""
    rows, columns = torch.triu_indices(n, n, 1, device=numbers.device)
    matrix = numbers.new_zeros(n, n)
    matrix[rows, columns] = matrix[columns, rows] = numbers
    return matrix


def _rowwise(a: Tensor, b: Tensor, g: Tensor, value: Tensor | None) -> _OperandPairs | None:
    """As :func:`_normal`, for operands that broadcast and are compared row by row."""
    dims = max(a.ndim, b.ndim, 2)
    a, b = (x.reshape(*[1] * (dims - x.ndim), *x.shape) for x in (a, b))
    if dims > 3:
        return None
    shape = torch.broadcast_shapes(a.shape, b.shape)
    g = g.reshape(shape[:-1])
    scores = None if value is None else -value.reshape(shape[:-1])
    orders = ((a, b), (b, a)) if dims == 3 else ()
    for x, y in orders:
        one_each = x.shape[1] == 1 == y.shape[0] and shape[0] > 1
        # torch repeats the rows before it takes cosines
        repeated = x.shape == y.shape and bool((x == x[:, :1]).all()) and bool((y == y[:1]).all())
        if one_each or repeated:
            return _OperandPairs(x[:, 0], y[0], g, scores, is_exchanged=x is b)
    for x, y in orders:
        if x.shape[1] == 1:
            one = x[:, 0].expand(shape[0], -1)
            return _OperandPairs(one, y.expand(shape), g, scores, is_exchanged=x is b)
    a, b = (x.expand(shape).flatten(0, -2) for x in (a, b))
    scores = None if scores is None else scores.reshape(-1, 1)
    return _OperandPairs(a, b[:, None], g.reshape(-1, 1), scores)


def _texts(a: Tensor, b: Tensor, g: Tensor, value: Tensor | None) -> _OperandPairs | None:
    """As :func:`_normal`, for texts that are compared by their tokens."""
    if g.ndim not in (3, 4) or value is None:
        return None
    on, s, t = g != 0, g.shape[-2], g.shape[-1]  # tokens of a text on either side
    gradient = g.sum(dim=(-2, -1)) / on.sum(dim=(-2, -1)).clamp_min(1)
    scores = torch.where(on, value, 0).sum(dim=(-2, -1))
    # a pair without a gradient, such as a positive far ahead, does not show the compared tokens
    of = -1 if int(on.sum(dim=-1).max()) < 2 else -2  # over which dimension the loss took maxima
    scores = torch.where(on.any(dim=(-2, -1)), scores, value.amax(dim=of).sum(dim=-1))
    n, k = gradient.shape if g.ndim == 4 else (len(g), 1)
    a, b = (x.reshape(-1, x.shape[-1]) for x in (a, b.mT))
    if len(a) not in (n * s, n * k * s) or len(b) not in (k * t, n * k * t):
        return None
    a, b = (x.reshape(-1, size, x.shape[-1]).mean(dim=1) for x, size in ((a, s), (b, t)))
    a, b = a.reshape(n, -1, a.shape[-1]), b.reshape(-1, k, b.shape[-1])
    return _rowwise(a, b, gradient.reshape(n, k), -scores)


def _table(seen: Similarity, pairs: _OperandPairs, most: int) -> Compared:
    """Return a table of at most ``most`` rows, with cosines as scores if all norms are equal."""
    rows, pairs = len(pairs.anchors), pairs.sampled(most)
    is_distance, is_squared, scale = seen.kind == "distance", seen.squared, seen.use.scale
    scores, gradient = pairs.scores, pairs.gradient
    if scores is None:
        scores = _scores(pairs.anchors, pairs.candidates, distance=is_distance, squared=is_squared)
    elif is_squared:
        scores = -scores.square()
    if is_squared and seen.use.rooted:
        scores, is_squared = -(-scores).clamp_min(0).sqrt(), False
        gradient = -2 * gradient * scores
    anchors, candidates, lengths = pairs.anchors, pairs.candidates, pairs.lengths[0]
    if seen.cosine:
        norms = [torch.linalg.vector_norm(x, dim=-1) for x in (anchors, candidates)]
        lengths, product = norms[0], norms[0][:, None] * norms[1]
        scores, gradient = scores / product.clamp_min(1e-30), gradient * product
        anchors, candidates = (F.normalize(x, dim=-1) for x in (anchors, candidates))
    elif even(anchors) and even(candidates) and (is_squared or not is_distance):
        anchors, candidates, scores, unit = _as_cosines(anchors, candidates, scores, seen.kind)
        gradient, is_distance = gradient * unit, False
        if scale is not None and abs(unit - 1) > _ROUNDED:
            scale *= unit
    mask = torch.ones_like(gradient, dtype=torch.bool)
    if pairs.has_own_candidates:
        scores, gradient, mask = (_in_own_columns(x) for x in (scores, gradient, mask))
        candidates = candidates.flatten(0, 1)
    table = Compared(
        anchors,
        candidates,
        scores,
        gradient,
        mask,
        rows,
        is_two_sided=None not in seen.edges,
        has_distances=is_distance,
        lengths=lengths,
        roots=pairs.roots,
        is_rounded=seen.gradient is not None and seen.gradient.dtype.itemsize < 4,
        scale=scale,
        beside=seen.use.beside,
        summed=_summed(seen),
        has_soft_targets=seen.soft,
        has_sigmoids=seen.use.sigmoid,
    )
    return replace(table, mask=mask & ~_left_out(table))


def _as_cosines(
    anchors: Tensor, candidates: Tensor, scores: Tensor, kind: Kind
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Return unit vectors, cosines, and the score of a cosine of 1, for vectors of even norms."""
    norms = [torch.linalg.vector_norm(x, dim=-1).mean() for x in (anchors, candidates)]
    unit = float(norms[0] * norms[1]) or 1.0
    if kind == "distance":  # of |a - b|^2 = |a|^2 + |b|^2 - 2 a.b
        scores = scores + norms[0] ** 2 + norms[1] ** 2
        unit = 2 * unit
    anchors = anchors / norms[0].clamp_min(1e-30)
    candidates = candidates / norms[1].clamp_min(1e-30)
    return anchors, candidates, scores / unit, unit


def _in_own_columns(numbers: Tensor) -> Tensor:
    """Return n x k numbers as n x (n k): row i has its numbers in columns i k to (i + 1) k - 1."""
    n, k = numbers.shape
    columns = torch.arange(n * k, device=numbers.device).reshape(n, k)
    return numbers.new_zeros(n, n * k).scatter(1, columns, numbers)


def _summed(seen: Similarity) -> float:
    """Return how many cosines a score sums, as of two texts by their tokens; 1 if unknown."""
    if not seen.tokens or seen.a is None or seen.b is None or seen.gradient is None:
        return 1.0
    on = (seen.gradient != 0).sum(dim=(-2, -1))
    sides = [at_least_float(x.detach()).reshape(-1, x.shape[-1]) for x in (seen.a, seen.b.mT)]
    x, y = (side[side.any(dim=1)] for side in sides)  # padding is often 0
    if not bool(on.any()) or not even(x) or not even(y):
        return 1.0
    return float(exact(on[on > 0]).mean() * x.norm(dim=1).mean() * y.norm(dim=1).mean())


def _scores(anchors: Tensor, candidates: Tensor, *, distance: bool, squared: bool) -> Tensor:
    if not distance and candidates.ndim == 2:
        return anchors @ candidates.T
    if not distance:
        return (anchors[:, None] * candidates).sum(dim=2)
    if candidates.ndim == 2:
        apart = torch.cdist(anchors, candidates)
    else:
        apart = torch.linalg.vector_norm(anchors[:, None] - candidates, dim=2)
    return -apart.square() if squared else -apart


def _left_out(table: Compared) -> Tensor:
    """The pairs that the loss left out, n x m: an anchor with itself, and masked pairs."""
    # The weight of a distant pair can also underflow; then only nearer pairs have a gradient.
    zero, scores, equal = table.gradient == 0, table.scores, table.cosine > 1 - _SAME
    lowest = scores.masked_fill(~(table.gradient > 0), torch.inf).amin(dim=1, keepdim=True)
    if all(table.roots) and not table.roots[0] & table.roots[1]:
        # the equal embedding of another text is a positive whose pull a softmax rounded to 0
        zero = zero & ~(equal & (table.gradient >= 0).all(dim=1, keepdim=True))
    return zero & (equal | (scores > lowest))
