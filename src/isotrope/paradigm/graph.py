"""Reads the nodes of an autograd graph: the operation of each node and the values that it saved.

:class:`Similarity` is a node that compares embeddings, with its operands. Values that autograd does
not keep are None.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isotrope.paradigm.compared import even

Node: TypeAlias = Any
"""A node of the autograd graph; torch declares few of its types."""
Edge = tuple[Node, int]
_PRODUCTS = {
    "Mm": ("self", "mat2"),
    "Addmm": ("mat1", "mat2"),
    "Bmm": ("self", "mat2"),
    "Baddbmm": ("batch1", "batch2"),
    "Mv": ("self", "vec"),
    "Dot": ("self", "tensor"),
}
_MEANS = {"MseLoss", "SmoothL1Loss", "HuberLoss"}  # over all differences, unless they are summed
_DISTANCES = {"Cdist": ("x1", "x2"), "EuclideanDist": ("x1", "x2")}
_RESHAPES = {"View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze", "Alias", "Clone"}
_RESHAPES |= {"ToCopy", "ViewCopy", "Detach"}
MOVES = _RESHAPES | {"T", "Transpose", "Permute", "Expand", "Slice", "Select", "Split", "Unbind"}
MOVES |= {"Cat", "Stack", "Index", "IndexSelect", "SplitWithSizes", "Narrow", "Flip", "AsStrided"}
MOVES |= {"Roll", "torch::autograd::CopySlices"}  # of tensors changed in place, such as by a mask
_PICKS = {"Index", "IndexSelect", "Select", "Slice", "Split", "Unbind", "Narrow"}
SCALES = {"Div", "Mul", "Neg"}
ONE_BY_ONE = SCALES | _RESHAPES | {"Add", "Sub", "Clamp", "ClampMin", "MaskedFill", "Where"}
_NORMALISES = MOVES | SCALES | {"LinalgVectorNorm", "Norm", "ClampMin", "Clamp", "Sqrt", "Rsqrt"}
_NORMALISES |= {"Sum", "Pow", "Add", "Maximum", "Exp"}
MOST_NODES = 50_000
_LEAST_WIDTH = 4  # least number of dimensions of an embedding
_OWN = 0.02  # sums of rows and columns below this share of the diagonal's gradient count as 0


@dataclass
class Similarity:
    """A node of the graph whose output is a similarity or distance of embeddings.

    Attributes:
        node: Node of autograd.
        kind: ``product``, ``distance`` or ``scores``.
        edges: Graph edges to the two operands; None for an operand without a gradient.
        order: Number of the node; nodes that were computed later have larger numbers.
        hook: Node whose hook reads ``gradient`` in the backward pass.
        a, b: Operands, in the layout of the operation.
        value: The result, if autograd kept it.
        gradient: Gradient of the loss with respect to the result.
        parts: Summands of ``gradient``, one from each operation that uses the result.
        smoothing: The summands of ``gradient`` and ``parts`` that undo label smoothing.
        soft: Whether the anchors have soft targets, so that their positives are unknown.
        tokens: Whether tokens are compared, and a later operation computes a score for each text.
        squared: Whether a distance is squared by a later operation.
        lengths: Norms of the embeddings before normalisation, in any order; None if not normalised.
        roots: Two sets of graph nodes: those that compute the first operand, and the second.
        picked: Number of rows of the matrix from which an operand selects rows; 0 without one.
        scale: Number that multiplies the result before an exponential; None without such a number.
        beside: Graph node that concatenates these scores with others; None without such a node.
        turned: Whether ``beside`` or a softmax has the anchors as columns; None if unknown.
        across: Whether a softmax of the output of ``beside`` compares anchors, not candidates.
        cosine: Whether the loss divides the result by the norms of both vectors.
        alpha: Number by which the operation itself multiplies each product or distance.
        expanded: Whether the loss adds squared norms, so that the sum is a squared distance.
        rooted: Whether the loss takes the square root of the result.
        sigmoid: Whether the loss takes a sigmoid of each result by itself.
    """

    node: Node
    kind: str
    edges: tuple[Edge | None, Edge | None]
    order: int
    hook: Node
    a: Tensor | None = None
    b: Tensor | None = None
    value: Tensor | None = None
    gradient: Tensor | None = None
    parts: dict[tuple[Node, int], Tensor] = field(default_factory=dict)
    smoothing: dict[tuple[Node, int], Tensor] = field(default_factory=dict)
    soft: bool = False
    tokens: bool = False
    squared: bool = False
    lengths: tuple[Tensor | None, Tensor | None] = (None, None)
    roots: tuple[frozenset[Node], frozenset[Node]] = (frozenset(), frozenset())
    picked: int = 0
    scale: float | None = None
    beside: Node | None = None
    turned: bool | None = None
    across: bool = False
    cosine: bool = False
    alpha: float = 1.0
    expanded: bool = False
    rooted: bool = False
    sigmoid: bool = False

    def complete(self) -> None:
        """Mark products x.y as squared distances if the loss computes |x|^2 + |y|^2 - 2 x.y.

        The squared norms may be the diagonal of the matrix of products x x^T.
        """
        a, b, g, one = self.a, self.b, self.gradient, self.roots[0] == self.roots[1]
        alike = one and a is not None and b is not None and a.equal(b.mT)
        if g is not None and g.ndim == 2 and alike:
            own, sums = g.diagonal(), g.sum(dim=0) + g.sum(dim=1)
            if bool(own.any()) and float(sums.norm()) <= _OWN * float(own.norm()):
                self.expanded, self.gradient = True, g - torch.diag(own)
        if self.expanded:
            self.kind, self.squared, self.alpha = "distance", True, -self.alpha / 2
            self.scale = None if self.scale is None else self.scale / 2

    @property
    def top(self) -> Node:
        """The node that outputs the similarities, or their squares if the loss squares them."""
        return self.hook if self.squared else self.node

    @property
    def whole(self) -> bool:
        """Whether the result is one number for all rows, such as the mean squared difference."""
        return self.kind == "distance" and shape_of(self.node) == ()

    @property
    def operation(self) -> str:
        """``tokens``, ``scores`` or, if embeddings are compared, the operation (``Mm``)."""
        name = "tokens" if self.tokens else self.kind
        return name if name in ("tokens", "scores") else operation_of(self.node)


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
    return [(node, index) for node, index in edges if node is not None]


def texts_of(root: Node) -> list[Tensor]:
    """Return a tensor for each lookup of token ids in a graph, with one number for each text.

    Equal texts have equal numbers. Lookups with mostly equal rows, such as positions, are left out.
    """
    found = []
    for node in _nodes_of(root):
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
    leaves = (getattr(node, "variable", None) for node in _nodes_of(root))
    return [x for x in leaves if isinstance(x, nn.Parameter)]


def _nodes_of(root: Node) -> Iterator[Node]:
    stack, been = [root], {root}
    while stack and len(been) < MOST_NODES:
        yield (node := stack.pop())
        new = {above for above, _ in edges_above(node.next_functions)} - been
        been |= new
        stack += new


def parameter_of(node: Node) -> nn.Parameter | None:
    """Return the model parameter that a node outputs; None if it outputs something else."""
    while operation_of(node) in MOVES and len(node.next_functions) == 1:
        if (node := node.next_functions[0][0]) is None:
            return None
    variable = getattr(node, "variable", None)
    return variable if isinstance(variable, nn.Parameter) and variable.numel() > 1 else None


def _of_weights(edge: Edge | None) -> bool:
    """Whether an operand consists of parameters alone (a classifier, normalised prototypes)."""
    stack, been, weights = [] if edge is None else [edge[0]], set[Node](), False
    while stack:
        node = stack.pop()
        if node in been:
            continue
        been.add(node)
        if hasattr(node, "variable"):
            if not isinstance(node.variable, nn.Parameter):
                return False
            weights = True
        elif operation_of(node) in _NORMALISES - {"Index", "IndexSelect"} and len(been) < 64:
            stack += [n for n, _ in edges_above(node.next_functions)]
        else:
            return False
    return weights


def compares(node: Node) -> bool:
    """Return whether a node multiplies two activations (no parameters) or computes distances."""
    known = operation_of(node) in {*_PRODUCTS, *_DISTANCES}
    return known and all(above is not None for above, _ in node.next_functions[-2:])


def similarity_of(node: Node) -> Similarity | None:
    """Return the similarity that a node computes; None if it computes something else."""
    operation, above = operation_of(node), node.next_functions
    kind, edges = "product", tuple(above[-2:])
    alpha = number_of(saved_of(node, "alpha")) or 1.0
    if operation in _PRODUCTS:
        surrogate = operation == "Dot" and any(e[0] is None for e in edges)  # with a gradient
        if surrogate or len(shape_of(node)) > 3:
            return None
    elif operation in _DISTANCES:
        kind = "distance"
    elif operation == "Pdist":
        kind, edges = "distance", (above[0], above[0])
    elif operation in {"Sum", "Mean", "LinalgVectorNorm", "Norm", *_MEANS}:
        parts = _rowwise(node, operation)
        if parts is None:
            return None
        kind, edges = parts
        terms = math.prod(shape_of(*above[0])) / max(1, math.prod(shape_of(node)))
        alpha = 1 / terms if operation == "Mean" or saved_of(node, "reduction") == 1 else 1.0
    else:
        return None
    a, b = ((e[0], e[1]) if e[0] is not None else None for e in edges)
    squared = a == b and operation in ("Sum", "Mean")  # a squared length
    if squared or (a is None and b is None) or _of_weights(a) or _of_weights(b):
        return None
    above = [None if e is None else e[0] for e in (a, b)]  # autocast copies what was transposed
    above = [n.next_functions[0][0] if n and operation_of(n) == "ToCopy" else n for n in above]
    turned = [bool(n) and operation_of(n) in ("T", "Permute", "Transpose") for n in above]
    if operation == "Mm" and turned == [True, False]:
        return None  # dimensions are compared: only the first operand is transposed
    return Similarity(node, kind, (a, b), node._sequence_nr(), node, alpha=alpha)


def _rowwise(node: Node, operation: str) -> tuple[str, tuple[Any, Any]] | None:
    """Return kind and operands of (a * b).sum(-1), (a - b).norm(dim=-1) and the like."""
    inner, index = node.next_functions[0]
    shape = () if inner is None else shape_of(inner, index)
    whole = shape_of(node) == () and operation in {"Sum", "Mean", *_MEANS}
    if operation in _MEANS:
        return ("distance", node.next_functions) if whole and _alike(*node.next_functions) else None
    if (
        len(shape) < 2
        or shape[-1] < _LEAST_WIDTH
        or not (whole or shape_of(node) in (shape[:-1], (*shape[:-1], 1)))
    ):
        return None
    if operation in ("Sum", "Mean"):
        factors = inner.next_functions
        if operation_of(inner) == "Mul" and factors[0] != factors[1]:
            return None if whole else ("product", tuple(factors))
        if operation_of(inner) not in ("Pow", "Mul", "Abs") or factors[0][0] is None:
            return None
        inner = factors[0][0]
    if operation_of(inner) == "Add" and len(edges_above(inner.next_functions)) == 1:
        inner = edges_above(inner.next_functions)[0][0]
    if operation_of(inner) != "Sub" or len(inner.next_functions) != 2:
        return None
    if whole and not _alike(*inner.next_functions):
        return None
    return "distance", tuple(inner.next_functions)


def _alike(a: tuple[Node | None, int], b: tuple[Node | None, int]) -> bool:
    """Whether two operands are matrices of one shape, and both have a gradient."""
    if a[0] is None or b[0] is None or a == b:
        return False
    shape = shape_of(*a)
    return len(shape) == 2 and shape[1] >= _LEAST_WIDTH and shape == shape_of(*b)


def value_of(edge: Edge | None, known: dict[Node, Tensor] | None = None) -> Tensor | None:
    """Return the tensor at an edge; None if autograd keeps too little to compute it."""
    if edge is None:
        return None
    node, index = edge
    if known and node in known:
        return known[node]
    if hasattr(node, "variable"):
        return cast(Tensor, node.variable.detach())
    operation = operation_of(node)
    if operation in ("Tanh", "Sigmoid", "Exp", "Sqrt"):
        return cast(Tensor | None, saved_of(node, "result"))
    a: Tensor | None
    b: Tensor | None
    if operation in ("Mm", "Addmm"):
        a, b = (saved_of(node, name) for name in _PRODUCTS[operation])
        if a is None or b is None:
            return None
        if operation == "Mm":
            return a @ b
        bias = value_of(node.next_functions[0]) if node.next_functions[0][0] else None
        alpha, beta = saved_of(node, "alpha"), saved_of(node, "beta")
        return None if bias is None else beta * bias + alpha * (a @ b)
    if operation in ("Div", "Mul"):
        a, b = saved_of(node, "self"), saved_of(node, "other")
        if a is None and node.next_functions[0][0] is not None:
            a = value_of(node.next_functions[0], known)
        if a is None or b is None:
            return None
        return a / b if operation == "Div" else a * b
    if operation == "NativeLayerNorm":
        x, weight, bias = (saved_of(node, name) for name in ("input", "weight", "bias"))
        if x is None:
            return None
        return F.layer_norm(x.detach(), saved_of(node, "normalized_shape"), weight, bias)
    if operation == "Sum" and (dims := saved_of(node, "dim")) is not None:
        a = value_of(node.next_functions[0], known)
        over = [signed(d) for d in dims], bool(saved_of(node, "keepdim"))
        return None if a is None else a.sum(*over)
    if operation not in MOVES:
        return None
    above = edges_above(node.next_functions)
    parts = [p for p in (value_of(e, known) for e in above) if p is not None]
    return _moved(node, index, operation, parts) if parts and len(parts) == len(above) else None


def _moved(node: Node, index: int, operation: str, parts: list[Tensor]) -> Tensor | None:
    """Return the result of an operation that only moves numbers."""
    x, shape, whole = parts[0], shape_of(node, index), len(parts) == len(node.next_functions)

    def one(name: str) -> int:
        return signed(saved_of(node, name))

    def several(name: str) -> list[int]:
        return [signed(size) for size in saved_of(node, name)]

    ways: dict[str, Callable[[], Tensor | None]] = {
        **dict.fromkeys(_RESHAPES, lambda: x.reshape(shape)),
        "torch::autograd::CopySlices": lambda: x,
        "AsStrided": lambda: x.contiguous().as_strided(several("size"), several("stride"), 0),
        "Index": lambda: x[
            tuple(slice(None) if i is None else i for i in saved_of(node, "indices"))
        ],
        "Unbind": lambda: x.unbind(one("dim"))[index],
        "Stack": lambda: torch.stack(parts, dim=one("dim")) if whole else None,
        "Cat": lambda: torch.cat(parts, dim=one("dim")) if whole else None,
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


def read_operands(seen: Similarity) -> bool:
    """Store the operands of ``seen``; return False if autograd did not keep comparable ones."""
    node, operation = seen.node, operation_of(seen.node)
    names = {**_PRODUCTS, **_DISTANCES}.get(operation)
    if operation == "Pdist":
        seen.a = seen.b = saved_of(node, "self")
    elif operation in ("Sum", "Mean"):
        inner = node.next_functions[0][0]
        of_inner = saved_of(inner, "self"), saved_of(inner, "other")
        if seen.kind == "product":
            seen.a, seen.b = of_inner
        elif operation_of(inner) == "Abs":
            seen.value = of_inner[0].abs().sum(-1)
        else:
            seen.squared = True
            seen.value = None if of_inner[0] is None else of_inner[0].norm(dim=-1)
    elif operation in _MEANS:
        seen.a, seen.b, seen.squared = saved_of(node, "self"), saved_of(node, "target"), True
    elif names is not None:
        seen.a, seen.b = (saved_of(node, name) for name in names)
    seen.a = value_of(seen.edges[0]) if seen.a is None else seen.a
    seen.b = value_of(seen.edges[1]) if seen.b is None else seen.b
    if operation in ("LinalgVectorNorm", "Norm", "Cdist", "EuclideanDist", "Pdist"):
        seen.value = saved_of(node, "result")
    if any(
        isinstance(t, nn.Parameter) or isinstance(getattr(t, "_base", None), nn.Parameter)
        for t, e in zip((seen.a, seen.b), seen.edges, strict=True)
        if e is None
    ):
        return False  # a frozen weight
    origins = [_origin(edge) for edge in seen.edges]
    seen.roots, seen.picked = (origins[0][0], origins[1][0]), max(rows for _, rows in origins)
    shape = shape_of(node)
    if operation in ("Bmm", "Baddbmm") and not seen.tokens and shape[0] > 1 and 1 not in shape[1:]:
        return False  # attention
    if (seen.a is None or seen.b is None) and seen.value is not None and seen.value.ndim == 1:
        seen.a = seen.b = seen.value.new_zeros(len(seen.value), 0)  # only distances are known
        return True
    if seen.a is None or seen.b is None:
        return False
    if seen.tokens:
        seen.value = value_of((seen.hook, 0), {node: seen.a.detach() @ seen.b.detach()})
        if seen.value is None:
            return False
    if seen.edges[1] is None and operation in ("Mm", "Addmm") and seen.b.dtype.itemsize < 4:
        # autocast copies the weight of a frozen layer; keys are normalised or as many as anchors
        biased = operation == "Addmm" and node.next_functions[0][0] is None
        if biased or not (even(seen.b.detach().mT) or shape[0] == shape[1]):
            return False
    seen.lengths = _lengths(seen.edges[0]), _lengths(seen.edges[1])
    return min(seen.a.shape[-1], seen.b.numel()) >= _LEAST_WIDTH


def number_of(value: object) -> float | None:
    """Return a scalar as a float; None if it is 0 or not a scalar."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = float(value.detach())
    return float(value) if isinstance(value, (int, float)) and value else None


def rows_of(
    seen: Similarity, edges: Collection[Edge], sides: Sequence[int] = (0, 1)
) -> dict[Edge, Tensor]:
    """Return a dict from those ``edges`` that lead to an operand of ``seen`` to this operand."""
    rows = {}
    turned = operation_of(seen.node) in ("Mm", "Addmm", "Bmm", "Baddbmm")
    for second in sides:
        operand, edge = (seen.a, seen.b)[second], seen.edges[second]
        while edge is not None and operand is not None:
            if edge in edges:
                value = operand.detach().mT if second and turned else operand.detach()
                shape = shape_of(*edge)
                if value.numel() == math.prod(shape) and value.shape[-1] == shape[-1]:
                    rows[edge] = value.reshape(shape)
                break
            above = edges_above(edge[0].next_functions)
            edge = above[0] if len(above) == 1 and operation_of(edge[0]) in MOVES else None
    return rows


def _origin(edge: Edge | None) -> tuple[frozenset[Node], int]:
    """Return the nodes from which an operand is only moved and normalised, and ``picked``."""
    stack, been, roots, picked = [] if edge is None else [edge[0]], set[Node](), set(), 0
    while stack:
        node = stack.pop()
        if node in been:
            continue
        been.add(node)
        above = edges_above(node.next_functions)
        if operation_of(node) in _NORMALISES and above and len(been) < 256:
            stack += [n for n, _ in above]
            if operation_of(node) in _PICKS and len(shape := shape_of(*above[0])) == 2:
                picked = max(picked, shape[0])
        elif math.prod(node.variable.shape if hasattr(node, "variable") else shape_of(node)) > 1:
            roots.add(node)
    return frozenset(roots), picked


def _lengths(edge: Edge | None) -> Tensor | None:
    """Return the norms of an operand before normalisation, in any order."""
    if edge is None:
        return None
    node = edge[0]
    for _ in range(64):
        if operation_of(node) == "Div":
            x, by = saved_of(node, "self"), saved_of(node, "other")
            if x is not None and isinstance(by, Tensor) and by.numel() > 1:
                norm = torch.linalg.vector_norm(x.detach().float(), dim=-1)
                by = by.detach().float().expand(x.shape)[..., 0]
                return norm.flatten() if torch.allclose(norm, by, rtol=2e-2) else None
        above = edges_above(node.next_functions)
        if operation_of(node) not in MOVES | SCALES or not above:
            return None
        node = above[0][0]
    return None
