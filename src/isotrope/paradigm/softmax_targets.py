"""Reads how a loss uses its scores: their place and scale in a softmax, and the softmax's targets.

Place and scale follow from the nodes between the scores and the loss, and the targets from the
gradient that reaches the softmax: the loss -sum_j t_j log p_j pulls the candidate j with the force
t_j. Label smoothing adds one pull to the targets of all candidates, so that an anchor is pulled to
its negatives and, if its positive is far ahead, pushed from it. Without this pull, the gradient is
that of the loss times 1 - smoothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isotrope.paradigm.graph import (
    MOVES,
    ONE_BY_ONE,
    SCALES,
    Node,
    edges_above,
    number_of,
    operation_of,
    saved_of,
    shape_of,
    signed,
)

SHIFTS = MOVES | {"Neg", "Add", "Sub", "MaskedFill", "MaskedScatter", "Where", "Diagonal"}
SHIFTS |= {"Gather", "Clamp", "ClampMin", "IndexPut"}
_EXPONENTIALS = {"LogSoftmax", "Softmax", "Logsumexp", "Exp", "LogSigmoid", "Sigmoid", "Softplus"}
_SIGMOIDS = {"LogSigmoid", "Sigmoid", "Softplus", "BinaryCrossEntropyWithLogits"}
_SOFTMAXES = ("LogSoftmax", "Softmax", "Logsumexp")
MOST_STEPS = 64  # nodes that are followed from a similarity towards the loss

Path = tuple[tuple[Node, int], ...]
"""Nodes that follow each other in the forward pass, and which of its inputs each one uses."""

_SAME = 1e-4  # relative difference between two scales that count as one
_ALIKE = 0.01  # relative difference between two shares of smoothing that count as one
_ROUNDING = 1e-4  # share of a row's pull that counts as 0
_HARD = 0.1  # share of a row's largest target; targets nearer to the largest are not soft
_SOFT = 1e-3  # share of a row's targets together; a teacher that is surer pulls few negatives


@dataclass(frozen=True)
class Use:
    """How a loss uses the scores that a node computes.

    In ``softmax(cat([a @ b.T, a @ n.T], dim=1))``, ``beside`` is the node of ``cat``.

    Attributes:
        beside: Node that concatenates these scores with others; None without such a node, or if
            there are several.
        turned: Whether the scores are transposed before ``beside`` or, without ``beside``, whether
            the softmax is over columns, so that the anchors are the columns. None: unknown.
        across: Whether the softmax after ``beside`` is over columns, so that it compares anchors.
        scale: Number that multiplies the scores before an exponential (1/temperature).
        rooted: Whether the loss takes the square root of each score.
        sigmoid: Whether the loss takes a sigmoid of each score by itself.
    """

    beside: Node | None = None
    turned: bool | None = None
    across: bool = False
    scale: float | None = None
    rooted: bool = False
    sigmoid: bool = False


@dataclass(frozen=True)
class Targets:
    """The targets of a softmax.

    Attributes:
        soft: Whether the anchors have soft targets, so that their positives are unknown.
        smoothing: What to add to the gradient at each step of the path from the scores to the
            softmax in order to undo label smoothing; empty without smoothing.
    """

    soft: bool
    smoothing: dict[tuple[Node, int], Tensor]


def keeps_order(node: Node, shape: tuple[int, ...]) -> bool:
    """Return whether an operation on a tensor of ``shape`` keeps the row-major order."""
    operation = operation_of(node)
    if operation == "Permute":
        dims = (signed(d) % len(shape) for d in saved_of(node, "dims"))
        long = [d for d in dims if shape[d] > 1]
        return long == sorted(long)
    return operation in ONE_BY_ONE and math.prod(shape_of(node)) == math.prod(shape)


def _turns(node: Node) -> bool:
    """Return whether an operation exchanges two dimensions, both with more than one place."""
    operation, shape = operation_of(node), shape_of(node)
    if operation == "Permute":
        order = (signed(d) % len(shape) for d in saved_of(node, "dims"))
        dims = [d for d, size in zip(order, shape, strict=True) if size > 1]
        return dims != sorted(dims)
    ends = [signed(saved_of(node, f"dim{i}")) for i in (0, 1)] if operation == "Transpose" else ()
    return operation in ("T", "Transpose") and all(shape[d] > 1 for d in ends)


def paths_of(start: Node, users: Callable[[Node], list[tuple[Node, int]]]) -> list[Path]:
    """Return the paths from scores to the first nodes that do more than move them."""
    found: list[Path] = []
    stack: list[tuple[Node, Path]] = [(start, ())]
    for _ in range(MOST_STEPS):
        if not stack:
            break
        node, path = stack.pop()
        for user, slot in users(node):
            moved = operation_of(user) in SHIFTS | SCALES and len(user._input_metadata) == 1
            further = (*path, (user, slot))
            if moved:
                stack.append((user, further))
            else:
                found.append(further)
    return found


def takes_probabilities(path: Path, users: Callable[[Node], list[tuple[Node, int]]]) -> bool:
    """Return whether a loss uses probabilities, at which a path ends, as scores or logarithms."""
    softmax = path[-1][0]
    if operation_of(softmax) != "Softmax":
        return False
    for after in paths_of(softmax, users):
        alone = all(len(edges_above(node.next_functions)) == 1 for node, _ in after)
        if alone and operation_of(after[-1][0]) in ("LogSoftmax", "Logsumexp", "NllLoss"):
            return True
    return False


def use_of(paths: list[Path], scores: Node, alpha: float) -> Use:
    """Return how a loss uses the output of the node ``scores``, from its ``paths`` (paths_of).

    ``alpha`` is the number by which the node itself multiplies each score. Where paths disagree,
    the result is unknown.
    """
    ends = [(operation_of(path[-1][0]), _factor(path, alpha)) for path in paths]
    scales = [abs(x) for end, x in ends if end in _EXPONENTIALS and x is not None]
    return replace(
        _place(paths, scores),
        scale=scales[0] if scales and max(scales) <= (1 + _SAME) * min(scales) else None,
        rooted=any(end == "Sqrt" and factor is not None for end, factor in ends),
        sigmoid=all(end in _SIGMOIDS for end, _ in ends),
    )


def _place(paths: list[Path], scores: Node) -> Use:
    """Return ``beside``, ``turned`` and ``across`` of the scores."""
    turned_at = dict[Node, bool]()  # each node that concatenates: are the scores transposed there?
    across, turned_alone = set[bool](), set[bool]()  # is a softmax over columns?
    for path in paths:
        cat, turned_before, turned = None, False, False  # turned: since the last ``cat``
        for node, _ in path:
            operation = operation_of(node)
            if operation == "Cat" and len(shape_of(node)) > 1:
                if signed(saved_of(node, "dim")) not in (-1, len(shape_of(node)) - 1):
                    break
                cat, turned_before, turned = node, turned_before ^ turned, False
            elif operation in _SOFTMAXES:
                dims = saved_of(node, "dim")
                is_over_columns = signed(dims[0] if isinstance(dims, tuple) else dims) in (0, -2)
                (turned_alone if cat is None else across).add(is_over_columns != turned)
            else:
                turned ^= _turns(node)
        if cat is not None:
            turned_at[cat] = turned_before
    if len(turned_at) == 1:
        ((beside, is_turned),) = turned_at.items()
        return Use(beside, is_turned, across == {True} and len(shape_of(beside)) == 2)
    if len(turned_alone) == 1 and not turned_at and len(shape_of(scores)) == 2:
        return Use(turned=turned_alone.pop())
    return Use()


def _factor(path: Path, alpha: float) -> float | None:
    """Return ``alpha`` times the factors of a path; None if pairs have different factors."""
    factor = alpha
    for node, slot in path[:-1]:
        operation = operation_of(node)
        if operation not in ("Mul", "Div"):
            continue
        by = _scalar(saved_of(node, "self" if slot else "other"))
        if by is None or (slot and operation == "Div"):
            return None
        factor = factor / by if operation == "Div" else factor * by
    return factor


def _scalar(value: object) -> float | None:
    """Return a scalar; of a matrix of signs, such as 1 and -1, the size; None if it is neither."""
    if isinstance(value, Tensor) and value.numel() > 1:
        least, most = value.detach().float().abs().aminmax()
        value = most if bool(least == most) else None
    return number_of(value)


@torch.no_grad()
def targets_of(path: Path, gradient: Tensor) -> Targets:
    """Return the targets of the softmax at the end of a path.

    Args:
        path: See :func:`paths_of`; it ends in a ``log_softmax``.
        gradient: Gradient of the loss with respect to the output of the softmax.
    """
    dim = signed(saved_of(path[-1][0], "dim"))
    pull = -gradient.movedim(dim, -1)
    rows = pull.float().reshape(-1, pull.shape[-1])  # one row, if a loss scores a single query
    sign = -1 if rows.sum() < 0 else 1  # of a loss that is maximised, or has the wrong sign
    own = saved_of(path[-1][0], "result").movedim(dim, -1).float().reshape(rows.shape)
    kept = sign * rows.sum(dim=1) > 0
    pull, rows, own = sign * pull, sign * rows[kept], own[kept]
    if rows.shape[1] <= 1 or not len(rows):
        return Targets(False, {})
    least = rows.amin(dim=1, keepdim=True)
    if not _is_smoothed(rows, least, max(_ALIKE, 4 * torch.finfo(pull.dtype).eps)):
        return Targets(_is_soft(rows) and not _is_entropy(rows, own), {})
    part = sign * pull.amin(dim=-1, keepdim=True).clamp_min(0).expand_as(pull)
    part, smoothing = part.movedim(-1, dim).contiguous(), {}
    for user, slot in reversed(path):
        inputs = user(part)
        part = inputs[slot] if isinstance(inputs, tuple) else inputs
        smoothing[user, slot] = part
    return Targets(_is_soft(rows - least), smoothing)


def _is_smoothed(pull: Tensor, least: Tensor, tolerance: float) -> bool:
    """Whether label smoothing explains the least pull (n x 1) of each row of ``pull`` (n x m)."""
    share = pull.shape[1] * least[:, 0] / pull.sum(dim=1)
    usual = 2 * (pull <= (1 + tolerance) * least).sum(dim=1) >= pull.shape[1]
    # the same share in all rows, and below 1, at which all targets would be equal
    limit = min(1 - tolerance, (1 + tolerance) * float(share.amin()))
    return bool(usual.all() and share.amin() > _ROUNDING and share.amax() <= limit)


def _is_soft(targets: Tensor) -> bool:
    """Whether most rows (n x m) have soft targets, of which each alone may be nearly 0."""
    soft = torch.where(targets < (1 - _HARD) * targets.amax(dim=1, keepdim=True), targets, 0)
    return 2 * int((soft.sum(dim=1) > _SOFT * targets.sum(dim=1)).sum()) > len(targets)


def _is_entropy(pull: Tensor, own: Tensor) -> bool:
    """Whether the entropy of the softmax explains the pulls below each row's largest (n x m)."""
    entropy = own.exp() * (1 + own.clamp_min(-99))  # the pull of -entropy at ``own``
    rest = pull < pull.amax(dim=1, keepdim=True)
    x, y = entropy[rest], pull[rest]
    few = 2 * y.sum() < pull.sum()  # beside hard targets
    return bool(few and (y - x * (x @ y) / (x @ x)).norm() <= _ALIKE * y.norm())
