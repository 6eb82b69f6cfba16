"""Finds the pairs of embeddings that a loss compares, and the gradient of the loss on each pair.

A loss L compares two embeddings by their similarity S: a product of two activations (rows with
rows, each row with a few candidates, tokens with tokens), a cosine or a negated distance. dL/dS is
the signed weight of the pair. If dL/dS is below 0, the loss pulls the pair together; if it is above
0, the loss pushes the pair apart. Dissipation GD, weights W and ratio R (docs/notation.md) follow
from these signed weights, for every loss, trainer, module and layout of rows.

The similarities are found in the autograd graph of a loss that is already computed. Hooks on a few
nodes read gradients in the backward pass of the training. A loss cannot be read if autograd does
not keep its values, if it is compiled, or if it is a custom autograd function;
``GraphReading.reason`` then gives the cause.

The graph also shows which share of the gradient the pairs explain. The share is below 1 if the loss
also uses embeddings without comparing them, such as in a penalty on their norms.
"""

import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isotrope.core.autograd import MARK
from isotrope.paradigm import softmax_targets
from isotrope.paradigm.compared import Compared
from isotrope.paradigm.graph import (
    MOST_NODES,
    MOVES,
    SCALES,
    Edge,
    Node,
    edges_above,
    number_of,
    operation_of,
    parameter_of,
    saved_of,
    shape_of,
    trained_by,
    value_of,
    walk,
)
from isotrope.paradigm.operands import tables
from isotrope.paradigm.similarity import Similarity, compares, similarity_of

_REDUCES = MOVES | SCALES | {"Max", "Amax", "Sum", "MaskedFill", "Where", "IndexPut"}
_AFTER_SCORES = MOVES | {"Sigmoid", "Tanh"}  # operations on the scores that a model itself computes

_NOTHING = "the loss is 0: perhaps the batch has one row, one label, or no two equal labels"
_ACROSS = (
    "the softmax needs dim=1: it is taken over the anchors (dim=0), although the loss concatenates "
    "the scores of each anchor along dimension 1, so that positives compete with each other"
)
_TWICE = (
    "cross_entropy needs the scores and nll_loss their log_softmax: the loss passes probabilities "
    "(the result of a softmax), so that its gradient is weak where anchors are far from done"
)
_LENGTHS = 0.02  # share of a path's gradient that squared lengths may leave unexplained
_RADIAL = 0.02  # share of one path's radial gradient that may be left in the sum of all paths
_FEW = 2  # most scores of an anchor in pairs or triplets, which have no in-batch negatives


class GraphReading:
    """The pairs that one loss compares, and their gradients, read in the backward pass.

    Create the reading before ``backward()`` and call :meth:`end` afterwards. If ``done`` is given,
    the backward pass calls :meth:`end`. An error within the backward pass is stored in ``error``,
    not raised. If what is differentiated is a multiple of the loss, as with a gradient scaler or
    accumulation, the gradients are those of the loss itself.

    Args:
        loss: Scalar with a graph.
        done: Function called with the reading at the end of the backward pass. It must not raise.

    Attributes:
        loss: Value of the loss.
        compared: List of :class:`Compared` tables, in the order of their computation.
        explained: Share of the gradient on the embeddings that the pairs explain; None if no pairs
            were found.
        known: A list of tuples (objective, views), one for each objective of isotrope in the loss.
        reason: Why no pair was found, in words; empty if a pair was found.
        error: The stored error, or None.
        encoders: Number of encoders, 1 or 2.
        paired: Whether pairs or objectives of isotrope were found. The tables may be removed later.
        rows: Number of anchors in the batch, or of all embeddings if the loss selects anchors.
        divisors: Numbers by which the loss was divided at the end, such as the number of batches
            whose gradients a trainer accumulates, or 1 over the scale of half precision.
        weights: The trained parameters on which the loss depends.
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
        self.divisors, self.weights = _divisors(root), trained_by(root)
        self._done, self._over, self._times = done, False, 1.0
        self._handles: list[Any] = []
        self._calls: list[tuple[Any, ...]] = []
        self._totals: dict[Edge, Tensor] = {}
        self._rows: dict[Edge, Tensor] = {}
        self._others: dict[Edge, Tensor] = {}
        graph = _LossGraph(root)
        self.known: list[tuple[Any, Any]] = [node.metadata[MARK] for node in graph.marked]
        self._similarities = graph.similarities
        self._joins, self.encoders = graph.joins(), graph.encoders()
        self.rows, self.paired = 0, False
        for seen in self._similarities:
            self._rows |= seen.rows_at(self._joins)
        if not self._similarities and not self.known:
            self.reason = graph.reason() if self.loss else _NOTHING
        self._listen(root, graph)

    def _listen(self, root: Node, graph: "_LossGraph") -> None:
        """Register the hooks that read gradients in the backward pass."""
        if self._done is not None:
            self._handles.append(root.register_prehook(partial(self._quietly, self._begin)))
        for seen in self._similarities:
            self._hook(seen.hook.register_prehook, self._keep, seen)
            for node, slot in graph.directions(seen):
                self._hook(node.register_hook, self._add, seen.parts, (node, slot), slot)
            for path in softmax_targets.paths_of(seen.hook, graph.users_of):
                end = path[-1][0]
                if operation_of(end) == "LogSoftmax":
                    self._hook(end.register_prehook, seen.read_targets, path)
        for edge, others in self._joins.items():
            self._hook(edge[0].register_prehook, self._add, self._totals, edge, edge[1])
            for node, slot in others:
                self._hook(node.register_hook, self._add, self._others, edge, slot)

    def _hook(self, register: Callable[..., Any], *call: Any) -> None:
        """Register a hook that does nothing once the reading has been deleted."""
        # Python cannot free a cycle through nodes, so only the hook of the root holds the reading
        reading, place = weakref.ref(self), len(self._calls)
        self._calls.append(call)

        def weak(*given: object) -> None:
            if (alive := reading()) is not None:
                alive._quietly(*alive._calls[place], *given)

        self._handles.append(register(weak))

    def _quietly(self, function: Callable[..., None], *given: object) -> None:
        """Call a function; store its error instead of raising it."""
        try:
            function(*given)
        except Exception as error:  # any error: the training continues
            self.error = error

    def _begin(self, gradients: tuple[Tensor | None, ...]) -> None:
        self._times = number_of(gradients[0]) or 1.0
        torch.autograd.Variable._execution_engine.queue_callback(self.end)

    def _keep(self, seen: Similarity, gradients: tuple[Tensor | None, ...]) -> None:
        gradient = gradients[0]
        if gradient is not None and seen.gradient is None:
            seen.gradient = gradient.detach().clone()

    def _add(
        self,
        into: dict[Any, Tensor],
        key: object,
        slot: int,
        gradients: tuple[Tensor | None, ...],
        *_: object,
    ) -> None:
        gradient = gradients[slot]
        if gradient is not None:
            before = into.get(key)
            into[key] = gradient.detach().clone() if before is None else before + gradient

    def end(self) -> None:
        """Compute the attributes and release the graph; later calls do nothing."""
        if self._over:
            return
        self._over = True
        self.close()
        self._quietly(self._read)
        self._similarities, self._joins, self._calls = [], {}, []
        self._totals, self._others, self._rows = {}, {}, {}
        if self._done is not None:
            self._done(self)

    @torch.no_grad()
    def _read(self) -> None:
        """Compute the attributes from the values that the hooks kept."""
        if self._similarities or self.known:
            shares = [
                self._share(edge)
                for edge in self._joins
                if edge in self._others and edge in self._totals and bool(self._totals[edge].any())
            ]
            self.explained = min(shares, default=1.0)
        for seen in self._similarities:
            seen.remove_smoothing()
            seen.alpha /= self._times
            seen.recognise_distance()
        self.compared = tables(self._similarities)
        self.paired = bool(self.compared or self.known)
        sizes = [len(views.anchors) for _, views in self.known] + [t.rows for t in self.compared]
        self.rows = max([*sizes, *(seen.picked for seen in self._similarities)], default=0)

    def _share(self, edge: Edge) -> float:
        """Return the share of the gradient at some embeddings that comes from the pairs."""
        # A loss that divides a product by the lengths of its rows compares cosines. The path
        # through the lengths only removes the part of the gradient that would change the lengths.
        total, other = self._totals[edge].float(), self._others[edge].float()
        rows = self._rows.get(edge)
        if rows is not None:
            other = self._without_lengths(edge, rows.float(), other)
            unit = F.normalize(rows.float(), dim=-1)
            along = [(x * unit).sum(dim=-1, keepdim=True) for x in (total, other)]
            if float(along[0].norm()) <= _RADIAL * float(along[1].norm()):
                other = other - along[1] * unit
                for seen in self._similarities:
                    seen.cosine |= edge in seen.rows_at({edge})
        return 1 - float(other.norm() / total.norm())

    def _without_lengths(self, edge: Edge, rows: Tensor, other: Tensor) -> Tensor:
        """Return a path's gradient without the squared lengths of squared distances."""
        # In |x|^2 + |y|^2 - 2 x.y, the gradient of x through |x|^2 is -x times the sum of the
        # derivatives by all products with x.
        sides = [
            (s, s.alpha * s.gradient.float().sum(dim=1 - side))
            for s in self._similarities
            if s.gradient is not None and operation_of(s.node) in ("Mm", "Addmm")
            for side in (0, 1)
            if edge in s.rows_at({edge}, (side,))
        ]
        rest = other
        for _, sums in sides:
            rest = rest + sums.reshape(rows.shape[:-1])[..., None] * rows
        if float(rest.norm()) > _LENGTHS * float(other.norm()):
            return other
        for seen, _ in sides:
            seen.expanded = True
        return rest

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _divisors(node: Node) -> tuple[float, ...]:
    """Return the numbers by which a loss was divided at the end."""
    divisors: list[float] = []
    while (operation := operation_of(node)) in ("Div", "Mul"):
        above, number = edges_above(node.next_functions), number_of(saved_of(node, "other"))
        if len(above) != 1 or number is None:
            break
        divisors.append(number if operation == "Div" else 1 / number)
        node = above[0][0]
    return tuple(divisors)


def _fits(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a matrix may consist of scores selected from each row of another."""
    matrices = len(shape) == len(whole) == 2 and shape[0] == whole[0]
    return shape == whole or (matrices and shape[1] <= whole[1])


def _weights(node: Node) -> list[Tensor]:
    """Return the weights that a node uses: parameters, and a leaf that is a right factor."""
    weights = [parameter_of(above) for above, _ in edges_above(node.next_functions)]
    last = node.next_functions[-1][0] if operation_of(node) in ("Addmm", "Mm") else None
    return [w for w in (*weights, getattr(last, "variable", None)) if w is not None]


class _LossGraph:
    """The part of a loss's graph between the loss and the last weights of the encoder."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.marked: list[Node] = []
        self.users: dict[Edge, list[tuple[Node, int]]] = defaultdict(list)
        self.nodes: list[Node] = []
        self._weighty: set[Node] = set()
        self._scorers: list[Node] = []
        candidates = self._walk()
        # one objective of isotrope is judged by itself; other terms beside it are not read
        first = [n.metadata[MARK][0] for n in self.marked[:1]]
        self.marked = [n for n in self.marked if n.metadata[MARK][0] in first]
        self.similarities = [] if first else self._kept(candidates) or self._scores()
        self._wrong = ""
        for seen in self.similarities:
            paths = softmax_targets.paths_of(seen.hook, self.users_of)
            seen.use = softmax_targets.use_of(paths, seen.node, seen.alpha)
            if seen.use.across:
                self._wrong = _ACROSS
            elif any(softmax_targets.takes_probabilities(path, self.users_of) for path in paths):
                self._wrong = _TWICE
        self.similarities = [] if self._wrong else self.similarities

    def _walk(self) -> list[Similarity]:
        stack, been = [self.root], {self.root}
        candidates = []
        while stack and len(been) < MOST_NODES:
            node = stack.pop()
            self.nodes.append(node)
            if MARK in node.metadata:
                self.marked.append(node)
            if _weights(node):
                self._weighty.add(node)
                if operation_of(node) in ("Addmm", "Mm") and shape_of(node)[1] == 1:
                    self._scorers.append(node)
                continue
            similarity = similarity_of(node)
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
        """Return the given nodes and the nodes they are computed from, down to the weights."""
        return set(walk(starts, lambda node: node in stop or node in self._weighty))

    def _kept(self, candidates: list[Similarity]) -> list[Similarity]:
        """Return the similarities that the loss consists of."""
        # Similarities inside an encoder, behind an embedding, are left out, and so are products of
        # a matrix of similarities with another factor, such as a mask.
        for c in candidates:
            self._move_hook(c)
        candidates = [c for c in candidates if c.read_operands()]
        behind = {id(c): self._below(e[0] for e in c.edges if e is not None) for c in candidates}
        kept = []
        for c in candidates:
            shapes = {shape_of(e[0], e[1]) for e in c.edges if e is not None}
            on_scores = any(
                other.node in behind[id(c)] and any(_fits(s, shape_of(other.node)) for s in shapes)
                for other in candidates
                if other is not c
            )
            if c.whole:  # does it compare similarities, or correlations of dimensions?
                ends = c.roots[0] | c.roots[1]
                on_scores |= any(compares(n) and n not in self._weighty for n in ends)
                a, b = (edge[0] for edge in c.edges if edge is not None)
                on_scores |= a in self._below([b]) or b in self._below([a])  # a reconstruction
            if not on_scores:
                kept.append(c)
        inside = set[Node]().union(*(behind[id(c)] for c in kept))
        kept = [c for c in kept if c.node not in inside]
        return sorted(kept, key=lambda c: c.node._sequence_nr())  # as they were computed

    def _scores(self) -> list[Similarity]:
        """Return scores that a model gives to pairs without embeddings, as a cross-encoder does."""
        tops = [
            self._last_user(node, lambda _, user: operation_of(user) in _AFTER_SCORES)
            for node in self._scorers
        ]
        found = []
        for node in dict.fromkeys(tops):
            shape, value = shape_of(node), value_of((node, 0))
            if value is not None and len(shape) == 2 and shape[1] > _FEW:
                empty = value.new_zeros(shape[0], 0)
                found.append(Similarity(node, "scores", (None, None), node, empty, empty, value))
        return found

    def _move_hook(self, seen: Similarity) -> None:
        """Move the hook to squares of distances, or to token similarities by pairs of texts."""
        viewed = self._last_user(seen.node, lambda _, user: operation_of(user) == "View")
        users = self.users[viewed, 0]
        if seen.kind == "distance" and len(users) == 1 and operation_of(users[0][0]) == "Pow":
            seen.squared = number_of(saved_of(users[0][0], "exponent")) == 2
            seen.hook = users[0][0] if seen.squared else seen.node
        if operation_of(seen.node) not in ("Bmm", "Baddbmm"):
            return
        node, top, reduced = seen.node, seen.node, False
        while True:
            users = self.users[node, 0]
            if len(users) != 1 or operation_of(users[0][0]) not in _REDUCES:
                break
            node = users[0][0]
            if operation_of(node) in ("Max", "Amax"):
                reduced = True
                break
            if operation_of(node) in MOVES and top is not None and len(shape_of(top)) != 4:
                top = node
        if reduced:
            seen.tokens, seen.hook = True, top

    def directions(self, seen: Similarity) -> list[tuple[Node, int]]:
        """Return the nodes that use a similarity if several do, such as one for each direction."""
        if seen.tokens:
            return []
        last = self._last_user(
            seen.top, lambda node, user: softmax_targets.keeps_order(user, shape_of(node))
        )
        users = self.users[last, 0]
        return users if len(users) > 1 else []

    def _last_user(self, node: Node, follows: Callable[[Node, Node], bool]) -> Node:
        """Return the end of a chain of nodes that each use only the one before, if ``follows``."""
        while len(users := self.users[node, 0]) == 1 and follows(node, users[0][0]):
            node = users[0][0]
        return node

    def users_of(self, node: Node) -> list[tuple[Node, int]]:
        """Return the nodes that use an output of a node, and as which of their inputs."""
        return [u for i in range(len(node._input_metadata)) for u in self.users.get((node, i), ())]

    def encoders(self) -> int:
        """Return 2 if the two sides of every similarity come from different weights, else 1.

        Only the last weights before the embeddings count.
        """
        for seen in self.similarities:
            sides = [
                {id(w) for node in self._below([edge[0]]) & self._weighty for w in _weights(node)}
                for edge in seen.edges
                if edge is not None
            ]
            if len(sides) < 2 or not all(sides) or sides[0] & sides[1]:
                return 1
        return 2 if self.similarities else 1

    def joins(self) -> dict[Edge, list[tuple[Node, int]]]:
        """Return the embeddings that a loss also uses without comparing them, and where."""
        seen = {s.node for s in self.similarities} | set(self.marked)
        if not seen:
            return {}
        of_three = [f for s in self.similarities if len(f := s.node.next_functions) == 3]
        added = [f[0][0] for f in of_three if f[0][0] is not None]
        others = self._below([self.root, *added], stop=seen) - seen
        pairs = self._below(
            [e[0] for s in self.similarities for e in s.edges if e is not None]
            + [n for m in self.marked for n, _ in edges_above(m.next_functions)]
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
        if self._wrong:
            return self._wrong
        names = [node.name() for node in self.nodes]
        if any(name.startswith("CompiledFunction") for name in names):
            return "the loss is compiled and cannot be read; compile only the model"
        of_python: Any = torch.autograd.function.BackwardCFunction
        own = [node.name() for node in self.nodes if isinstance(node, of_python)]
        if own:
            return f"the loss is a custom autograd function ({own[0]}), which cannot be read"
        return (
            "the loss does not compare embeddings with each other, but perhaps with class weights, "
            "prototypes or fixed targets; or it compares dimensions, as Barlow Twins does"
        )
