"""Reads the targets of a softmax from the gradient that reaches it.

The loss -sum_j t_j log p_j pulls the candidate j with the force t_j. Label smoothing adds one pull
to the targets of all candidates, so that an anchor is pulled to its negatives and, if its positive
is far ahead, pushed from it. Without this pull, the gradient is that of the loss times 1 -
smoothing.
"""

import math
from collections.abc import Callable

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
from isotrope.paradigm.similarity import Similarity

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
_NOISE = 8.0  # rounding errors of a difference, as a multiple of eps
_HARD = 0.1  # share of a row's largest target; targets nearer to 0 or to the largest are not soft


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


def again(path: Path, users: Callable[[Node], list[tuple[Node, int]]]) -> bool:
    """Return whether a loss uses probabilities, at which a path ends, as scores or logarithms."""
    after = paths_of(path[-1][0], users) if operation_of(path[-1][0]) == "Softmax" else []
    alone = (p for p in after if all(len(edges_above(n.next_functions)) == 1 for n, _ in p))
    return any(operation_of(p[-1][0]) in ("LogSoftmax", "Logsumexp", "NllLoss") for p in alone)


def place(seen: Similarity, paths: list[Path]) -> None:
    """Store in ``seen`` where the loss puts its scores: ``beside``, ``turned`` and ``across``.

    In ``softmax(cat([a @ b.T, a @ n.T], dim=1))``, ``beside`` is the node of ``cat``. ``turned``
    says whether the scores are transposed before it or, without ``cat``, whether the softmax is
    over columns. ``across`` says that the softmax after ``cat`` is over columns. Nothing is stored
    where paths disagree.
    """
    ends, along, turns = dict[Node, bool](), set[bool](), set[bool]()
    for path in paths:
        together, turned, after = None, False, False  # after: transposed since the last ``cat``
        for node, _ in path:
            operation = operation_of(node)
            if operation == "Cat" and len(shape_of(node)) > 1:
                if signed(saved_of(node, "dim")) not in (-1, len(shape_of(node)) - 1):
                    break
                together, turned, after = node, turned ^ after, False
            elif operation in _SOFTMAXES:
                dims = saved_of(node, "dim")
                rows = signed(dims[0] if isinstance(dims, tuple) else dims) in (0, -2)
                (turns if together is None else along).add(rows != after)
            else:
                after ^= _turns(node)
        if together is not None:
            ends[together] = turned
    if len(ends) == 1:
        ((seen.beside, seen.turned),) = ends.items()
        seen.across = along == {True} and len(shape_of(seen.beside)) == 2
    elif len(turns) == 1 and not ends and len(shape_of(seen.node)) == 2:
        seen.turned = turns.pop()


def read_scale(seen: Similarity, paths: list[Path]) -> None:
    """Store in ``seen`` the factor 1/tau of its scores in an exponential, and how paths end."""
    found = []
    for path in paths:
        factor: float | None = seen.alpha
        for node, slot in path[:-1]:
            operation = operation_of(node)
            if operation in ("Mul", "Div") and factor is not None:
                by = _factor(saved_of(node, "self" if slot else "other"))
                if by is None or (slot and operation == "Div"):
                    factor = None
                else:
                    factor = factor / by if operation == "Div" else factor * by
        end = operation_of(path[-1][0])
        found += [abs(factor)] if end in _EXPONENTIALS and factor is not None else []
        seen.rooted |= end == "Sqrt" and factor is not None
    seen.sigmoid = all(operation_of(path[-1][0]) in _SIGMOIDS for path in paths if path)
    if found and max(found) <= (1 + _SAME) * min(found):
        seen.scale = found[0]


def _factor(value: object) -> float | None:
    """Return a scalar; of a matrix of signs, such as 1 and -1, the size; None if it is neither."""
    if isinstance(value, Tensor) and value.numel() > 1:
        least, most = value.detach().float().abs().aminmax()
        value = most if bool(least == most) else None
    return number_of(value)


@torch.no_grad()
def read_targets(seen: Similarity, path: Path, gradients: tuple[Tensor | None, ...]) -> None:
    """Store in ``seen`` whether targets are soft, and the gradient of label smoothing.

    Args:
        seen: Similarity from which ``path`` leads to a softmax.
        path: See :func:`paths_of`; it ends in a ``log_softmax``.
        gradients: Gradient of the loss with respect to the output of the softmax.
    """
    if gradients[0] is None:
        return
    pull = -gradients[0].movedim(signed(saved_of(path[-1][0], "dim")), -1)
    alike, soft = _smoothing(pull)
    seen.soft |= soft
    if alike is None:
        return
    part = alike.expand_as(pull).movedim(-1, signed(saved_of(path[-1][0], "dim"))).contiguous()
    for user, slot in reversed(path):
        parts = user(part)
        part = parts[slot] if isinstance(parts, tuple) else parts
        seen.smoothing[user, slot] = seen.smoothing.get((user, slot), 0) + part


def without_smoothing(seen: Similarity) -> None:
    """Remove what label smoothing adds to the gradient of a similarity."""
    for (user, slot), part in seen.smoothing.items():
        if (user, slot) in seen.parts:
            seen.parts[user, slot] = seen.parts[user, slot] + part
        if user.next_functions[slot][0] == seen.hook and seen.gradient is not None:
            left = seen.gradient + part
            noise = _NOISE * torch.finfo(left.dtype).eps * part.abs()
            seen.gradient = left.where(left.abs() > noise, 0)


def _smoothing(pull: Tensor) -> tuple[Tensor | None, bool]:
    """Return the equal pull on all candidates of a row (None: no smoothing), and if t is soft."""
    rows = pull.float().reshape(-1, pull.shape[-1])  # one row, if a loss scores a single query
    live, count = rows.sum(dim=1) > 0, rows.shape[1]
    rows, least = rows[live], pull.amin(dim=-1, keepdim=True)
    if count <= 1 or not len(rows):
        return None, False
    floor = rows.amin(dim=1, keepdim=True)
    share = count * floor[:, 0] / rows.sum(dim=1)
    tolerance = max(_ALIKE, 4 * torch.finfo(pull.dtype).eps)
    usual = 2 * (rows <= (1 + tolerance) * floor).sum(dim=1) >= count  # most have the least pull
    seen = share.amin() > _ROUNDING  # the least pull is not a rounding error
    most_alike = min(1 - tolerance, (1 + tolerance) * float(share.amin()))
    alike = share.amax() <= most_alike  # in all rows; a share of 1: all targets are equal
    smooth = bool(usual.all() and seen and alike)
    targets = rows - floor if smooth else rows
    targets = targets / targets.amax(dim=1, keepdim=True)
    between = ((targets > _HARD) & (targets < 1 - _HARD)).any(dim=1)
    return least.clamp_min(0) if smooth else None, 2 * int(between.sum()) > len(rows)
