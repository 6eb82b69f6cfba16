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
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from math import isfinite
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from isotrope.core.autograd import MARK
from isotrope.paradigm import softmax_targets
from isotrope.paradigm.compared import Compared, joined
from isotrope.paradigm.graph import Edge, Node, number_of, operation_of, trained_by
from isotrope.paradigm.loss_graph import LossGraph, divisors_of
from isotrope.paradigm.operands import tables
from isotrope.paradigm.similarity import Similarity

_Gradients = tuple[Tensor | None, ...]  # of the inputs or outputs of a node
_NOTHING = "the loss is 0: perhaps the batch has one row, one label, or no two equal labels"
_LENGTHS = 0.02  # share of a path's gradient that squared lengths may leave unexplained
_RADIAL = 0.02  # share of one path's radial gradient that may be left in the sum of all paths


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
        is_negated: Whether ``backward()`` was called on a negative multiple of the loss.
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
        self.divisors, self.weights = divisors_of(root), trained_by(root)
        self._done, self._over, self._times, self.is_negated = done, False, 1.0, False
        self._handles: list[Any] = []
        self._calls: list[tuple[Any, ...]] = []
        self._totals: dict[Edge, Tensor] = {}
        self._rows: dict[Edge, Tensor] = {}
        self._others: dict[Edge, Tensor] = {}
        graph = LossGraph(root)
        self.known: list[tuple[Any, Any]] = [node.metadata[MARK] for node in graph.marked]
        self._similarities = graph.similarities
        self._joins, self.encoders = graph.joins(), graph.encoders()
        self.rows, self.paired = 0, False
        for seen in self._similarities:
            self._rows |= seen.rows_at(self._joins)
        if not self._similarities and not self.known:
            self.reason = graph.reason() if self.loss else _NOTHING
        self._listen(root, graph)

    def _listen(self, root: Node, graph: LossGraph) -> None:
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
            self._hook(edge.node.register_prehook, self._add, self._totals, edge, edge.output)
            for node, slot in others:
                self._hook(node.register_hook, self._add, self._others, edge, slot)

    def _hook(self, register: Callable[..., Any], *call: Any) -> None:
        """Register a hook that does nothing once the reading has been deleted."""
        # Python cannot free a cycle through nodes, so only the hook of the root holds the reading
        reading, place = weakref.ref(self), len(self._calls)
        self._calls.append(call)

        def weak(*gradients: object) -> None:
            if (alive := reading()) is not None:
                alive._quietly(*alive._calls[place], *gradients)

        self._handles.append(register(weak))

    def _quietly(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function; store its error instead of raising it."""
        try:
            function(*arguments)
        except Exception as error:  # any error: the training continues
            self.error = error

    def _begin(self, gradients: _Gradients) -> None:
        self._times = number_of(gradients[0]) or 1.0
        self.is_negated = self._times < 0
        torch.autograd.Variable._execution_engine.queue_callback(self.end)

    def _keep(self, seen: Similarity, gradients: _Gradients) -> None:
        gradient = gradients[0]
        if gradient is not None and seen.gradient is None:
            seen.gradient = gradient.detach().clone()

    def _add(
        self, into: dict[Any, Tensor], key: object, slot: int, gradients: _Gradients, *_: object
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


class BatchReadings:
    """The readings of the backward passes of one batch: at least one, and all of them have ended.

    Only ``paired`` readings found pairs. ``loss`` and the gradients of the ``tables`` have the
    ``sign`` that ``backward()`` was called with. ``unexplained`` is the share of the gradient on
    the embeddings that does not come from pairs.
    """

    def __init__(self, readings: list[GraphReading]) -> None:
        self.paired = [reading for reading in readings if reading.paired]
        self.known = [one for reading in self.paired for one in reading.known]
        self.rows = max((reading.rows for reading in self.paired), default=0)
        self.sign = -1 if any(reading.is_negated for reading in readings) else 1
        self.loss = self.sign * sum(reading.loss for reading in self.paired or readings[-1:])
        self.divisors = {x for reading in self.paired or readings for x in reading.divisors}
        tables = [table for reading in self.paired for table in reading.compared]
        self.tables = [replace(table, gradient=self.sign * table.gradient) for table in tables]
        shares = [1.0 if one.explained is None else one.explained for one in self.paired]
        self.unexplained = 1 - min(shares, default=1.0)
        # GradScaler skips a step whose gradient exceeds the range of half precision
        beyond = any(t.is_rounded and not t.gradient.isfinite().all() for t in tables)
        self.exceeds_half_precision = beyond and all(isfinite(one.loss) for one in readings)

    @cached_property
    def compared(self) -> list[Compared]:
        """The tables, joined if they share a softmax; none beside an objective of isotrope."""
        if self.known:
            return []
        # a gradient cache shows the pairs of its first readings only
        shown = sum(reading.rows for reading in self.paired if reading.compared)
        share = sum(reading.rows for reading in self.paired) / shown
        return [replace(table, rows=round(share * table.rows)) for table in joined(self.tables)]

    @property
    def pushes_any(self) -> bool:
        """Whether any row may be pushed from any other, since there are no groups and no mask."""
        masks = [t.mask[:, t.gradient.argmin(dim=1)] for t in self.compared]
        has_groups = any(views.groups is not None for _, views in self.known)
        return not has_groups and all(bool(mask.all()) for mask in masks)
