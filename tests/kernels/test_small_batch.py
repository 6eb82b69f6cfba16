"""The one node of small batches against the eager backend, and when it is not taken."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from isotrope.core.hyper import Paper
from isotrope.core.views import Views
from isotrope.kernels import small_batch
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.statistics import Unfused, record
from isotrope.objectives.align_uniform import AlignUniform
from isotrope.objectives.arccon import ArcCon
from isotrope.objectives.dcl import DCLW
from isotrope.objectives.infonce import InfoNCE
from isotrope.objectives.mio import MIOv1, MIOv3
from isotrope.objectives.ntxent import NTXent
from isotrope.paradigm.objective import Objective

OBJECTIVES = [
    InfoNCE(),
    InfoNCE(temperature=0.02).symmetric(),
    DCLW(),
    DCLW(views="both").symmetric(),
    ArcCon(),
    AlignUniform(),  # counts the negatives
    NTXent(),
    MIOv3(),
]


def two(n: int = 7, d: int = 5, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    drawn = torch.randn(2, n, d, generator=generator, dtype=dtype) * 3
    return drawn[0].requires_grad_(), drawn[1].requires_grad_()


def gradients(value: Tensor, *inputs: Tensor, create_graph: bool = False) -> list[Tensor]:
    return list(torch.autograd.grad(value, inputs, create_graph=create_graph))


def node_of(objective: Objective, a: Tensor, b: Tensor) -> set[str]:
    """What the loss was computed by: the names of all nodes of its graph."""
    names: set[str] = set()
    loss = objective(a, b)  # torch 2.5 loses the nodes of a loss that is gone
    ahead = [loss.grad_fn]
    while ahead:
        node = ahead.pop()
        names.add(type(node).__name__)
        ahead += [x for x, _ in node.next_functions if x is not None]
    return names


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("n", [2, 7])
def test_values_and_gradients_are_those_of_the_whole_matrix(objective: Objective, n: int) -> None:
    a, b = two(n)
    assert node_of(objective, a, b) & {"_AcrossViewsBackward", "_OverBothViewsBackward"}
    value, expected = objective(a, b), objective(a, b, backend="eager")
    torch.testing.assert_close(value, expected, rtol=1e-13, atol=1e-13)
    for got, right in zip(gradients(value, a, b), gradients(expected, a, b), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("objective", [InfoNCE().symmetric(), NTXent()], ids=str)
def test_second_derivatives_are_those_of_the_whole_matrix(objective: Objective) -> None:
    a, b = two()
    twice = []
    for backend in ("auto", "eager"):
        once = gradients(objective(a, b, backend=backend), a, b, create_graph=True)
        twice.append(gradients(once[0].square().sum() + once[1].sum(), a, b))
    for got, right in zip(*twice, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-10, atol=1e-12)


def test_second_derivatives_by_one_view_alone() -> None:
    a, b = two()
    b = b.detach()
    (once,) = gradients(InfoNCE()(a, b), a, create_graph=True)
    (right,) = gradients(InfoNCE()(a, b, backend="eager"), a, create_graph=True)
    torch.testing.assert_close(gradients(once.sum(), a), gradients(right.sum(), a))


def test_one_matrix_as_both_views() -> None:
    """Its gradient is the sum of two, once and not twice."""
    a, _ = two()
    for create_graph in (False, True):
        got = gradients(InfoNCE()(a, a), a, create_graph=create_graph)
        torch.testing.assert_close(got, gradients(InfoNCE()(a, a, backend="eager"), a))


def test_a_second_backward_finds_what_the_first_found() -> None:
    a, b = two()
    value = NTXent()(a, b)
    first = torch.autograd.grad(value, (a, b), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(value, (a, b)), first, rtol=0, atol=0)


@pytest.mark.parametrize("bad", [0.0, torch.nan, torch.inf])
def test_rows_without_a_direction_are_those_of_the_whole_matrix(bad: float) -> None:
    """A row of zeros gets no gradient and disturbs no other; one that is not finite is seen."""
    a, b = two()
    with torch.no_grad():
        a[2] = bad
    found = [InfoNCE()(a, b, backend=x) for x in ("auto", "eager")]
    torch.testing.assert_close(found[0], found[1], equal_nan=True)
    got, right = (gradients(x, a, b) for x in found)
    torch.testing.assert_close(got, right, equal_nan=True)
    assert bool(found[0].isfinite()) == (bad == 0)
    assert bad != 0 or not got[0][2].any()


@pytest.mark.parametrize("temperature", [0.017, 1.0])
def test_float32_at_the_lowest_temperature_it_takes(temperature: float) -> None:
    """Similarities of -1 and 1 beside each other: nothing overflows, nothing vanishes."""
    a, b = two(64, 8, torch.float32)
    with torch.no_grad():
        b[:32], a[1:32] = -a[:1], a[0]
    objective = InfoNCE(temperature=temperature).symmetric()
    assert node_of(objective, a, b) & {"_AcrossViewsBackward", "_OverBothViewsBackward"}
    value = objective(a, b)
    exact = objective(a.double(), b.double(), backend="eager")
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=0)
    right = gradients(exact, a, b)
    for got, expected in zip(gradients(value, a, b), right, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


def test_what_it_does_not_take() -> None:
    a, b = two(4)
    assert not small_batch.takes(Views(a[:1], b[:1]))
    assert not small_batch.takes(Views(a[:2], b))
    assert not small_batch.takes(Views(a, b, a[:1]))
    assert not small_batch.takes(Views(a, b, groups=torch.arange(4)))
    assert not small_batch.takes(Views(a, b, in_batch=False))
    rows = math.isqrt(small_batch.SMALL_BYTES // 8) + 1
    assert not small_batch.takes(Views(a[:1].expand(rows, -1), b[:1].expand(rows, -1)))
    with torch.autograd.forward_ad.dual_level():
        assert not small_batch.takes(Views(a, b))


def test_over_both_views_the_matrix_is_four_times_as_large() -> None:
    n = math.isqrt(small_batch.SMALL_BYTES // 4) // 2 + 1
    x = torch.eye(1, 2).expand(n, 2)
    assert small_batch.takes(Views(x, x))
    questions = record(NTXent().formula, torch.float32)
    with pytest.raises(Unfused, match="matrix of both views takes more than 4 MB"):
        small_batch.directions(Views(x, x), questions, both=True)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (MIOv1(), "not a log-sum-exp"),
        (InfoNCE(temperature=0.01), "could overflow"),
        (NTXent(), "not a log-sum-exp over the other view or over both"),  # one direction of it
    ],
    ids=["softplus", "cold", "half"],
)
def test_formulas_that_take_another_way(objective: Objective, message: str) -> None:
    a, b = two(4, dtype=torch.float32)
    questions = record(objective.formula, torch.float32)
    with pytest.raises(Unfused, match=message):
        small_batch.directions(Views(a, b), questions, both=False)
    with pytest.raises(Unfused, match="several temperatures, or one that is not constant"):
        small_batch.directions(Views(a, b), replace(questions, lasting=False), both=True)
    torch.testing.assert_close(objective(a, b), objective(a, b, backend="eager"))


class Prepared(Objective, register=False):
    """InfoNCE that adds groups or negatives to its views."""

    adds: str

    def prepare(self, views: Views) -> Views:
        added = {"groups": torch.arange(len(views.anchors)) // 2, "negatives": views.anchors + 1}
        return super().prepare(replace(views, **{self.adds: added[self.adds]}))

    def formula(self, pairs: Pairs) -> Tensor:
        return pairs.gap(0.5)


@pytest.mark.parametrize("adds", ["groups", "negatives"])
def test_what_an_objective_adds_to_its_views_counts(adds: str) -> None:
    a, b = two()
    objective = Prepared(adds=adds)
    torch.testing.assert_close(objective(a, b), objective(a, b, backend="eager"))


class Changing(Objective, register=False):
    """Asks for gaps where there are as many rows as are made up for it, else for what it names."""

    otherwise: str
    name, paper = "changing", Paper("none", "none", "none")

    def formula(self, pairs: Pairs) -> Tensor:
        gap = pairs.gap(0.1)
        if len(gap) == 4:
            return gap
        return pairs.positive if self.otherwise == "positive" else pairs.logsumexp(0.1)


@pytest.mark.parametrize("otherwise", ["positive", "logsumexp"])
def test_a_formula_that_asks_for_more_than_recorded_takes_another_way(otherwise: str) -> None:
    a, b = two(7)
    objective = Changing(otherwise=otherwise)
    assert record(objective.formula, torch.float64).gaps
    torch.testing.assert_close(objective(a, b), objective(a, b, backend="eager"))


def test_negatives_are_counted_over_the_views_that_the_formula_names() -> None:
    """A log-sum-exp across the views beside a count over both."""

    class Counting(Objective, register=False):
        name, paper = "counting", Paper("none", "none", "none")

        def formula(self, pairs: Pairs) -> Tensor:
            return pairs.logsumexp(0.1) + pairs.count("both") + 100 * pairs.count("within")

    a, b = two(7)
    torch.testing.assert_close(Counting()(a, b), Counting()(a, b, backend="eager"))
