"""Random formulas over row statistics, of every coupling that an objective can declare."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from isotrope.core.hyper import Paper
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.objective import Objective

Tree = tuple[Any, ...]

_OF_ROWS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "relu": lambda x, c: torch.relu(x - c),
    "clamp": lambda x, c: x.clamp(-abs(c), abs(c) + 0.5),
    "softplus": lambda x, c: torch.nn.functional.softplus(x * (1 + c)),
    "tanh": lambda x, c: torch.tanh(x + c),
    "scale": lambda x, c: c * x,
    "bounded exponential": lambda x, c: torch.exp(torch.tanh(x) * c),
    "detach": lambda x, c: x.detach() + c,
}
_TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "multiply": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}
_OF_BATCH: dict[str, Callable[[Tensor, float], Tensor]] = {
    "centred": lambda x, c: x - x.mean(),
    "hinge of the mean": lambda x, c: torch.relu(x.mean() - c) + x,
    "times the mean": lambda x, c: x * (1 + torch.tanh(x.mean())),
    "shares": lambda x, c: len(x) * torch.tanh(x).softmax(dim=0),
    "normaliser": lambda x, c: x - torch.tanh(x).logsumexp(dim=0),
    "over the maximum": lambda x, c: x - x.max(),
    "of the whole sum": lambda x, c: x + torch.relu(torch.tanh(x).sum() - c),
    "constant mean": lambda x, c: x * torch.sigmoid(x.mean().detach()),
}


class Random(Objective, register=False):
    """A loss that nobody wrote.

    Attributes:
        tree: the formula, nested.
        declared: the coupling that is claimed.
        temperature: of all statistics, or of those that have no other.
        one_number: the formula returns its mean.
    """

    tree: Tree
    declared: Coupling
    temperature: Any = 0.3
    one_number: bool = False

    name = "random"
    paper = Paper("none", "none", "none")

    @property
    def coupling(self) -> Coupling:
        return self.declared

    def formula(self, pairs: Pairs) -> Tensor:
        value = self._of(self.tree, pairs)
        return value.mean() if self.one_number else value

    def _of(self, tree: Tree, pairs: Pairs) -> Tensor:
        kind, *rest = tree
        if kind == "positive":
            return pairs.positive
        if kind == "temperature":
            return pairs.positive + self.temperature
        if kind in ("sum", "sums"):  # of exponentials over the negatives: e^lse, and of the batch
            lse = pairs.logsumexp(self.temperature)
            sums = lse.masked_fill(lse == -torch.inf, -50.0).exp() / 100
            return sums if kind == "sum" else sums.sum() + torch.zeros_like(sums)
        if kind == "count":
            return pairs.count(rest[0]) / 10
        if kind == "hardest":
            return _finite(pairs.hardest(rest[0]))
        if kind == "logsumexp":
            against, factor = rest
            temperature = self.temperature if factor == 1 else factor * self.temperature
            return _finite(pairs.logsumexp(temperature, against))
        if kind == "binary":
            return pairs.softplus(self.temperature, rest[0]) / 10
        if kind in _TWO:
            return _TWO[kind](self._of(rest[0], pairs), self._of(rest[1], pairs))
        of = _OF_ROWS if kind in _OF_ROWS else _OF_BATCH
        return of[kind](self._of(rest[0], pairs), rest[1])


def _finite(x: Tensor) -> Tensor:
    """Anchors without negatives are set aside."""
    return x.masked_fill(x == -torch.inf, 0.0)


_NUMBERS = st.sampled_from([-1.5, -0.7, -0.2, 0.3, 0.8, 2.0, 5.0])
_POSITIVES: st.SearchStrategy[Tree] = st.sampled_from(
    [("positive",), ("positive",), ("temperature",)]
)


def _statistics(where: list[str]) -> st.SearchStrategy[Tree]:
    against = st.sampled_from(where)
    return st.one_of(
        st.tuples(st.just("logsumexp"), against, st.just(1)),
        st.tuples(st.just("logsumexp"), against, st.just(1)),
        st.tuples(st.just("binary"), against),
        st.tuples(st.just("hardest"), against),
        st.tuples(st.just("count"), against),
    )


def _trees(leaves: st.SearchStrategy[Tree], single: list[str]) -> st.SearchStrategy[Tree]:
    return st.recursive(
        leaves,
        lambda x: st.one_of(
            st.tuples(st.sampled_from(single), x, _NUMBERS),
            st.tuples(st.sampled_from(list(_TWO)), x, x),
        ),
        max_leaves=5,
    )


_ALL = ["cross", "within", "both"]
_ROWS, _EVERY = list(_OF_ROWS), [*_OF_ROWS, *_OF_BATCH]
_BESIDES = _trees(_POSITIVES, _EVERY)  # any function of the positives


def _plus(*terms: Tree) -> Tree:
    first, *rest = terms
    return ("add", first, _plus(*rest)) if rest else first


@st.composite
def _tree(draw: st.DrawFn, coupling: Coupling) -> Tree:
    """A formula that is coupled as this says, or less."""
    if coupling == "batch":
        other = draw(st.sampled_from([1, 1, 1, 2]))  # sometimes a second temperature
        more = ("logsumexp", draw(st.sampled_from(_ALL)), other)
        return _plus(draw(_trees(_POSITIVES | _statistics(_ALL), _EVERY)), more)
    own = _POSITIVES | _statistics(["cross"])
    if coupling == "none":
        return _plus(draw(_trees(own, _ROWS)), ("logsumexp", "cross", 1))
    if coupling == "positives":
        weight, function = draw(_BESIDES), draw(_trees(own, _ROWS))
        return _plus(draw(_BESIDES), ("multiply", weight, function))
    if coupling == "linear":
        return _plus(draw(_BESIDES), ("multiply", draw(_BESIDES), draw(_LINEAR)))
    return draw(_trees(_POSITIVES | st.just(("sums",)), _EVERY))


_LINEAR = st.sampled_from([("sum",), ("binary", "cross"), ("binary", "both")])


@st.composite
def coupled_trees(draw: st.DrawFn) -> Tree:
    """A formula whose anchors are coupled by what their negatives say, in ways that vary."""
    across = _trees(_POSITIVES | _statistics(["cross"]), _ROWS)
    inside = _plus(("scale", ("logsumexp", "cross", 1), draw(_NUMBERS)), draw(across))
    couples = (draw(st.sampled_from(list(_OF_BATCH))), inside, draw(_NUMBERS))
    return _plus(couples, (draw(st.sampled_from(_ROWS)), draw(across), draw(_NUMBERS)))


@st.composite
def random_objectives(
    draw: st.DrawFn, coupling: Coupling, declared: Coupling | None = None
) -> Random:
    """An objective with a random formula of a coupling, or one that declares it wrongly."""
    return Random(
        tree=draw(_tree(coupling) if declared is None else coupled_trees()),
        declared=coupling if declared is None else declared,
        temperature=draw(st.sampled_from([0.1, 0.3, 1.0])),
        one_number=coupling == "total"
        or ((declared or coupling) != "none" and draw(st.booleans())),
    )
