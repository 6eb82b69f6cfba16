"""Finds the nodes of an autograd graph that compare embeddings, and reads their operands."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

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
    walk,
)
from isotrope.paradigm.softmax_targets import Path, Use, targets_of

Kind = Literal["product", "distance", "scores"]
_Input = tuple[Node | None, int]

# operations and the names of their saved operands
_PRODUCTS = {"Mm": ("self", "mat2"), "Bmm": ("self", "mat2"), "Addmm": ("mat1", "mat2")}
_PRODUCTS |= {"Baddbmm": ("batch1", "batch2"), "Mv": ("self", "vec"), "Dot": ("self", "tensor")}
_DISTANCES = {"Cdist": ("x1", "x2"), "EuclideanDist": ("x1", "x2")}
_OPERANDS = {**_PRODUCTS, **_DISTANCES}
_NORMS = {"LinalgVectorNorm", "Norm"}
_MEANS = {"MseLoss", "SmoothL1Loss", "HuberLoss"}  # over all differences, unless they are summed
_TRANSPOSES = {"T", "Permute", "Transpose"}
_PICKS = {"Index", "IndexSelect", "Select", "Slice", "Split", "Unbind", "Narrow"}
_NORMALISES = MOVES | SCALES | _NORMS | {"ClampMin", "Clamp", "Sqrt", "Rsqrt"}
_NORMALISES |= {"Sum", "Pow", "Add", "Maximum", "Exp"}
_LEAST_WIDTH = 4  # least number of dimensions of an embedding
_NOISE = 8.0  # rounding errors of a difference, as a multiple of eps
_OWN = 0.02  # sums of rows and columns below this share of the diagonal's gradient count as 0


@dataclass
class Similarity:
    """A node of the graph whose output is a similarity or distance of embeddings.

    :func:`similarity_of` finds the node, and :meth:`read_operands` reads its operands. The use of
    the result is read from the nodes between it and the loss (``loss_graph``,
    ``softmax_targets``), and the gradients in the backward pass.
    """

    node: Node
    kind: Kind
    edges: tuple[Edge | None, Edge | None]  # to the operands; None for one without a gradient
    hook: Node  # node whose hook reads ``gradient`` in the backward pass

    # the operands
    a: Tensor | None = None  # in the layout of the operation
    b: Tensor | None = None
    value: Tensor | None = None  # the result, if autograd kept it
    alpha: float = 1.0  # number by which the operation itself multiplies each product or distance
    lengths: tuple[Tensor | None, Tensor | None] = (None, None)
    """Norms of the embeddings before normalisation, in any order; None if not normalised."""
    roots: tuple[frozenset[Node], frozenset[Node]] = (frozenset(), frozenset())
    """The graph nodes that compute the first operand, and those that compute the second."""
    picked: int = 0  # rows of the matrix from which an operand selects rows; 0 without one

    # the use of the result
    tokens: bool = False  # tokens are compared; a later operation computes a score for each text
    squared: bool = False  # a later operation squares a distance
    use: Use = field(default_factory=Use)

    # the backward pass
    gradient: Tensor | None = None  # of the loss with respect to the result
    parts: dict[tuple[Node, int], Tensor] = field(default_factory=dict)
    """Summands of ``gradient``, one from each operation that uses the result."""
    smoothing: dict[tuple[Node, int], Tensor] = field(default_factory=dict)
    """The summands of ``gradient`` and ``parts`` that undo label smoothing."""
    soft: bool = False  # the anchors have soft targets, so that their positives are unknown
    cosine: bool = False  # the loss divides the result by the norms of both vectors
    expanded: bool = False  # the loss adds squared norms, so that the sum is a squared distance

    @property
    def inputs(self) -> list[Edge]:
        """The edges to those operands that have a gradient."""
        return [edge for edge in self.edges if edge is not None]

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

    def read_operands(self) -> bool:
        """Read the operands; return False if autograd did not keep comparable ones."""
        self._read_saved()
        if self._has_frozen_weight():
            return False
        origins = [_origin(edge) for edge in self.edges]
        self.roots, self.picked = (origins[0][0], origins[1][0]), max(rows for _, rows in origins)
        if self._is_attention():
            return False
        if (self.a is None or self.b is None) and self.value is not None and self.value.ndim == 1:
            self.a = self.b = self.value.new_zeros(len(self.value), 0)  # only distances are known
            return True
        if self.a is None or self.b is None:
            return False
        if self.tokens:
            product = self.a.detach() @ self.b.detach()
            self.value = value_of(Edge(self.hook, 0), {self.node: product})
            if self.value is None:
                return False
        if self._is_frozen_layer(self.b):
            return False
        self.lengths = _lengths(self.edges[0]), _lengths(self.edges[1])
        return min(self.a.shape[-1], self.b.numel()) >= _LEAST_WIDTH

    def _read_saved(self) -> None:
        """Store what autograd kept of the operands and of the result."""
        node, operation = self.node, operation_of(self.node)
        if operation == "Pdist":
            self.a = self.b = saved_of(node, "self")
        elif operation in ("Sum", "Mean"):
            inner = node.next_functions[0][0]
            first, second = saved_of(inner, "self"), saved_of(inner, "other")
            if self.kind == "product":
                self.a, self.b = first, second
            elif operation_of(inner) == "Abs":
                self.value = first.abs().sum(-1)
            else:
                self.squared = True
                self.value = None if first is None else first.norm(dim=-1)
        elif operation in _MEANS:
            self.a, self.b, self.squared = saved_of(node, "self"), saved_of(node, "target"), True
        elif operation in _OPERANDS:
            self.a, self.b = (saved_of(node, name) for name in _OPERANDS[operation])
        self.a = value_of(self.edges[0]) if self.a is None else self.a
        self.b = value_of(self.edges[1]) if self.b is None else self.b
        if operation in {*_NORMS, *_DISTANCES, "Pdist"}:
            self.value = saved_of(node, "result")

    def _has_frozen_weight(self) -> bool:
        """Whether an operand without a gradient is a parameter or a view of one."""
        constants = [x for x, edge in zip((self.a, self.b), self.edges, strict=True) if not edge]
        bases = [getattr(x, "_base", None) for x in constants]
        return any(isinstance(x, nn.Parameter) for x in constants + bases)

    def _is_attention(self) -> bool:
        """Whether several matrices are multiplied, but not as one row with its candidates."""
        shape = shape_of(self.node)
        batched = operation_of(self.node) in ("Bmm", "Baddbmm") and not self.tokens
        return batched and shape[0] > 1 and 1 not in shape[1:]

    def _is_frozen_layer(self, b: Tensor) -> bool:
        """Whether ``b`` is a copy in half precision of the weight of a frozen layer."""
        # autocast makes such copies; keys, in contrast, are normalised or as many as anchors
        node, operation = self.node, operation_of(self.node)
        matrices = operation in ("Mm", "Addmm") and self.edges[1] is None
        if not matrices or b.dtype.itemsize >= 4:
            return False
        biased = operation == "Addmm" and node.next_functions[0][0] is None
        shape = shape_of(node)
        return biased or not (even(b.detach().mT) or shape[0] == shape[1])

    def rows_at(self, edges: Collection[Edge], sides: Sequence[int] = (0, 1)) -> dict[Edge, Tensor]:
        """Return a dict from those ``edges`` that lead to ``a`` (side 0) or ``b`` to its rows."""
        rows = {}
        turned = operation_of(self.node) in ("Mm", "Addmm", "Bmm", "Baddbmm")
        for second in sides:
            operand, edge = (self.a, self.b)[second], self.edges[second]
            while edge is not None and operand is not None:
                if edge in edges:
                    value = operand.detach().mT if second and turned else operand.detach()
                    shape = shape_of(*edge)
                    if value.numel() == math.prod(shape) and value.shape[-1] == shape[-1]:
                        rows[edge] = value.reshape(shape)
                    break
                above = edges_above(edge.node.next_functions)
                edge = above[0] if len(above) == 1 and operation_of(edge.node) in MOVES else None
        return rows

    def read_targets(self, path: Path, gradients: tuple[Tensor | None, ...]) -> None:
        """Read the targets of the softmax at the end of a path from the gradients of its output."""
        if gradients[0] is None:
            return
        targets = targets_of(path, gradients[0])
        self.soft |= targets.soft
        for place, part in targets.smoothing.items():
            self.smoothing[place] = self.smoothing.get(place, 0) + part

    def remove_smoothing(self) -> None:
        """Remove what label smoothing adds to the gradient."""
        for (user, slot), part in self.smoothing.items():
            if (user, slot) in self.parts:
                self.parts[user, slot] = self.parts[user, slot] + part
            if user.next_functions[slot][0] == self.hook and self.gradient is not None:
                left = self.gradient + part
                noise = _NOISE * torch.finfo(left.dtype).eps * part.abs()
                self.gradient = left.where(left.abs() > noise, 0)

    def recognise_distance(self) -> None:
        """Mark products x.y as squared distances if the loss computes |x|^2 + |y|^2 - 2 x.y.

        The gradient must have been read. The squared norms may be the diagonal of x x^T.
        """
        a, b, g, one = self.a, self.b, self.gradient, self.roots[0] == self.roots[1]
        alike = one and a is not None and b is not None and a.equal(b.mT)
        if g is not None and g.ndim == 2 and alike:
            own, sums = g.diagonal(), g.sum(dim=0) + g.sum(dim=1)
            if bool(own.any()) and float(sums.norm()) <= _OWN * float(own.norm()):
                self.expanded, self.gradient = True, g - torch.diag(own)
        if self.expanded:
            self.kind, self.squared, self.alpha = "distance", True, -self.alpha / 2
            if self.use.scale is not None:
                self.use = replace(self.use, scale=self.use.scale / 2)


def compares(node: Node) -> bool:
    """Return whether a node multiplies two activations (no parameters) or computes distances."""
    known = operation_of(node) in _OPERANDS
    return known and all(above is not None for above, _ in node.next_functions[-2:])


def similarity_of(node: Node) -> Similarity | None:
    """Return the similarity that a node computes; None if it computes something else."""
    compared = _compared(node)
    if compared is None:
        return None
    a, b = (None if x is None else Edge(x, index) for x, index in compared.operands)
    if (a is None and b is None) or _of_weights(a) or _of_weights(b):
        return None
    operation = operation_of(node)
    if operation in ("Sum", "Mean") and a == b:
        return None  # squared lengths
    if operation == "Mm" and _is_transposed(a) and not _is_transposed(b):
        return None  # dimensions are compared
    return Similarity(node, compared.kind, (a, b), node, alpha=compared.alpha)


@dataclass(frozen=True)
class _VectorPair:
    kind: Kind
    operands: tuple[_Input, _Input]
    alpha: float = 1.0


def _compared(node: Node) -> _VectorPair | None:
    """Return what a node compares; None if its operation compares nothing."""
    operation, above = operation_of(node), node.next_functions
    if operation in _PRODUCTS:
        # a dot product with a constant may be a gradient times embeddings, as in a surrogate loss
        surrogate = operation == "Dot" and len(edges_above(above)) < 2
        if surrogate or len(shape_of(node)) > 3:
            return None
        return _VectorPair("product", above[-2:], number_of(saved_of(node, "alpha")) or 1.0)
    if operation in _DISTANCES:
        return _VectorPair("distance", above[-2:])
    if operation == "Pdist":
        return _VectorPair("distance", (above[0], above[0]))
    if operation in _MEANS:
        if shape_of(node) != () or not _alike(*above):
            return None
        averaged = saved_of(node, "reduction") == 1
        return _VectorPair(
            "distance", above, 1 / math.prod(shape_of(*above[0])) if averaged else 1.0
        )
    return _compared_by_row(node, operation) if operation in {"Sum", "Mean", *_NORMS} else None


def _is_transposed(edge: Edge | None) -> bool:
    """Whether an operand is the transpose of a tensor, or a copy of it, as autocast makes."""
    node = None if edge is None else edge.node
    if node is not None and operation_of(node) == "ToCopy":
        node = node.next_functions[0][0]
    return node is not None and operation_of(node) in _TRANSPOSES


def _of_weights(edge: Edge | None) -> bool:
    """Whether an operand consists of parameters alone (a classifier, normalised prototypes)."""
    weights = False
    for count, node in enumerate(walk([edge.node] if edge else []), start=1):
        if hasattr(node, "variable"):
            if not isinstance(node.variable, nn.Parameter):
                return False
            weights = True
        elif operation_of(node) not in _NORMALISES - {"Index", "IndexSelect"} or count >= 64:
            return False
    return weights


def _compared_by_row(node: Node, operation: str) -> _VectorPair | None:
    """Return what (a * b).sum(-1), (a - b).norm(dim=-1) and the like compare."""
    inner, index = node.next_functions[0]
    shape, result = () if inner is None else shape_of(inner, index), shape_of(node)
    if len(shape) < 2 or shape[-1] < _LEAST_WIDTH:
        return None
    whole = result == () and operation not in _NORMS  # one number for all rows
    if not whole and result not in (shape[:-1], (*shape[:-1], 1)):
        return None
    alpha = 1 / (math.prod(shape) / max(1, math.prod(result))) if operation == "Mean" else 1.0
    if operation in _NORMS:
        return _difference(inner, alpha)
    if operation_of(inner) not in ("Pow", "Mul", "Abs"):
        return None
    first, *others = inner.next_functions
    if operation_of(inner) == "Mul" and others != [first]:
        return None if whole else _VectorPair("product", inner.next_functions, alpha)
    distance = _difference(first[0], alpha)
    return None if distance is None or (whole and not _alike(*distance.operands)) else distance


def _difference(node: Node | None, alpha: float) -> _VectorPair | None:
    """Return the distance of the operands of a difference, to which a constant may be added."""
    if node is None:
        return None
    above = edges_above(node.next_functions)
    if operation_of(node) == "Add" and len(above) == 1:
        node = above[0].node
    if operation_of(node) != "Sub" or len(node.next_functions) != 2:
        return None
    return _VectorPair("distance", node.next_functions, alpha)


def _alike(a: _Input, b: _Input) -> bool:
    """Whether two operands are matrices of one shape, and both have a gradient."""
    if a[0] is None or b[0] is None or a == b:
        return False
    shape = shape_of(*a)
    return len(shape) == 2 and shape[1] >= _LEAST_WIDTH and shape == shape_of(*b)


def _origin(edge: Edge | None) -> tuple[frozenset[Node], int]:
    """Return the nodes from which an operand is only moved and normalised, and ``picked``."""
    stack, been, roots, picked = [] if edge is None else [edge.node], set[Node](), set(), 0
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
    node = edge.node
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
