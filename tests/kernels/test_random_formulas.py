"""What an objective declares about its anchors is right or refused: no gradient is guessed."""

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from isotrope.core.errors import WrongCoupling
from isotrope.core.views import Views
from isotrope.kernels import choose, tiles
from isotrope.kernels.coupling import Coupling
from tests.kernels.formulas import Random, random_objectives

COUPLINGS: tuple[Coupling, ...] = get_args(Coupling)
FAST = COUPLINGS[:-1]
assert COUPLINGS[-1] == "batch"


@pytest.fixture(scope="module", autouse=True)
def _low_blocks_and_no_eager() -> Iterator[None]:
    """Four rows a block, and ``auto`` never holds the whole matrix."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "LEAST", 4)
        patch.setattr(tiles, "MOST", 4)
        patch.setattr(choose, "EAGER_BYTES", 0)
        yield


@dataclasses.dataclass(frozen=True)
class Batch:
    """A small random batch."""

    seed: int
    n: int
    d: int
    more: int
    groups: int
    symmetric: bool
    learnt: bool

    def views(self) -> tuple[Views, list[Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        x = torch.randn(2 * self.n + self.more, self.d, dtype=torch.float64, generator=generator)
        x[self.n : 2 * self.n] = 0.6 * x[self.n : 2 * self.n] + x[: self.n]
        leaves = [x[: self.n], x[self.n : 2 * self.n]] + ([x[2 * self.n :]] if self.more else [])
        leaves = [x.clone().requires_grad_() for x in leaves]
        groups = torch.arange(self.n) % self.groups if self.groups else None
        return Views(*leaves, groups=groups), leaves


batches = st.builds(
    Batch,
    seed=st.integers(0, 1000),
    n=st.sampled_from([2, 4, 5, 9, 14, 18, 18]),
    d=st.integers(2, 6),
    more=st.sampled_from([0, 0, 3]),
    groups=st.sampled_from([0, 0, 0, 1, 5]),
    symmetric=st.sampled_from([False, False, True]),
    learnt=st.booleans(),
)


def derivatives(objective: Random, given_batch: Batch, backend: str) -> list[Tensor]:
    """The value, and the gradients of views, additional negatives and temperature."""
    views, leaves = given_batch.views()
    if given_batch.learnt:
        learnt = torch.tensor(objective.temperature, dtype=torch.float64, requires_grad=True)
        objective, leaves = dataclasses.replace(objective, temperature=learnt), [*leaves, learnt]
    form = objective.symmetric() if given_batch.symmetric else objective
    value = form.loss(views, backend=backend) + 0 * views.anchors.sum()  # all may be constant
    return [value.detach(), *torch.autograd.grad(value, leaves, materialize_grads=True)]


def apart(found: list[Tensor], truth: list[Tensor]) -> float:
    """The largest error, relative to the value and to the largest gradient of all."""
    scale = max(float(x.abs().max()) for x in truth[1:])
    sizes = [1 + truth[0].abs(), *[truth[0].new_tensor(1e-6 + scale)] * (len(truth) - 1)]
    errors = [(f - t).abs().max() / s for f, t, s in zip(found, truth, sizes, strict=True)]
    return float(torch.stack(errors).max())


def hold(objective: Random, given_batch: Batch) -> None:
    """Every backend is as eager, to rounding."""
    truth = derivatives(objective, given_batch, "eager")
    assume(all(bool(x.isfinite().all()) for x in truth))
    for backend in ("auto", "rowblock"):
        assert apart(derivatives(objective, given_batch, backend), truth) < 1e-9


def tries(number: int) -> Any:
    return settings(
        max_examples=number,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("coupling", "number"),
    [("batch", 100), ("none", 60), ("positives", 40), ("linear", 40), ("total", 40)],
)
def test_any_formula(coupling: Coupling, number: int, times: int) -> None:
    @tries(number * times)
    @given(objective=random_objectives(coupling), given_batch=batches)
    def held(objective: Random, given_batch: Batch) -> None:
        hold(objective, given_batch)

    held()


@pytest.mark.parametrize("declared", FAST)
@pytest.mark.slow
def test_a_wrong_declaration_is_refused_or_makes_no_difference(declared: Coupling) -> None:
    refused = []

    @tries(120)
    @given(objective=random_objectives("batch", declared), given_batch=batches)
    def held(objective: Random, given_batch: Batch) -> None:
        try:
            hold(objective, given_batch)
        except WrongCoupling:
            refused.append(objective)

    held()
    assert len(refused) > 15
