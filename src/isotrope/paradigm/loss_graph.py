"""Chooses the similarities of embeddings in the autograd graph of a loss."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
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


class LossGraph:
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
        self.similarities = [] if first else self._choose(candidates) or self._scores()
        self.slip = ""  # what is wrong with the scores of a softmax
        for seen in self.similarities:
            paths = softmax_targets.paths_of(seen.hook, self.users_of)
            seen.use = softmax_targets.use_of(paths, seen.node, seen.alpha)
            if seen.use.across:
                self.slip = _ACROSS
            elif any(softmax_targets.takes_probabilities(path, self.users_of) for path in paths):
                self.slip = _TWICE
        self.similarities = [] if self.slip else self.similarities

    def _walk(self) -> list[Similarity]:
        """Store the nodes and their users, down to the weights; return all similarities."""
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
            if (similarity := similarity_of(node)) is not None:
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

    def _choose(self, candidates: list[Similarity]) -> list[Similarity]:
        """Move hooks, read operands, and return the similarities that the loss consists of."""
        # Similarities inside an encoder, behind an embedding, are left out, and so are products of
        # a matrix of similarities with another factor, such as a mask.
        for c in candidates:
            self._hook_square(c)
            self._hook_token_scores(c)
        candidates = [c for c in candidates if c.read_operands()]
        behind = {id(c): self._below(e[0] for e in c.edges if e is not None) for c in candidates}
        outer = []
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
                outer.append(c)
        inside = set[Node]().union(*(behind[id(c)] for c in outer))
        outer = [c for c in outer if c.node not in inside]
        return sorted(outer, key=lambda c: c.node._sequence_nr())  # as they were computed

    def _scores(self) -> list[Similarity]:
        """Return scores that a model gives to pairs without embeddings, as a cross-encoder does."""
        tops = [
            self._last_user(node, lambda _, user: operation_of(user) in _AFTER_SCORES)
            for node in self._scorers
        ]
        scores = []
        for node in dict.fromkeys(tops):
            shape, value = shape_of(node), value_of((node, 0))
            if value is not None and len(shape) == 2 and shape[1] > _FEW:
                empty = value.new_zeros(shape[0], 0)
                scores.append(Similarity(node, "scores", (None, None), node, empty, empty, value))
        return scores

    def _hook_square(self, seen: Similarity) -> None:
        """Move the hook of a distance to its square, if the loss squares it."""
        viewed = self._last_user(seen.node, lambda _, user: operation_of(user) == "View")
        users = self.users[viewed, 0]
        if seen.kind == "distance" and len(users) == 1 and operation_of(users[0][0]) == "Pow":
            seen.squared = number_of(saved_of(users[0][0], "exponent")) == 2
            seen.hook = users[0][0] if seen.squared else seen.node

    def _hook_token_scores(self, seen: Similarity) -> None:
        """Move the hook of a product to the token similarities of which the loss takes maxima."""
        if operation_of(seen.node) not in ("Bmm", "Baddbmm"):
            return
        node = top = seen.node
        while len(users := self.users[node, 0]) == 1 and operation_of(users[0][0]) in _REDUCES:
            node = users[0][0]
            if operation_of(node) in ("Max", "Amax"):
                seen.tokens, seen.hook = True, top
                return
            if operation_of(node) in MOVES and len(shape_of(top)) != 4:
                top = node

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
        # addmm and baddbmm add their first operand, which is not compared
        of_three = [f for s in self.similarities if len(f := s.node.next_functions) == 3]
        added = [f[0][0] for f in of_three if f[0][0] is not None]
        others = self._below([self.root, *added], stop=seen) - seen
        pairs = self._below(
            [e[0] for s in self.similarities for e in s.edges if e is not None]
            + [n for m in self.marked for n, _ in edges_above(m.next_functions)]
        )
        joins = {}
        for edge, users in self.users.items():
            weight = isinstance(getattr(edge[0], "variable", None), nn.Parameter)
            if edge[0] in pairs and edge[0] in others and not weight:
                outside = [u for u in users if u[0] in others and u[0] not in pairs]
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
        return (
            "the loss does not compare embeddings with each other, but perhaps with class weights, "
            "prototypes or fixed targets; or it compares dimensions, as Barlow Twins does"
        )
