"""The components that the gradient of a batch holds, against those of the loss itself."""

import math

import pytest
import torch
from torch import Tensor

from isotrope.core.views import Views
from isotrope.objectives import DCL, MET, InfoNCE, NTXent
from isotrope.paradigm.decompose import decompose
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.recover import Recovered, recover


def batch(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    x, noise = torch.randn(2, n, d, generator=random, dtype=torch.float64)
    return 3 * x, x + 0.7 * noise


def recovered(objective: Objective, anchors: Tensor, positives: Tensor, **how: str) -> Recovered:
    leaf = anchors.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(objective(leaf, positives), leaf)
    return recover(len(leaf) * gradient, Views(anchors, positives), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", [InfoNCE(temperature=0.3), MET(margin=2.0), DCL()])
def test_they_are_those_of_the_objective(objective: Objective) -> None:
    anchors, positives = batch(6, 9)
    found, terms = recovered(objective, anchors, positives), objective.terms(anchors, positives)
    assert found.determined.all()
    assert found.misfit < 1e-12
    mass = terms.dissipation * terms.mass
    torch.testing.assert_close(found.terms.dissipation, mass)
    torch.testing.assert_close(found.terms.weight, terms.weight / terms.mass[:, None])
    torch.testing.assert_close(found.terms.ratio, terms.ratio)


@pytest.mark.parametrize(("n", "d"), [(5, 8), (6, 6), (9, 5), (2, 3)])
def test_they_are_those_of_a_decomposition_of_each_anchor(n: int, d: int) -> None:
    anchors, positives = batch(n, d)
    loss = InfoNCE(temperature=0.4)
    found, slow = recovered(loss, anchors, positives), decompose(loss, anchors, positives)
    torch.testing.assert_close(found.terms.dissipation, slow.terms.dissipation)
    torch.testing.assert_close(found.terms.weight, slow.terms.weight)
    torch.testing.assert_close(found.terms.pull, slow.terms.pull)
    assert found.determined.tolist() == slow.unique.tolist()


def test_negatives_of_both_views() -> None:
    anchors, positives = batch(4, 12)
    objective = NTXent(temperature=0.5)
    both = recovered(objective, anchors, positives, against="both")
    assert both.misfit < 1e-12
    assert both.determined.all()
    assert recovered(objective, anchors, positives).misfit > 0.05


def test_a_duplicate_leaves_the_pull_of_others_determined() -> None:
    anchors, positives = batch(6, 9)
    positives[5] = positives[4]
    objective = InfoNCE(temperature=0.3)
    found = recovered(objective, anchors, positives)
    assert found.determined.tolist() == [True] * 4 + [False] * 2
    terms = objective.terms(anchors, positives)
    mass = (terms.dissipation * terms.mass)[:4]
    torch.testing.assert_close(found.terms.dissipation[:4], mass)


def test_a_positive_that_is_the_anchor_pulls_nothing_that_can_be_seen() -> None:
    anchors, _ = batch(5, 9)
    found = recovered(InfoNCE(temperature=0.3), anchors, anchors.clone())
    assert not found.determined.any()
    assert found.misfit < 1e-9


def test_a_loss_that_is_left_alone_has_no_gradient() -> None:
    anchors, positives = batch(5, 9)
    found = recover(torch.zeros_like(anchors), Views(anchors, positives))
    assert found.misfit == 0
    assert not found.terms.dissipation.any()


def test_a_row_without_direction_leaves_the_others_as_they_are() -> None:
    anchors, positives = batch(6, 9)
    objective = InfoNCE(temperature=0.3)
    anchors[2] = 0
    found, terms = recovered(objective, anchors, positives), objective.terms(anchors, positives)
    assert found.misfit < 1e-12
    rest = torch.arange(6) != 2
    mass = terms.dissipation * terms.mass
    torch.testing.assert_close(found.terms.dissipation[rest], mass[rest])
    assert found.terms.dissipation[2] == found.terms.pull[2] == 0
    assert found.determined[rest].all()


def test_the_positives_of_one_process_among_those_of_all() -> None:
    anchors, own = batch(4, 30)
    gathered = torch.cat([*batch(3, 30, seed=1), own, batch(2, 30, seed=2)[0]])
    objective, views = InfoNCE(temperature=0.3), Views(anchors, gathered, offset=6)
    leaf = anchors.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(objective.loss(Views(leaf, gathered, offset=6)), leaf)
    found, terms = recover(4 * gradient, views), objective.components(objective.compare(views))
    assert found.misfit < 1e-12
    assert found.determined.all()
    torch.testing.assert_close(found.terms.ratio, terms.ratio)


LOSSES = (InfoNCE(temperature=0.1), InfoNCE(temperature=0.5), MET(margin=2.0), DCL())


def near(kind: str, seed: int, digits: float) -> tuple[Tensor, Tensor]:
    """A batch of d - 2 to d + 3 anchors, some of whose rows are near to what is not determined."""
    random = torch.Generator().manual_seed(seed)
    d = 3 + seed % 9
    n = max(2, d - 2 + seed // 9 % 6)
    x, noise = torch.randn(2, n, d, generator=random, dtype=torch.float64)
    gap = 10.0 ** -(digits * float(torch.rand(1, generator=random)))
    y = x + 0.7 * noise
    if kind == "two positives":
        y[-1] = y[-2] + gap * noise[0]
    elif kind == "an anchor and its positive":
        y[0] = x[0] + gap * noise[0]
    elif kind == "an anchor and the span of the columns":
        x[0] = y[1:].sum(dim=0) + gap * noise[0]
    elif kind == "all rows":
        x = x[:1] + gap * x
        y = x + 0.7 * gap * noise
    return 3 * x, y


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "kind",
    [
        "nothing",
        "two positives",
        "an anchor and its positive",
        "an anchor and the span of the columns",
        "all rows",
    ],
)
def test_what_is_called_determined_is_that_of_the_loss(kind: str, dtype: torch.dtype) -> None:
    """Of every batch; where rows are near each other half of the digits are left."""
    determined = marked = 0
    for seed in range(324):
        digits = -math.log10(torch.finfo(dtype).eps)
        anchors, positives = (x.to(dtype) for x in near(kind, seed, digits))
        objective = LOSSES[seed % 4]
        found = recovered(objective, anchors, positives)
        terms = objective.terms(anchors.double(), positives.double())
        true = terms.dissipation[:, None] * torch.stack([terms.mass, terms.pull], dim=1)
        seen = torch.stack([found.terms.mass, found.terms.pull], dim=1)
        seen = seen * found.terms.dissipation[:, None]
        close = 2 * math.sqrt(max(anchors.shape) * torch.finfo(dtype).eps)
        wrong = (seen - true).abs().amax(dim=1) > close * true.abs().amax(dim=1)
        wrong &= true.abs().amax(dim=1) > torch.finfo(dtype).eps * true.abs().max()
        assert not (wrong & found.determined).any(), seed
        assert seen.isfinite().all()
        determined, marked = determined + int(found.determined.sum()), marked + int(wrong.sum())
    assert determined > 150
    assert marked > 150


def test_where_no_more_than_a_rounding_decides_nothing_is_called_determined() -> None:
    """Six rows in six dimensions span everything: on some processors one was not seen to."""
    anchors, positives = batch(6, 6)
    for seed in range(20):
        tilt = 1e-16 * torch.randn(6, 6, generator=torch.Generator().manual_seed(seed)).double()
        found = recovered(InfoNCE(temperature=0.4), anchors + tilt, positives)
        assert not found.determined.any()
        assert found.terms.dissipation.max() < 100
