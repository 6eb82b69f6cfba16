"""Reads the nodes of an autograd graph: the operation, shapes, saved values and results of a node.

A value that autograd does not keep is None.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Node: TypeAlias = Any
"""A node of the autograd graph; torch declares few of its types."""


class Edge(NamedTuple):
    """One output of a node; equal to its pair in ``next_functions``."""

    node: Node
    output: int  # its number


_RESHAPES = {"View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze", "Alias", "Clone"}
_RESHAPES |= {"ToCopy", "ViewCopy", "Detach"}
MOVES = _RESHAPES | {"T", "Transpose", "Permute", "Expand", "Slice", "Select", "Split", "Unbind"}
MOVES |= {"Cat", "Stack", "Index", "IndexSelect", "SplitWithSizes", "Narrow", "Flip", "AsStrided"}
MOVES |= {"Roll", "torch::autograd::CopySlices"}  # of tensors changed in place, such as by a mask
SCALES = {"Div", "Mul", "Neg"}
ONE_BY_ONE = SCALES | _RESHAPES | {"Add", "Sub", "Clamp", "ClampMin", "MaskedFill", "Where"}
MOST_NODES = 50_000


def operation_of(node: Node) -> str:
    """Return the name of a node's operation: ``Mm`` for ``MmBackward0``."""
    return re.sub(r"Backward\d*$", "", node.name())


def shape_of(node: Node, index: int = 0) -> tuple[int, ...]:
    """Return the shape of the output number ``index`` of a node."""
    return tuple(node._input_metadata[index].shape)


def saved_of(node: Node, name: str) -> Any:  # noqa: ANN401 - of any type
    """Return a value saved in a node; None if it was not saved or was changed in place."""
    try:
        return getattr(node, f"_saved_{name}", None)
    except RuntimeError:
        return None


def edges_above(edges: Iterable[tuple[Node | None, int]]) -> list[Edge]:
    """Return the edges that lead to a node."""
    return [Edge(node, index) for node, index in edges if node is not None]


def texts_of(root: Node) -> list[Tensor]:
    """Return a tensor for each lookup of token ids in a graph, with one number for each text.

    Equal texts have equal numbers. Lookups with mostly equal rows, such as positions, are left out.
    """
    found = []
    for node in islice(walk([root]), MOST_NODES):
        operation = operation_of(node)
        ids = saved_of(node, "indices") if operation in ("Embedding", "EmbeddingBag") else None
        if ids is not None and ids.ndim and not ids.equal(torch.arange(len(ids)).to(ids)):
            x = ids.long().where(ids != max(0, signed(saved_of(node, "padding_idx"))), 0)
            x = x * (x + 40503) * (x + 2654435761)  # a sum of these depends on each id
            if operation == "EmbeddingBag":
                first = saved_of(node, "offsets")
                of = torch.searchsorted(first, torch.arange(len(x)).to(first), right=True) - 1
                x = x.new_zeros(len(first)).index_add(0, of, x)
            x = x.flatten(1).sum(dim=1) if x.ndim > 1 else x
            found += [x] if 2 * len(x.unique()) > len(x) > 1 else []
    return found


def trained_by(root: Node) -> list[nn.Parameter]:
    """Return the trained parameters in a graph."""
    leaves = (getattr(node, "variable", None) for node in islice(walk([root]), MOST_NODES))
    return [x for x in leaves if isinstance(x, nn.Parameter)]


def walk(starts: Iterable[Node], ends: Callable[[Node], bool] = lambda _: False) -> Iterator[Node]:
    """Yield nodes and what they are computed from, each once; not beyond nodes that ``ends``."""
    stack, been = list(starts), set[Node]()
    while stack:
        node = stack.pop()
        if node in been:
            continue
        been.add(node)
        yield node
        if not ends(node):
            stack += [above for above, _ in edges_above(node.next_functions)]


def parameter_of(node: Node) -> nn.Parameter | None:
    """Return the model parameter that a node outputs; None if it outputs something else."""
    while operation_of(node) in MOVES and len(node.next_functions) == 1:
        if (node := node.next_functions[0][0]) is None:
            return None
    variable = getattr(node, "variable", None)
    return variable if isinstance(variable, nn.Parameter) and variable.numel() > 1 else None


def value_of(edge: Edge | None, known: dict[Node, Tensor] | None = None) -> Tensor | None:
    """Return the tensor at an edge; None if autograd keeps too little to compute it.

    The results of ``known`` nodes are taken from there. A constant has an edge without a node.
    """
    if edge is None or edge[0] is None:
        return None
    node, index = edge
    if known and node in known:
        return known[node]
    if hasattr(node, "variable"):
        return cast(Tensor, node.variable.detach())
    match operation_of(node):
        case "Tanh" | "Sigmoid" | "Exp" | "Sqrt":
            return cast(Tensor | None, saved_of(node, "result"))
        case "Mm":
            return _product(node, "self", "mat2")
        case "Addmm":
            product, bias = _product(node, "mat1", "mat2"), value_of(node.next_functions[0], known)
            if product is None or bias is None:
                return None
            return cast(Tensor, saved_of(node, "beta") * bias + saved_of(node, "alpha") * product)
        case "Div" | "Mul" as operation:
            a, b = saved_of(node, "self"), saved_of(node, "other")
            a = value_of(node.next_functions[0], known) if a is None else a
            if a is None or b is None:
                return None
            return torch.div(a, b) if operation == "Div" else torch.mul(a, b)
        case "NativeLayerNorm":
            x, weight, bias = (saved_of(node, name) for name in ("input", "weight", "bias"))
            shape = saved_of(node, "normalized_shape")
            return None if x is None else F.layer_norm(x.detach(), shape, weight, bias)
        case "Sum":
            dims, x = saved_of(node, "dim"), value_of(node.next_functions[0], known)
            if dims is None or x is None:
                return None
            return x.sum([signed(dim) for dim in dims], bool(saved_of(node, "keepdim")))
        case operation if operation in MOVES:
            parts = [value_of(above, known) for above in edges_above(node.next_functions)]
            values = [part for part in parts if part is not None]
            return _moved(node, index, values) if values and len(values) == len(parts) else None
    return None


def _product(node: Node, first: str, second: str) -> Tensor | None:
    """Return the product of two saved matrices, which have these names."""
    a, b = saved_of(node, first), saved_of(node, second)
    return None if a is None or b is None else a @ b


def _moved(node: Node, index: int, parts: list[Tensor]) -> Tensor | None:
    """Return the result of an operation that only moves numbers; None for an unknown one."""
    operation, x, shape = operation_of(node), parts[0], shape_of(node, index)
    every = slice(None)
    if operation in ("Stack", "Cat") and len(parts) < len(node.next_functions):
        return None  # a part is a constant

    def one(name: str) -> int:
        return signed(saved_of(node, name))

    def several(name: str) -> list[int]:
        return [signed(size) for size in saved_of(node, name)]

    ways: dict[str, Callable[[], Tensor]] = {
        **dict.fromkeys(_RESHAPES, lambda: x.reshape(shape)),
        "torch::autograd::CopySlices": lambda: x,
        "AsStrided": lambda: x.contiguous().as_strided(several("size"), several("stride"), 0),
        "Index": lambda: x[tuple(every if i is None else i for i in saved_of(node, "indices"))],
        "Unbind": lambda: x.unbind(one("dim"))[index],
        "Stack": lambda: torch.stack(parts, dim=one("dim")),
        "Cat": lambda: torch.cat(parts, dim=one("dim")),
        "Expand": lambda: x.expand(shape),
        "T": lambda: x.T,
        "Transpose": lambda: x.transpose(one("dim0"), one("dim1")),
        "Permute": lambda: x.permute(several("dims")),
        "Slice": lambda: x.movedim(one("dim"), 0)[
            slice(*map(one, ("start", "end", "step")))
        ].movedim(0, one("dim")),
        "Roll": lambda: x.roll(several("shifts"), several("dims")),
        "Select": lambda: x.select(one("dim"), one("index")),
    }
    return ways[operation]() if operation in ways else None


def signed(size: int) -> int:
    """Return a size as a signed number; autograd stores sizes as unsigned numbers."""
    return size - 2**64 if size >= 2**63 else size


def number_of(value: object) -> float | None:
    """Return a scalar as a float; None if it is 0 or not a scalar."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = float(value.detach())
    return float(value) if isinstance(value, (int, float)) and value else None
