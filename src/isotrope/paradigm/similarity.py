"""Finds the nodes of an autograd graph that compare embeddings, and reads their operands."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from isotrope.paradigm.compared import even
from isotrope.paradigm.graph import (
    MOVES,
    SCALES,
    Edge,
    Node,
    edges_above,
    number_of,
    operation_of,
    saved_of,
    shape_of,
    value_of,
)

_PRODUCTS = {
    "Mm": ("self", "mat2"),
    "Addmm": ("mat1", "mat2"),
    "Bmm": ("self", "mat2"),
    "Baddbmm": ("batch1", "batch2"),
    "Mv": ("self", "vec"),
    "Dot": ("self", "tensor"),
}
_DISTANCES = {"Cdist": ("x1", "x2"), "EuclideanDist": ("x1", "x2")}
_MEANS = {"MseLoss", "SmoothL1Loss", "HuberLoss"}  # over all differences, unless they are summed
_PICKS = {"Index", "IndexSelect", "Select", "Slice", "Split", "Unbind", "Narrow"}
_NORMALISES = MOVES | SCALES | {"LinalgVectorNorm", "Norm", "ClampMin", "Clamp", "Sqrt", "Rsqrt"}
_NORMALISES |= {"Sum", "Pow", "Add", "Maximum", "Exp"}
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
