"""Turns an operation that compares embeddings into a table of pairs and their gradients."""

from collections.abc import Iterable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from isotrope.core.rounding import at_least_float, exact
from isotrope.paradigm.compared import BALANCED, Compared, even, imbalance
from isotrope.paradigm.graph import Node
from isotrope.paradigm.similarity import Similarity

MOST_ENTRIES = 1 << 20  # of a table; rows of larger tables are sampled
_MOST_OWN = 512  # most rows of a table in which each row has candidates of its own
Normal = tuple[Tensor, Tensor, Tensor | None, Tensor, list[Tensor]]
_Roots = tuple[frozenset[Node], frozenset[Node]]
_Side = tuple[Tensor, Tensor, Tensor | None, Tensor, Similarity, Tensor | None, _Roots]
_ROUNDED = 0.01  # change of a norm of 1 by half precision
_SAME = 1e-5  # largest 1 - cosine of a row with itself


def tables(operations: Iterable[Similarity]) -> list[Compared]:
    """Return the pairs that a loss compared: a table for each direction of each operation.

    The rows of large tables are sampled evenly. Tables with equally many rows keep the same rows,
    because they may share a softmax.
    """
    sides, most = [side for given in operations for side in _sides(given)], dict[int, int]()
    for anchors, candidates, *_ in sides:
        own, rows = candidates.ndim == 3, len(anchors)
        limit = _MOST_OWN if own else max(16, MOST_ENTRIES // max(1, len(candidates)))
        most[rows] = min(limit, most.get(rows, rows))
    return [_table(*side, most=most[len(side[0])]) for side in sides]


def _sides(given: Similarity) -> list[_Side]:
    """Return the arguments of a table, or of two if a loss has two directions."""
    if given.gradient is None or given.a is None or given.b is None:
        return []
    operation = given.operation
    a, b, g = (at_least_float(x.detach()) for x in (given.a, given.b, given.gradient))
    g = g * given.alpha
    value = None if given.value is None else at_least_float(given.value.detach())
    parts = [at_least_float(p).reshape(g.shape) * given.alpha for p in given.parts.values()]
    if given.whole:
        g, parts = g.expand(len(a)), []
    normal = _normal(operation, a, b, g, value, parts)
    if normal is None:
        return []
    anchors, candidates, scores, gradient, parts = normal
    lengths, roots = given.lengths, given.roots
    if given.kind == "distance":
        gradient, parts = -gradient, [-p for p in parts]
    if operation == "Mv" or (operation == "Bmm" and a.shape[1] != 1 < a.shape[0]):
        lengths, roots = lengths[::-1], roots[::-1]
    made = []
    for part in _directions(gradient, parts) if candidates.ndim == 2 else [gradient]:
        turned = _turned(part) if given.use.turned is None else given.use.turned
        turned &= candidates.ndim == 2
        made.append(
            (
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
    operation: str, a: Tensor, b: Tensor, g: Tensor, value: Tensor | None, parts: list[Tensor]
) -> Normal | None:
    """Return anchors n x d, candidates m x d or n x k x d, scores, gradient and its parts."""
    match operation:
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


def _rowwise(a: Tensor, b: Tensor, g: Tensor, value: Tensor | None) -> Normal | None:
    """As :func:`_normal` (a table of pairs), for operands that broadcast, compared row by row."""
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
    """As :func:`_normal` (a table of pairs), for texts that are compared by their tokens."""
    if g.ndim not in (3, 4) or value is None:
        return None
    on, s, t = g != 0, g.shape[-2], g.shape[-1]
    gradient = g.sum(dim=(-2, -1)) / on.sum(dim=(-2, -1)).clamp_min(1)
    scores = torch.where(on, value, 0).sum(dim=(-2, -1))
    # a pair without a gradient, such as a positive far ahead, does not show the compared tokens
    of = -1 if int(on.sum(dim=-1).max()) < 2 else -2  # over which dimension the loss took maxima
    scores = torch.where(on.any(dim=(-2, -1)), scores, value.amax(dim=of).sum(dim=-1))
    n, k = gradient.shape if g.ndim == 4 else (len(g), 1)
    texts = [x.reshape(-1, x.shape[-1]) for x in (a, b.mT)]
    if len(texts[0]) not in (n * s, n * k * s) or len(texts[1]) not in (k * t, n * k * t):
        return None
    x, y = (
        v.reshape(-1, size, v.shape[-1]).mean(dim=1) for v, size in zip(texts, (s, t), strict=True)
    )
    x, y = x.reshape(n, -1, x.shape[-1]), y.reshape(-1, k, y.shape[-1])
    return _rowwise(x, y, gradient.reshape(n, k), -scores)


def _table(
    anchors: Tensor,
    candidates: Tensor,
    scores: Tensor | None,
    gradient: Tensor,
    given: Similarity,
    lengths: Tensor | None,
    roots: _Roots,
    *,
    most: int,
) -> Compared:
    """Return a table of at most ``most`` rows, sampled evenly."""
    rows, own = len(anchors), candidates.ndim == 3
    distance, squared = given.kind == "distance", given.squared
    if rows > most:
        some = torch.linspace(0, rows - 1, most, device=anchors.device).long()
        anchors, gradient = anchors[some], gradient[some]
        scores = None if scores is None else scores[some]
        candidates = candidates[some] if own else candidates
    if scores is None:
        scores = _scores(anchors, candidates, distance=distance, squared=squared)
    elif squared:
        scores = -scores.square()
    if squared and given.use.rooted:
        scores, squared = -(-scores).clamp_min(0).sqrt(), False
        gradient = -2 * gradient * scores
    scale = given.use.scale
    if given.cosine:
        sizes = [torch.linalg.vector_norm(x, dim=-1) for x in (anchors, candidates)]
        lengths, size = sizes[0], sizes[0][:, None] * sizes[1]
        scores, gradient = scores / size.clamp_min(1e-30), gradient * size
        anchors, candidates = (F.normalize(x, dim=-1) for x in (anchors, candidates))
    elif even(anchors) and even(candidates) and (squared or not distance):  # as cosines
        sizes = [torch.linalg.vector_norm(x, dim=-1).mean() for x in (anchors, candidates)]
        one = float(sizes[0] * sizes[1]) or 1.0
        if distance:  # of |a - b|^2 = |a|^2 + |b|^2 - 2 a.b
            scores, one, distance = scores + sizes[0] ** 2 + sizes[1] ** 2, 2 * one, False
        scores, gradient = scores / one, gradient * one
        scale = None if scale is None else scale * (one if abs(one - 1) > _ROUNDED else 1.0)
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
    rounded = given.gradient is not None and given.gradient.dtype.itemsize < 4
    table = Compared(
        *(anchors, candidates, scores, gradient, mask, rows),
        *(None not in given.edges, distance, lengths, roots),
        *(rounded, scale, given.use.beside, _summed(given)),
        has_soft_targets=given.soft,
        has_sigmoids=given.use.sigmoid,
    )
    return replace(table, mask=mask & ~_left_out(table))


def _summed(given: Similarity) -> float:
    """Return how many cosines a score sums, as of two texts by their tokens; 1 if unknown."""
    if not given.tokens or given.a is None or given.b is None or given.gradient is None:
        return 1.0
    on = (given.gradient != 0).sum(dim=(-2, -1))
    sides = [at_least_float(x.detach()).reshape(-1, x.shape[-1]) for x in (given.a, given.b.mT)]
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
