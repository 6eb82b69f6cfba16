"""Chooses the similarities of embeddings in the autograd graph of a loss."""

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from isotrope.core.autograd import MARK
from isotrope.paradigm import softmax_targets
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
    value_of,
    walk,
)
from isotrope.paradigm.similarity import Similarity, compares, similarity_of

_REDUCES = MOVES | SCALES | {"Max", "Amax", "Sum", "MaskedFill", "Where", "IndexPut"}
_AFTER_SCORES = MOVES | {"Sigmoid", "Tanh"}  # operations on the scores that a model itself computes
_ACROSS = (
    "the softmax needs dim=1: it is taken over the anchors (dim=0), although the loss concatenates "
    "the scores of each anchor along dimension 1, so that positives compete with each other"
)
_TWICE = (
    "cross_entropy needs the scores and nll_loss their log_softmax: the loss passes probabilities "
    "(the result of a softmax), so that its gradient is weak where anchors are far from done"
)
_FEW = 2  # most scores of an anchor in pairs or triplets, which have no in-batch negatives


def divisors_of(node: Node) -> tuple[float, ...]:
    """Return the numbers by which a loss was divided at the end."""
    divisors: list[float] = []
    while (operation := operation_of(node)) in ("Div", "Mul"):
        above, number = edges_above(node.next_functions), number_of(saved_of(node, "other"))
        if len(above) != 1 or number is None:
            break
        divisors.append(number if operation == "Div" else 1 / number)
        node = above[0].node
    return tuple(divisors)


def _fits(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a matrix may consist of scores selected from each row of another."""
    matrices = len(shape) == len(whole) == 2 and shape[0] == whole[0]
    return shape == whole or (matrices and shape[1] <= whole[1])


def _weights(node: Node) -> list[Tensor]:
    """Return the weights that a node uses: parameters, and a leaf that is a right factor."""
    weights = [parameter_of(above.node) for above in edges_above(node.next_functions)]
    last = node.next_functions[-1][0] if operation_of(node) in ("Addmm", "Mm") else None
    return [w for w in (*weights, getattr(last, "variable", None)) if w is not None]


def _multiplies_scores(similarity: Similarity, behind: list[Similarity]) -> bool:
    """Whether an operand may be a matrix of similarities ``behind`` it; the other may be a mask."""
    shapes = {shape_of(*edge) for edge in similarity.inputs}
    scores = [shape_of(other.node) for other in behind if other is not similarity]
    return any(_fits(shape, whole) for shape in shapes for whole in scores)


class LossGraph:
    """The part of a loss's graph between the loss and the last weights of the encoder.

    If this part has more than ``MOST_NODES`` nodes, only so many are read. Similarities may then be
    missing; if all are, :meth:`reason` says so.

    Attributes:
        nodes: The nodes of this part; the first computes the loss.
        users: The nodes that use an output of a node, each with the number of its input.
        marked: Nodes of the first objective of isotrope; other terms beside it are not read.
        similarities: The similarities that the loss consists of, as they were computed; empty if
            there are marked nodes or a slip.
        slip: What is wrong with the scores of a softmax; empty if nothing is.
    """

    def __init__(self, root: Node) -> None:
        self.nodes: list[Node] = []
        self.users: dict[Edge, list[tuple[Node, int]]] = {}
        self._weighty: set[Node] = set()
        self._walk(root)
        marked = [node for node in self.nodes if MARK in node.metadata]
        first = [node.metadata[MARK][0] for node in marked[:1]]
        self.marked = [node for node in marked if node.metadata[MARK][0] in first]
        self.similarities = [] if first else self._choose() or self._scores()
        self.slip = self._read_uses()
        self.similarities = [] if self.slip else self.similarities

    def _walk(self, root: Node) -> None:
        """Store the nodes and their users, down to the weights."""
        for node in islice(walk([root], lambda node: node in self._weighty), MOST_NODES):
            self.nodes.append(node)
            if _weights(node):
                self._weighty.add(node)
                continue
            for slot, (other, output) in enumerate(node.next_functions):
                if other is not None:
                    self.users.setdefault(Edge(other, output), []).append((node, slot))

    def _read_uses(self) -> str:
        """Store how the loss uses each similarity, and return ``slip``."""
        slip = ""
        for similarity in self.similarities:
            paths = softmax_targets.paths_of(similarity.hook, self.users_of)
            similarity.use = softmax_targets.use_of(paths, similarity.node, similarity.alpha)
            if similarity.use.across:
                slip = _ACROSS
            elif any(softmax_targets.takes_probabilities(path, self.users_of) for path in paths):
                slip = _TWICE
        return slip

    def _below(self, starts: Iterable[Node], stop: Collection[Node] = ()) -> set[Node]:
        """Return the given nodes and the nodes they are computed from, down to the weights."""
        return set(walk(starts, lambda node: node in stop or node in self._weighty))

    def _choose(self) -> list[Similarity]:
        """Return the similarities that the loss consists of, with their hooks and operands."""
        candidates = []
        for node in self.nodes:
            c = None if node in self._weighty else similarity_of(node)
            if c is not None:
                self._hook_square(c)
                self._hook_token_scores(c)
                candidates += [c] if c.read_operands() else []
        behind = {c.node: self._below(edge.node for edge in c.inputs) for c in candidates}
        outer = [
            c
            for c in candidates
            if not _multiplies_scores(c, [o for o in candidates if o.node in behind[c.node]])
            and not (c.whole and (self._compares_scores(c) or self._compares_reconstruction(c)))
        ]
        in_encoder = set[Node]().union(*(behind[c.node] for c in outer))  # behind an embedding
        outer = [c for c in outer if c.node not in in_encoder]
        return sorted(outer, key=lambda c: c.node._sequence_nr())  # as they were computed

    def _compares_scores(self, similarity: Similarity) -> bool:
        """Whether operands are themselves similarities, or correlations of dimensions."""
        roots = similarity.roots[0] | similarity.roots[1]
        return any(compares(node) and node not in self._weighty for node in roots)

    def _compares_reconstruction(self, similarity: Similarity) -> bool:
        """Whether one of the two operands is computed from the other."""
        a, b = (edge.node for edge in similarity.inputs)
        return a in self._below([b]) or b in self._below([a])

    def _scores(self) -> list[Similarity]:
        """Return scores that a model gives to pairs without embeddings, as a cross-encoder does."""
        tops = [
            self._last_user(node, lambda _, user: operation_of(user) in _AFTER_SCORES)
            for node in self.nodes
            if operation_of(node) in ("Addmm", "Mm") and shape_of(node)[1] == 1 and _weights(node)
        ]
        scores = []
        for node in dict.fromkeys(tops):
            shape, value = shape_of(node), value_of(Edge(node, 0))
            if value is not None and len(shape) == 2 and shape[1] > _FEW:
                empty = value.new_zeros(shape[0], 0)
                scores.append(Similarity(node, "scores", (None, None), node, empty, empty, value))
        return scores

    def _hook_square(self, similarity: Similarity) -> None:
        """Move the hook of a distance to its square, if the loss squares it."""
        node = similarity.node
        viewed = self._last_user(node, lambda _, user: operation_of(user) == "View")
        power = self._only_user(viewed)
        if similarity.kind == "distance" and power is not None and operation_of(power) == "Pow":
            similarity.squared = number_of(saved_of(power, "exponent")) == 2
            similarity.hook = power if similarity.squared else node

    def _hook_token_scores(self, similarity: Similarity) -> None:
        """Move the hook of a product to the token similarities of which the loss takes maxima."""
        if operation_of(similarity.node) not in ("Bmm", "Baddbmm"):
            return
        node = top = similarity.node
        while (node := self._only_user(node)) is not None and operation_of(node) in _REDUCES:
            if operation_of(node) in ("Max", "Amax"):
                similarity.tokens, similarity.hook = True, top
                return
            if operation_of(node) in MOVES and len(shape_of(top)) != 4:
                top = node

    def directions(self, similarity: Similarity) -> list[tuple[Node, int]]:
        """Return the nodes that use a similarity if several do, such as one for each direction."""
        if similarity.tokens:
            return []
        last = self._last_user(
            similarity.top, lambda node, user: softmax_targets.keeps_order(user, shape_of(node))
        )
        users = self.users.get(Edge(last, 0), [])
        return users if len(users) > 1 else []

    def _only_user(self, node: Node) -> Node | None:
        """Return the node that uses the first output of a node; None if several or none do."""
        users = self.users.get(Edge(node, 0), [])
        return users[0][0] if len(users) == 1 else None

    def _last_user(self, node: Node, follows: Callable[[Node, Node], bool]) -> Node:
        """Return the end of a chain of nodes that each use only the one before, if ``follows``."""
        while (user := self._only_user(node)) is not None and follows(node, user):
            node = user
        return node

    def users_of(self, node: Node) -> list[tuple[Node, int]]:
        """Return the nodes that use an output of a node, and as which of their inputs."""
        outputs = [Edge(node, index) for index in range(len(node._input_metadata))]
        return [user for output in outputs for user in self.users.get(output, ())]

    def encoders(self) -> int:
        """Return 2 if the two sides of every similarity come from different weights, else 1.

        Only the last weights before the embeddings count.
        """
        for similarity in self.similarities:
            sides = [
                {id(w) for node in self._below([edge.node]) & self._weighty for w in _weights(node)}
                for edge in similarity.inputs
            ]
            if len(sides) < 2 or not all(sides) or sides[0] & sides[1]:
                return 1
        return 2 if self.similarities else 1

    def joins(self) -> dict[Edge, list[tuple[Node, int]]]:
        """Return the embeddings that a loss also uses without comparing them, and where."""
        compared = {s.node for s in self.similarities} | set(self.marked)
        if not compared:
            return {}
        # addmm and baddbmm add their first operand, which is not compared
        of_three = [f for s in self.similarities if len(f := s.node.next_functions) == 3]
        added = [edge.node for edge in edges_above(first for first, *_ in of_three)]
        others = self._below([self.nodes[0], *added], stop=compared) - compared
        edges = [edge for s in self.similarities for edge in s.inputs]
        edges += [edge for node in self.marked for edge in edges_above(node.next_functions)]
        pairs = self._below(edge.node for edge in edges)
        joins = {}
        for edge, users in self.users.items():
            is_weight = isinstance(getattr(edge.node, "variable", None), nn.Parameter)
            if edge.node in pairs and edge.node in others and not is_weight:
                outside = [(n, slot) for n, slot in users if n in others and n not in pairs]
                if outside:
                    joins[edge] = outside
        return joins

    def reason(self) -> str:
        """Return why no pair was found."""
        if self.slip:
            return self.slip
        if any(node.name().startswith("CompiledFunction") for node in self.nodes):
            return "the loss is compiled and cannot be read; compile only the model"
        of_python: Any = torch.autograd.function.BackwardCFunction
        own = [node.name() for node in self.nodes if isinstance(node, of_python)]
        if own:
            return f"the loss is a custom autograd function ({own[0]}), which cannot be read"
        if len(self.nodes) == MOST_NODES:
            return (
                f"only {MOST_NODES:,} operations of the loss are read, and they do not compare "
                "embeddings; compute the similarities of a batch in one product, not in a loop"
            )
        return (
            "the loss does not compare embeddings with each other, but perhaps with class weights, "
            "prototypes or fixed targets; or it compares dimensions, as Barlow Twins does"
        )
