"""Finds the pairs of embeddings that a loss compares, and its gradient on each pair.

A loss compares two embeddings by an entry of some similarity S: a product of two activations (rows
with rows, a row with its own candidates, tokens with tokens), a cosine or a distance. dL/dS is the
signed weight of that pair: below zero the pair is pulled together, above zero it is pushed apart.
GD, W and R of the papers (docs/notation.md) are read off instead of derived, without assumptions
about the name of a loss, the trainer, the module or the layout of rows.

S is found in the autograd graph of a loss that is already computed; the operations that compute it
are not intercepted. No context is open during a step, so none has to be closed when a step raises.
A compiled model is not compiled again, and operations that torch fuses (a triplet loss, a cosine)
are seen by their parts. Hooks on a few nodes listen to the backward pass that training runs anyway,
so no collective operation runs twice. Values that autograd does not keep cannot be read, nor can a
loss that is compiled or a custom autograd function; the reading reports that.

The share of the gradient that the pairs explain follows from the graph. It is 1 unless the loss
reaches an embedding by another path than the pairs. In that case the two gradients are compared.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isotrope.core.autograd import MARK
from isotrope.paradigm.compared import Compared, Operands, tables

Node: TypeAlias = Any
"""A node of the graph of autograd, of which torch types little."""
Edge = tuple[Node, int]

_PRODUCTS = {
    "Mm": ("self", "mat2"),
    "Addmm": ("mat1", "mat2"),
    "Bmm": ("self", "mat2"),
    "Baddbmm": ("batch1", "batch2"),
    "Mv": ("self", "vec"),
    "Dot": ("self", "tensor"),
}
_DISTANCES = {"Cdist": ("x1", "x2"), "EuclideanDist": ("x1", "x2")}
_RESHAPES = {"View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze", "Alias", "Clone"}
_RESHAPES |= {"ToCopy", "ViewCopy", "Detach"}
_MOVES = _RESHAPES | {"T", "Transpose", "Permute", "Expand", "Slice", "Select", "Split", "Unbind"}
_MOVES |= {"Cat", "Stack", "Index", "IndexSelect", "SplitWithSizes", "Narrow", "Flip", "AsStrided"}
_MOVES |= {"torch::autograd::CopySlices"}  # of tensors changed in place, such as by a mask
_SCALES = {"Div", "Mul", "Neg"}
_NORMALISES = _MOVES | _SCALES | {"LinalgVectorNorm", "Norm", "ClampMin", "Clamp", "Sqrt", "Rsqrt"}
_NORMALISES |= {"Sum", "Pow", "Add", "Maximum", "Exp"}
_REDUCES = _MOVES | _SCALES | {"Max", "Amax", "Sum", "MaskedFill", "Where"}

_NOTHING = "the loss is 0: a batch of one row, or of one label, has no negatives"
_MOST_NODES = 50_000
_LEAST_WIDTH = 4  # dimensions of an embedding
_FEW = 2  # scores of an anchor in a pair or a triplet, which show no batch


@dataclass
class _Similarity:
    """A node of the graph whose output is a similarity."""

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
    tokens: bool = False
    lengths: tuple[Tensor | None, Tensor | None] = (None, None)
    roots: tuple[frozenset[Node], frozenset[Node]] = (frozenset(), frozenset())


class GraphReading:
    """The observations of one loss in its backward pass.

    Create it from a loss before ``backward()``. Call :meth:`end` afterwards, or pass ``done``. An
    error within the backward pass is stored and never raised there.

    Args:
        loss: Scalar with a graph.
        done: Called with the reading at the end of the backward pass; it must not raise.

    Attributes:
        loss: Value of the loss.
        compared: Similarities in the order in which they were computed.
        explained: Share of the gradient at the compared embeddings that comes from these pairs;
            None without pairs.
        known: Objective and views of each loss of this library within the loss.
        reason: Why no pair was found, in words; empty if a pair was found.
        error: The stored error, or None.
        divisors: Numbers that the loss was divided by last, such as the number of batches whose
            gradients a trainer accumulates.
    """

    def __init__(
        self, loss: Tensor, done: Callable[["GraphReading"], object] | None = None
    ) -> None:
        root: Node = loss.grad_fn
        assert root is not None
        self.loss = float(loss.detach())
        self.compared: list[Compared] = []
        self.explained: float | None = None
        self.reason = ""
        self.error: Exception | None = None
        self.divisors = _divisors(root)
        self._done, self._over = done, False
        self._handles: list[Any] = []
        self._totals: dict[Edge, Tensor] = {}
        self._others: dict[Edge, Tensor] = {}
        graph = _Graph(root)
        self.known: list[tuple[Any, Any]] = [node.metadata[MARK] for node in graph.marked]
        self._similarities = graph.similarities
        self._joins = graph.joins()
        if not self._similarities and not self.known:
            self.reason = graph.reason() if self.loss else _NOTHING
        self._listen(root, graph)

    def _listen(self, root: Node, graph: "_Graph") -> None:
        """Register the hooks."""
        if self._done is not None:
            self._handles.append(root.register_prehook(self._quiet(self._begin)))
        for seen in self._similarities:
            self._handles.append(seen.hook.register_prehook(self._quiet(self._keep, seen)))
            for node, slot in graph.directions(seen):
                self._handles.append(
                    node.register_hook(self._quiet(self._keep_part, seen, slot, node))
                )
        for edge, others in self._joins.items():
            self._handles.append(edge[0].register_prehook(self._quiet(self._keep_total, edge)))
            for node, slot in others:
                self._handles.append(node.register_hook(self._quiet(self._keep_other, edge, slot)))

    def _quiet(self, hook: Callable[..., None], *first: object) -> Callable[..., None]:
        """Return the hook with its errors stored instead of raised."""

        def quiet(*given: object) -> None:
            try:
                hook(*first, *given)
            except Exception as error:  # any error: the training continues
                self.error = error

        return quiet

    def _begin(self, _: object) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(self.end)

    def _keep(self, seen: _Similarity, gradients: tuple[Tensor | None, ...]) -> None:
        gradient = gradients[0]
        if gradient is not None and seen.gradient is None:
            seen.gradient = gradient.detach().clone()

    def _keep_part(
        self,
        seen: _Similarity,
        slot: int,
        user: Node,
        gradients: tuple[Tensor | None, ...],
        _: object,
    ) -> None:
        gradient = gradients[slot]
        if gradient is not None and (user, slot) not in seen.parts:
            seen.parts[user, slot] = gradient.detach().clone()

    def _keep_total(self, edge: Edge, gradients: tuple[Tensor | None, ...]) -> None:
        gradient = gradients[edge[1]]
        if gradient is not None:
            self._totals[edge] = gradient.detach().clone()

    def _keep_other(
        self, edge: Edge, slot: int, gradients: tuple[Tensor | None, ...], _: object
    ) -> None:
        gradient = gradients[slot]
        if gradient is not None:
            before = self._others.get(edge)
            self._others[edge] = gradient.detach().clone() if before is None else before + gradient

    def end(self) -> None:
        """Read the values that the hooks kept and release the graph; once."""
        if self._over:
            return
        self._over = True
        self.close()
        self._quiet(self._read)()
        self._similarities, self._joins = [], {}
        self._totals, self._others = {}, {}
        if self._done is not None:
            self._done(self)

    @torch.no_grad()
    def _read(self) -> None:
        """Read the values that the hooks kept."""
        if self._similarities or self.known:
            shares = [
                1 - float(self._others[edge].norm() / self._totals[edge].norm())
                for edge in self._joins
                if edge in self._others and edge in self._totals and bool(self._totals[edge].any())
            ]
            self.explained = min(shares, default=1.0)
        for seen in self._similarities:
            if seen.gradient is not None:
                self.compared += tables(_operands(seen))

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _operation(node: Node) -> str:
    """Return the name of the operation whose backward a node is: ``Mm`` of ``MmBackward0``."""
    return re.sub(r"Backward\d*$", "", node.name())


def _shape(node: Node, index: int = 0) -> tuple[int, ...]:
    return tuple(node._input_metadata[index].shape)


def _saved(node: Node, name: str) -> Any:  # noqa: ANN401 - of any type
    """Return a value saved in a node; None if it was not saved or was changed in place."""
    try:
        return getattr(node, f"_saved_{name}", None)
    except RuntimeError:
        return None


def _divisors(node: Node) -> tuple[float, ...]:
    divisors: list[float] = []
    while _operation(node) == "Div" and len(_above(node.next_functions)) == 1:
        by = _saved(node, "other")
        if not isinstance(by, (int, float)) and not (isinstance(by, Tensor) and by.numel() == 1):
            break
        divisors.append(float(by))
        node = _above(node.next_functions)[0][0]
    return tuple(divisors)


def _above(edges: Iterable[tuple[Node | None, int]]) -> list[Edge]:
    return [(node, index) for node, index in edges if node is not None]


def _parameter(node: Node) -> bool:
    """Whether a node is a parameter with more than one number, moved or cast at most."""
    while _operation(node) in _MOVES and len(node.next_functions) == 1:
        before = node.next_functions[0][0]
        if before is None:
            return False
        node = before
    variable = getattr(node, "variable", None)
    return isinstance(variable, nn.Parameter) and variable.numel() > 1


def _of_weights(edge: Edge | None) -> bool:
    """Whether an operand consists of parameters alone: a classifier, normalised prototypes."""
    if edge is None:
        return False
    stack, been, weights = [edge[0]], set[Node](), False
    while stack:
        node = stack.pop()
        if node in been:
            continue
        been.add(node)
        if hasattr(node, "variable"):
            if not isinstance(node.variable, nn.Parameter):
                return False
            weights = True
        elif _operation(node) in _NORMALISES - {"Index", "IndexSelect"} and len(been) < 64:
            stack += [n for n, _ in _above(node.next_functions)]
        else:
            return False
    return weights


class _Graph:
    """The part of a loss's graph that lies above the weights of the encoder."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.marked: list[Node] = []
        self.users: dict[Edge, list[tuple[Node, int]]] = defaultdict(list)
        self.nodes: list[Node] = []
        self._weighty: set[Node] = set()
        self._scorers: list[Node] = []
        candidates = self._walk()
        self.similarities = self._kept(candidates) or self._scores()

    def _walk(self) -> list[_Similarity]:
        stack, been = [self.root], {self.root}
        candidates = []
        while stack and len(been) < _MOST_NODES:
            node = stack.pop()
            self.nodes.append(node)
            if MARK in node.metadata:
                self.marked.append(node)
            above = _above(node.next_functions)
            if any(_parameter(n) for n, _ in above):
                self._weighty.add(node)
                if _operation(node) in ("Addmm", "Mm") and _shape(node)[1] == 1:
                    self._scorers.append(node)
                continue
            similarity = _similarity(node)
            if similarity is not None:
                candidates.append(similarity)
            for slot, (other, index) in enumerate(node.next_functions):
                if other is None:
                    continue
                self.users[other, index].append((node, slot))
                if other not in been:
                    been.add(other)
                    stack.append(other)
        return candidates

    def _below(self, starts: Iterable[Node], stop: Collection[Node] = ()) -> set[Node]:
        """Return the given nodes and all nodes they are computed from."""
        stack = list(starts)
        been = set(stack)
        while stack:
            node = stack.pop()
            if node in stop or node in self._weighty:
                continue
            for other, _ in _above(node.next_functions):
                if other not in been:
                    been.add(other)
                    stack.append(other)
        return been

    def _behind(self, seen: _Similarity) -> set[Node]:
        return self._below([edge[0] for edge in seen.edges if edge is not None])

    def _kept(self, candidates: list[_Similarity]) -> list[_Similarity]:
        """Return the similarities that the loss consists of.

        Similarities inside an encoder, behind an embedding, are left out, and so are products of a
        matrix of similarities with another factor, such as a mask.
        """
        for c in candidates:
            self._climb(c)
        candidates = [c for c in candidates if _read_operands(c)]
        behind = {id(c): self._behind(c) for c in candidates}
        marked = self._below(n for m in self.marked for n, _ in _above(m.next_functions))
        marked |= set(self.marked)
        kept = []
        for c in candidates:
            shapes = {_shape(e[0], e[1]) for e in c.edges if e is not None}
            on_scores = any(
                other.node in behind[id(c)] and _shape(other.node) in shapes
                for other in candidates
                if other is not c
            )
            if not on_scores and c.node not in marked:
                kept.append(c)
        inside = set[Node]().union(*(behind[id(c)] for c in kept))
        kept = [c for c in kept if c.node not in inside]
        return sorted(kept, key=lambda c: c.order)

    def _scores(self) -> list[_Similarity]:
        """Return scores that a model gives to pairs without embeddings, as a cross-encoder does."""
        tops: dict[Node, None] = {}
        for node in self._scorers if not self.marked else ():
            while len(users := self.users[node, 0]) == 1:
                if _operation(users[0][0]) not in _MOVES | {"Sigmoid", "Tanh"}:
                    break
                node = users[0][0]
            tops[node] = None
        found = []
        for node in tops:
            shape, value = _shape(node), _value((node, 0))
            if value is not None and len(shape) == 2 and shape[1] > _FEW:
                empty = value.new_zeros(shape[0], 0)
                found.append(
                    _Similarity(
                        node, "scores", (None, None), node._sequence_nr(), node, empty, empty, value
                    )
                )
        return found

    def _climb(self, seen: _Similarity) -> None:
        """Hook token similarities where they are texts by texts by tokens by tokens."""
        if _operation(seen.node) not in ("Bmm", "Baddbmm"):
            return
        node, top, reduced = seen.node, seen.node, False
        while True:
            users = self.users[node, 0]
            if len(users) != 1 or _operation(users[0][0]) not in _REDUCES:
                break
            node = users[0][0]
            if _operation(node) in ("Max", "Amax"):
                reduced = True
                break
            if _operation(node) in _MOVES and top is not None and len(_shape(top)) != 4:
                top = node
        if reduced:
            seen.tokens, seen.hook = True, top

    def directions(self, seen: _Similarity) -> list[tuple[Node, int]]:
        """Return the users of a similarity if it has several, as by rows and by columns."""
        if seen.tokens:
            return []
        node = seen.node
        while True:
            users = self.users[node, 0]
            if len(users) != 1 or _operation(users[0][0]) not in _SCALES:
                break
            if _shape(users[0][0]) != _shape(node):
                break
            node = users[0][0]
        return users if len(users) > 1 else []

    def joins(self) -> dict[Edge, list[tuple[Node, int]]]:
        """Return the embeddings that the loss also reaches by other paths, and those paths."""
        seen = {s.node for s in self.similarities} | set(self.marked)
        if not seen:
            return {}
        others = self._below([self.root], stop=seen) - seen
        pairs = self._below(
            [e[0] for s in self.similarities for e in s.edges if e is not None]
            + [n for m in self.marked for n, _ in _above(m.next_functions)]
        )
        joins = {}
        for edge, users in self.users.items():
            leaf = hasattr(edge[0], "variable")
            weight = leaf and isinstance(edge[0].variable, nn.Parameter)
            if edge[0] in pairs and edge[0] in others and not weight:
                outside = [u for u in users if u[0] in others and u[0] not in pairs]
                if outside:
                    joins[edge] = outside
        return joins

    def reason(self) -> str:
        """Return why no pair was found."""
        names = [node.name() for node in self.nodes]
        if any(name.startswith("CompiledFunction") for name in names):
            return "the loss is compiled, and a compiled loss cannot be read"
        of_python: Any = torch.autograd.function.BackwardCFunction
        own = [node.name() for node in self.nodes if isinstance(node, of_python)]
        if own:
            return f"the loss is a custom autograd function ({own[0]}), which cannot be read"
        return (
            "the loss compares no two embeddings with each other: it may be one of a classifier, "
            "of prototypes, of targets or of dimensions"
        )


def _similarity(node: Node) -> _Similarity | None:
    """Return the similarity that a node computes; None if it computes something else."""
    operation, above = _operation(node), node.next_functions
    kind, edges = "product", tuple(above[-2:])
    if operation in _PRODUCTS:
        shape = _shape(node)
        if operation == "Dot" and any(e[0] is None for e in edges):
            return None  # a surrogate, whose other side is a gradient
        if len(shape) > 3:
            return None
    elif operation in _DISTANCES:
        kind = "distance"
    elif operation == "Pdist":
        kind, edges = "distance", (above[0], above[0])
    elif operation in ("Sum", "LinalgVectorNorm", "Norm"):
        parts = _rowwise(node, operation)
        if parts is None:
            return None
        kind, edges = parts
    else:
        return None
    a, b = ((e[0], e[1]) if e[0] is not None else None for e in edges)
    if a == b and operation == "Sum":
        return None  # a squared length
    if (a is None and b is None) or _of_weights(a) or _of_weights(b):
        return None
    if operation == "Mm" and _across(a, b):
        return None
    return _Similarity(node, kind, (a, b), node._sequence_nr(), node)


def _across(a: Edge | None, b: Edge | None) -> bool:
    """Whether dimensions are compared: only the first operand is transposed."""
    turned = [e is not None and _operation(e[0]) in ("T", "Permute", "Transpose") for e in (a, b)]
    return turned == [True, False]


def _rowwise(node: Node, operation: str) -> tuple[str, tuple[Any, Any]] | None:
    """Return kind and operands of (a * b).sum(-1), (a - b).norm(dim=-1) and the like."""
    below = node.next_functions[0]
    if below[0] is None:
        return None
    inner, shape = below[0], _shape(below[0], below[1])
    if (
        len(shape) < 2
        or shape[-1] < _LEAST_WIDTH
        or _shape(node) not in (shape[:-1], (*shape[:-1], 1))
    ):
        return None
    if operation == "Sum" and _operation(inner) == "Mul":
        return "product", tuple(inner.next_functions[:2])
    if operation == "Sum":
        if _operation(inner) != "Pow" or inner.next_functions[0][0] is None:
            return None
        inner = inner.next_functions[0][0]
    if _operation(inner) == "Add" and len(_above(inner.next_functions)) == 1:
        inner = _above(inner.next_functions)[0][0]
    if _operation(inner) != "Sub" or len(inner.next_functions) != 2:
        return None
    return "distance", tuple(inner.next_functions)


def _value(edge: Edge | None, known: dict[Node, Tensor] | None = None) -> Tensor | None:
    """Return the values of an edge, if autograd keeps enough to compute them, else None."""
    if edge is None:
        return None
    node, index = edge
    if known and node in known:
        return known[node]
    if hasattr(node, "variable"):
        leaf: Tensor = node.variable.detach()
        return leaf
    operation = _operation(node)
    if operation in ("Tanh", "Sigmoid", "Exp", "Sqrt"):
        result: Tensor | None = _saved(node, "result")
        return result
    a: Tensor | None
    b: Tensor | None
    if operation in ("Mm", "Addmm"):
        a, b = (_saved(node, name) for name in _PRODUCTS[operation])
        if a is None or b is None:
            return None
        if operation == "Mm":
            return a @ b
        bias = _value(node.next_functions[0]) if node.next_functions[0][0] else None
        alpha, beta = _saved(node, "alpha"), _saved(node, "beta")
        return None if bias is None else beta * bias + alpha * (a @ b)
    if operation in ("Div", "Mul"):
        a, b = _saved(node, "self"), _saved(node, "other")
        if a is None and node.next_functions[0][0] is not None:
            a = _value(node.next_functions[0], known)
        if a is None or b is None:
            return None
        return a / b if operation == "Div" else a * b
    if operation == "NativeLayerNorm":
        x, weight, bias = (_saved(node, name) for name in ("input", "weight", "bias"))
        if x is None:
            return None
        return F.layer_norm(x.detach(), _saved(node, "normalized_shape"), weight, bias)
    if operation == "Sum" and (dims := _saved(node, "dim")) is not None:
        a = _value(node.next_functions[0], known)
        keep = bool(_saved(node, "keepdim"))
        return None if a is None else a.sum([_signed(d) for d in dims], keepdim=keep)
    if operation not in _MOVES:
        return None
    above = _above(node.next_functions)
    parts = [p for p in (_value(e, known) for e in above) if p is not None]
    return _moved(node, index, operation, parts) if parts and len(parts) == len(above) else None


def _moved(node: Node, index: int, operation: str, parts: list[Tensor]) -> Tensor | None:
    """Return the result of an operation that only moves numbers."""
    x, shape = parts[0], _shape(node, index)

    if operation in _RESHAPES:
        return x.reshape(shape)
    if operation == "torch::autograd::CopySlices":
        return x
    if operation == "AsStrided":
        size, stride = _saved(node, "size"), _saved(node, "stride")
        return x.contiguous().as_strided(size, stride, 0)
    if operation == "Index":
        return x[tuple(slice(None) if i is None else i for i in _saved(node, "indices"))]
    if operation == "Unbind":
        return x.unbind(_signed(_saved(node, "dim")))[index]
    if operation == "Stack" and len(parts) == len(node.next_functions):
        return torch.stack(parts, dim=_signed(_saved(node, "dim")))
    if operation == "Expand":
        return x.expand(shape)
    if operation == "T":
        return x.T
    if operation == "Transpose":
        return x.transpose(_signed(_saved(node, "dim0")), _signed(_saved(node, "dim1")))
    if operation == "Permute":
        return x.permute([_signed(d) for d in _saved(node, "dims")])
    if operation == "Cat" and len(parts) == len(node.next_functions):
        return torch.cat(parts, dim=_signed(_saved(node, "dim")))
    if operation == "Slice":
        start, end, step = (_signed(_saved(node, k)) for k in ("start", "end", "step"))
        at = [slice(None)] * x.ndim
        at[_signed(_saved(node, "dim"))] = slice(start, end, step)
        return x[tuple(at)]
    if operation == "Select":
        return x.select(_signed(_saved(node, "dim")), _signed(_saved(node, "index")))
    return None


def _signed(size: int) -> int:
    """Return a size with its sign, which autograd does not keep."""
    return size - 2**64 if size >= 2**63 else size


def _read_operands(seen: _Similarity) -> bool:
    """Copy the operands while the graph has them; False if they cannot be compared."""
    node, operation = seen.node, _operation(seen.node)
    names = {**_PRODUCTS, **_DISTANCES}.get(operation)
    if operation == "Pdist":
        seen.a = seen.b = _saved(node, "self")
    elif operation == "Sum" and seen.kind == "product":
        inner = node.next_functions[0][0]
        seen.a, seen.b = _saved(inner, "self"), _saved(inner, "other")
    elif names is not None:
        seen.a, seen.b = (_saved(node, name) for name in names)
    if seen.a is None:
        seen.a = _value(seen.edges[0])
    if seen.b is None:
        seen.b = _value(seen.edges[1])
    if operation in ("LinalgVectorNorm", "Norm", "Cdist", "EuclideanDist", "Pdist"):
        seen.value = _saved(node, "result")
    if any(
        isinstance(t, nn.Parameter) or isinstance(getattr(t, "_base", None), nn.Parameter)
        for t, e in zip((seen.a, seen.b), seen.edges, strict=True)
        if e is None
    ):
        return False  # a frozen weight
    shape = _shape(node)
    if operation in ("Bmm", "Baddbmm") and not seen.tokens and shape[0] > 1 and 1 not in shape[1:]:
        return False  # attention
    if (seen.a is None or seen.b is None) and seen.value is not None and seen.value.ndim == 1:
        seen.a = seen.b = seen.value.new_zeros(len(seen.value), 0)  # distances; rows not kept
        return True
    if seen.a is None or seen.b is None:
        return False
    if seen.tokens:
        known = {node: seen.a.detach() @ seen.b.detach()}
        seen.value = _value((seen.hook, 0), known)
        if seen.value is None:
            return False
    seen.lengths = _lengths(seen.edges[0]), _lengths(seen.edges[1])
    seen.roots = _roots(seen.edges[0]), _roots(seen.edges[1])
    return min(seen.a.shape[-1], seen.b.numel()) >= _LEAST_WIDTH


def _roots(edge: Edge | None) -> frozenset[Node]:
    """Return the nodes that an operand comes from by moves and scales alone."""
    stack, been, roots = [] if edge is None else [edge[0]], set[Node](), set()
    while stack:
        node = stack.pop()
        if node in been:
            continue
        been.add(node)
        above = [n for n, _ in _above(node.next_functions)]
        if _operation(node) in _NORMALISES and above and len(been) < 256:
            stack += above
        else:
            roots.add(node)
    return frozenset(roots)


def _lengths(edge: Edge | None) -> Tensor | None:
    """Return the norms of an operand before normalisation, in any order."""
    if edge is None:
        return None
    node, steps = edge[0], 0
    while steps < 64:
        steps += 1
        if _operation(node) == "Div":
            x, by = _saved(node, "self"), _saved(node, "other")
            if x is not None and isinstance(by, Tensor) and by.numel() > 1:
                norm = torch.linalg.vector_norm(x.detach().float(), dim=-1)
                by = by.detach().float().expand(x.shape)[..., 0]
                return norm.flatten() if torch.allclose(norm, by, rtol=2e-2) else None
        above = _above(node.next_functions)
        if _operation(node) not in _MOVES | _SCALES or not above:
            return None
        node = above[0][0]
    return None


def _operands(seen: _Similarity) -> Operands:
    """Return the kept values of a similarity."""
    assert seen.a is not None
    assert seen.b is not None
    assert seen.gradient is not None
    operation = _operation(seen.node)
    return Operands(
        operation="tokens" if seen.tokens else "scores" if seen.kind == "scores" else operation,
        a=seen.a.detach(),
        b=seen.b.detach(),
        gradient=seen.gradient,
        parts=tuple(seen.parts.values()),
        value=None if seen.value is None else seen.value.detach(),
        distance=seen.kind == "distance",
        both=all(edge is not None for edge in seen.edges),
        lengths=seen.lengths,
        roots=seen.roots,
    )
