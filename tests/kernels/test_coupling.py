"""What an objective declares of its anchors is right or refused: no gradient is guessed."""

from typing import Any

import pytest
import torch
from torch import Tensor, relu
from torch.nn.functional import softplus

from isotrope.core.errors import WrongCoupling
from isotrope.core.hyper import Paper
from isotrope.core.views import Views
from isotrope.kernels.coupling import confirm
from isotrope.kernels.fused import fused
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.statistics import Unfused
from isotrope.objectives import InfoNCE
from isotrope.paradigm import registry
from isotrope.paradigm.loss_shares import rows_loss
from isotrope.paradigm.objective import Objective

PAPER = Paper("none", "none", "none")


class Plain(Objective, register=False):
    """Declares nothing."""

    name, paper = "plain", PAPER


class HingeOfTheMean(Plain, register=False):
    """Off wherever the log-sum-exps are small, as on made-up rows."""

    def formula(self, pairs: Pairs) -> Tensor:
        return relu(pairs.logsumexp(0.05).mean() - 5.0) - pairs.positive.mean()


class SteeperOnTheWhole(Plain, register=False):
    """One value for each anchor, steeper where the mean of all is large."""

    coupling: Any = "batch"

    def formula(self, pairs: Pairs) -> Tensor:
        lse = pairs.logsumexp(0.05)
        return softplus(lse - pairs.positive / 0.05) * (1 + relu(lse.mean() - 5))


def views(n: int, d: int = 16, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, noise = torch.randn(2, n, d, generator=generator, dtype=dtype)
    return a, a + 0.9 * noise


def derivatives(objective: Objective, n: int, backend: str, **more: Any) -> list[Tensor]:
    a, b = (x.requires_grad_() for x in views(n, **more))
    value = objective(a, b, backend=backend)
    return [value.detach(), *torch.autograd.grad(value, (a, b))]


@pytest.mark.parametrize("backend", ["auto", "rowblock"])
@pytest.mark.parametrize(
    ("objective", "n"),
    [(HingeOfTheMean(), 128), (HingeOfTheMean(), 1100), (SteeperOnTheWhole(), 2048)],
    ids=str,
)
def test_what_declares_nothing_has_the_gradient_of_its_formula(
    objective: Objective, n: int, backend: str
) -> None:
    for form in (objective, objective.symmetric()):
        truth, found = (derivatives(form, n, which) for which in ("eager", backend))
        for x, y in zip(found, truth, strict=True):
            torch.testing.assert_close(x, y, rtol=2e-4, atol=2e-4 * float(y.abs().max()))


WRONG = [
    (SteeperOnTheWhole(coupling="none"), "the loss of an anchor changes with other anchors"),
    (SteeperOnTheWhole(coupling="positives"), "change with the negatives of other anchors"),
    (SteeperOnTheWhole(coupling="linear"), "not linear in the sums over the negatives"),
    (
        SteeperOnTheWhole(coupling="total"),
        "not a function of the sum of all exponentials",
    ),
]


@pytest.mark.parametrize(("objective", "reason"), WRONG, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_wrong_declaration_is_refused(
    objective: Objective, reason: str, dtype: torch.dtype
) -> None:
    remedy = "declare coupling='batch', which is right for every formula"
    with pytest.raises(WrongCoupling, match=f"{remedy}: plain declares coupling=.*{reason}"):
        derivatives(objective, 1100, "auto", dtype=dtype)


def test_a_loss_that_is_not_linear_over_both_views_is_refused() -> None:
    class Bent(Plain, register=False):
        two_directions = True
        coupling = "linear"

        def formula(self, pairs: Pairs) -> Tensor:
            return pairs.softplus(0.5, "both").square() / 1e3

    with pytest.raises(WrongCoupling, match="not linear in the sums over the negatives"):
        derivatives(Bent(), 600, "auto")


def test_anchors_that_are_not_coupled_have_a_value_each_and_meet_the_other_view() -> None:
    class OneNumber(Plain, register=False):
        coupling = "none"

        def formula(self, pairs: Pairs) -> Tensor:
            return pairs.logsumexp(0.5).mean()

    class Within(Plain, register=False):
        coupling = "none"

        def formula(self, pairs: Pairs) -> Tensor:
            return pairs.logsumexp(0.5, "within")

    with pytest.raises(WrongCoupling, match="its formula returns one number for the batch"):
        derivatives(OneNumber(), 100, "rowblock")
    with pytest.raises(WrongCoupling, match="its formula compares the anchors with each other"):
        derivatives(Within(), 100, "rowblock")


class ByTheMean(SteeperOnTheWhole, register=False):
    """Coupled by a number that is held constant."""

    def formula(self, pairs: Pairs) -> Tensor:
        lse = pairs.logsumexp(0.05)
        return softplus(lse - pairs.positive / 0.05) * torch.sigmoid(lse.mean().detach() - 7)


class ByTheLargest(SteeperOnTheWhole, register=False):
    """Coupled by one anchor."""

    def formula(self, pairs: Pairs) -> Tensor:
        hardest = pairs.hardest()
        return softplus(hardest - pairs.positive - hardest.max().detach())


class ByTheSum(SteeperOnTheWhole, register=False):
    """Coupled by a sum that is large enough for the whole batch only."""

    def formula(self, pairs: Pairs) -> Tensor:
        lse = pairs.logsumexp(0.05)
        return softplus(lse - pairs.positive / 0.05) * (1 + relu(lse.sum() - 1700))


@pytest.mark.parametrize(
    ("kind", "n"),
    [
        *((kind, n) for kind in (SteeperOnTheWhole, ByTheMean, ByTheLargest) for n in (24, 300)),
        (ByTheSum, 300),
    ],
)
def test_the_share_of_some_anchors_is_refused_where_others_count(
    kind: type[SteeperOnTheWhole], n: int
) -> None:
    """Half of the batch sees nothing of the other half: that it would not matter is tried."""
    a, b = views(n)
    for objective in (kind(coupling="none"), kind(coupling="none").symmetric()):
        with pytest.raises(WrongCoupling, match="the loss of an anchor changes with other anchors"):
            rows_loss(objective, Views(a, b), slice(0, n // 2))


def test_one_rounding_at_a_corner_is_no_wrong_declaration() -> None:
    true = torch.ones(100)
    confirm(true + 1e-5, true, "")
    confirm(true.fill_(torch.nan), true, "")
    one = torch.ones(100).index_fill_(0, torch.tensor(7), 0.0)
    with pytest.raises(Unfused, match="contradict the objective's declared"):
        confirm(one, torch.ones(100), "")
    with pytest.raises(Unfused, match="derivatives of some anchors"):
        confirm(torch.full((100,), torch.inf), torch.ones(100), "")
    with pytest.raises(WrongCoupling, match="why"):
        confirm(torch.zeros(100), torch.ones(100), "why")


def test_a_corner_is_computed_in_another_way() -> None:
    """Declared rightly for all but one anchor in 1,100: the gradient is still that of eager."""

    class Corner(SteeperOnTheWhole, register=False):
        def formula(self, pairs: Pairs) -> Tensor:
            lse = pairs.logsumexp(0.05)
            return lse * (1 + (lse >= lse.max()))

    truth, found = (derivatives(Corner(coupling="none"), 1100, x) for x in ("eager", "rowblock"))
    torch.testing.assert_close(found, truth, rtol=2e-4, atol=1e-6)


def test_questions_that_depend_on_numbers_are_answered_rightly() -> None:
    """Recorded on made-up rows, asked otherwise on real ones: nothing of the record is believed."""

    class Branching(Plain, register=False):
        of: str

        def formula(self, pairs: Pairs) -> Tensor:
            if pairs.positive.mean() < 0.5:  # as it is where questions are recorded
                return pairs.logsumexp(0.1) - pairs.count()
            if self.of == "temperature":
                return pairs.logsumexp(0.2)
            if self.of == "kind":
                return pairs.hardest()
            return pairs.logsumexp(0.1) - pairs.count("within")

    for of in ("temperature", "kind", "count"):
        truth, found = (derivatives(Branching(of=of), 100, x) for x in ("eager", "rowblock"))
        torch.testing.assert_close(found, truth, rtol=1e-4, atol=1e-6)


class Learning(Plain, register=False):
    """Asks at what is computed from a learnt number, or multiplies by one."""

    number: Any
    other: Any = 0.5
    use: str = "half"

    def formula(self, pairs: Pairs) -> Tensor:
        if self.use == "half":
            return pairs.logsumexp(self.number / 2)
        if self.use == "factor":
            return self.number * pairs.logsumexp(0.3)
        return pairs.logsumexp(self.number) * self.other


@pytest.mark.parametrize("use", ["half", "factor", "two"])
def test_whatever_is_learnt_gets_its_gradient(use: str) -> None:
    found = []
    for backend in ("eager", "rowblock"):
        numbers = [torch.tensor(x, requires_grad=True) for x in (0.5, 0.7)][: 1 + (use == "two")]
        value = Learning(use=use, **dict(zip(("number", "other"), numbers, strict=False)))(
            *views(100), backend=backend
        )
        found.append(torch.autograd.grad(value, numbers))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)


def test_statistics_that_have_no_derivative() -> None:
    def formula(pairs: Pairs) -> Tensor:
        return pairs.hardest().detach()

    with pytest.raises(Unfused, match="the formula has no derivative"):
        fused(Views(*views(100)), formula, both_directions=False, mean=True)


@pytest.mark.parametrize("name", ["infonce", "mat", "met", "arccon", "mixcse", "dclw", "miov3"])
@pytest.mark.parametrize("n", [513, 1030])
def test_right_declarations_are_never_refused(name: str, n: int) -> None:
    """Duplicates put many anchors into corners of hinges at once."""
    objective = registry.build(name)
    for scale in (1e-3, 1.0):
        a, b = views(n)
        b = a + scale * (b - a)
        a[::3], b[::3] = a[0], b[0]
        for form in (objective, objective.symmetric()):
            assert form(a, b, backend="rowblock").isfinite()


def test_no_pair_to_push_leaves_uniformity_without_a_gradient() -> None:
    a, b = (x.requires_grad_() for x in views(60))
    groups = torch.zeros(60, dtype=torch.long)
    found = [
        torch.autograd.grad(registry.build("alignuniform")(a, b, groups=groups, backend=x), (a, b))
        for x in ("eager", "rowblock")
    ]
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)


def test_a_small_batch_is_one_block_whatever_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then even the default takes one pass over the similarities."""
    calls = []
    module = __import__("isotrope.kernels.fused", fromlist=["two_passes"])
    monkeypatch.setattr(module, "two_passes", lambda *x, **y: calls.append(x))
    assert derivatives(SteeperOnTheWhole(), 500, "rowblock")[0].isfinite()
    assert InfoNCE().coupling == "none"
    assert not calls
