"""What is wrong with components, in words: one mistake at a time in those of InfoNCE."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.objectives import BarlowTwins, InfoNCE, NTXent
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.objective_check import _finite, mistakes
from isotrope.paradigm.proof import degenerate, not_finite

SAME, BOTH = "that of the formula", "the components, or correct the formula"


def wrong(change: Callable[[Terms], Terms]) -> Objective:
    class Wrong(Objective, register=False):
        def formula(self, pairs: Pairs) -> Tensor:
            return InfoNCE(temperature=0.5).formula(pairs)

        def components(self, pairs: Pairs) -> Terms:
            return change(InfoNCE(temperature=0.5).components(pairs))

    return Wrong()


EACH = rf"[\d.]+ to [\d.]+ times {SAME}"
OTHER = rf"not in proportion to {SAME}: [\d.]+ in place of [\d.]+ for anchor \d and candidate \d"


@pytest.mark.parametrize(
    ("change", "push", "pull", "cause"),
    [
        (
            lambda t: replace(t, weight=t.weight / 2),
            f"0.5 times {SAME}",
            SAME,
            f"correct W in {BOTH}",
        ),
        (
            lambda t: replace(t, pull=-t.pull),
            SAME,
            f"-1 times {SAME}",
            f"change the sign of the pull (R) in {BOTH}",
        ),
        (
            lambda t: replace(t, scale=1.0),
            f"4 times {SAME}",
            f"4 times {SAME}",
            f"correct GD or scale in {BOTH}: push and pull have",
        ),
        (
            lambda t: replace(t, dissipation=t.dissipation**2),
            EACH,
            EACH,
            f"correct GD in {BOTH}",
        ),
        (
            lambda t: replace(t, weight=t.weight**2),
            OTHER,
            SAME,
            f"correct W in {BOTH}",
        ),
        (
            lambda t: replace(t, pull=t.pull * t.dissipation),
            SAME,
            EACH,
            f"correct the pull (R) in {BOTH}",
        ),
    ],
    ids=["1/tau in W", "sign of the pull", "1/n in scale", "GD", "W", "R"],
)
def test_each_mistake_is_named(change, push: str, pull: str, cause: str) -> None:
    pushes, pulls, last = mistakes(wrong(change))
    assert re.fullmatch(f"the push, scale x GD x W, is {push}", pushes)
    assert re.fullmatch(f"the pull, scale x GD x pull, is {pull}", pulls)
    assert last.startswith(cause)


@pytest.mark.parametrize(("power", "remedy"), [(1, "1 / temperature"), (-1, "temperature")])
def test_a_factor_that_is_a_number_of_the_loss_is_named(power: int, remedy: str) -> None:
    class Wrong(InfoNCE, register=False):
        def components(self, pairs: Pairs) -> Terms:
            terms, factor = super().components(pairs), self.temperature**power
            return replace(terms, weight=factor * terms.weight, pull=factor * terms.pull)

    *_, last = mistakes(Wrong(temperature=0.07))
    assert last.startswith(f"multiply weight and pull by {remedy} in")


def test_each_number_with_the_value_of_the_factor_is_named() -> None:
    class Two(InfoNCE, register=False):
        kappa: float = 0.07

        def components(self, pairs: Pairs) -> Terms:
            terms = super().components(pairs)
            return replace(terms, weight=self.kappa * terms.weight)

    *_, last = mistakes(Two(temperature=0.07))
    assert last.startswith("multiply weight by 1 / temperature or 1 / kappa in the components")
    *_, last = mistakes(Two(temperature=0.07, kappa=0.3))
    assert last.startswith("multiply weight by 1 / kappa in the components")


@pytest.mark.parametrize("detached", ["logsumexp", "positive"])
def test_a_detach_in_the_formula_is_a_cause_that_is_named(detached: str) -> None:
    class Held(InfoNCE, register=False):
        def formula(self, pairs: Pairs) -> Tensor:
            push, pull = pairs.logsumexp(self.temperature), pairs.positive / self.temperature
            return push.detach() - pull if detached == "logsumexp" else push - pull.detach()

        def components(self, pairs: Pairs) -> Terms:
            terms = super().components(pairs)
            return replace(terms, dissipation=torch.ones_like(terms.dissipation))

    pushes, pulls, last = mistakes(Held())
    missing, right = (pushes, pulls) if detached == "logsumexp" else (pulls, pushes)
    assert right.endswith(f"is {SAME}")
    assert missing.endswith("but 0 in the formula")
    assert "detach()" in last


def test_a_small_loss_is_held_to_the_same() -> None:
    class Tiny(Objective, register=False):
        def formula(self, pairs: Pairs) -> Tensor:
            return 1e-12 * InfoNCE(temperature=0.5).formula(pairs)

        def components(self, pairs: Pairs) -> Terms:
            return replace(InfoNCE(temperature=0.5).components(pairs), scale=1e-12)

    assert [line.endswith(f"is 4 times {SAME}") for line in mistakes(Tiny())[:2]] == [True, True]


def test_a_wrong_view_and_a_wrong_residual_leave_something_over() -> None:
    *_, last = mistakes(wrong(lambda t: replace(t, against="within")))
    assert last.startswith("correct against='within' or the residual: ")
    kick = torch.ones(4, 16, dtype=torch.float64)
    *_, last = mistakes(wrong(lambda t: replace(t, residual=kick)))
    assert last.startswith("correct against='cross' or the residual: ")


def test_what_is_right_is_said_to_be() -> None:
    said = ["try the batch named above: push and pull are right on 4 x 16 random embeddings"]
    assert mistakes(InfoNCE()) == mistakes(NTXent()) == said


def test_where_nothing_can_be_said() -> None:
    assert mistakes(InfoNCE(in_batch=False)) == [
        "check the gradient yourself: this analysis needs in-batch negatives"
    ]
    assert mistakes(BarlowTwins()) == [
        "check the gradient yourself: the pull is different in each coordinate"
    ]


def test_a_gradient_that_is_not_finite() -> None:
    class Broken(Objective, register=False):
        def formula(self, pairs: Pairs) -> Tensor:
            return (pairs.positive - pairs.positive.detach()).sqrt()

        def components(self, pairs: Pairs) -> Terms:
            return InfoNCE().components(pairs)

    (said,) = mistakes(Broken())
    assert said.startswith("clamp the divisors in loss_fn: its gradient is not finite for 4 of 4")


def test_the_proof_notices_a_plain_softmax_without_negatives() -> None:
    class Plain(Objective, register=False):
        def formula(self, pairs: Pairs) -> Tensor:
            return InfoNCE(temperature=0.5).formula(pairs)

        def components(self, pairs: Pairs) -> Terms:
            logits = (pairs.similarity() / 0.5).masked_fill(~pairs.negative(), -torch.inf)
            weight = logits.softmax(dim=1) / 0.5
            return replace(InfoNCE(temperature=0.5).components(pairs), weight=weight)

    found = not_finite(Plain(), *degenerate("two rows", torch.float64))
    assert found
    assert all(what.endswith(" without negatives") for what in found)


def of_negatives_alone(pairs: Pairs) -> Tensor:
    return pairs.logsumexp(0.5) - pairs.positive


def root(pairs: Pairs) -> Tensor:
    return (1 - pairs.positive).sqrt()


def guarded(pairs: Pairs) -> Tensor:
    return torch.where(pairs.count() > 0, pairs.logsumexp(0.5), 0.0) - pairs.positive


@pytest.mark.parametrize(
    ("formula", "remedy", "place"),
    [
        (of_negatives_alone, "pairs.count() > 0", "value without negatives on equal rows"),
        (root, "clamp_min", "on equal rows in torch.float64 with defaults"),
        (guarded, "", ""),
    ],
)
def test_a_number_that_is_not_finite_has_a_place_and_a_remedy(formula, remedy, place) -> None:
    class Loss(Objective, register=False):
        def formula(self, pairs: Pairs) -> Tensor:
            return formula(pairs)

    check = _finite(Loss)
    assert check.passed is not bool(remedy)
    assert remedy in check.means
    assert place in check.means
