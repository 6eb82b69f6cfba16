"""Two processes train as one would: gradients that DDP averages, for every objective."""

import dataclasses

import pytest
import torch
from torch import Tensor

from isotrope.core.distributed import all_gather_views, rows_of
from isotrope.core.errors import WrongCoupling
from isotrope.core.views import Views
from isotrope.kernels.pairs import Pairs
from isotrope.objectives import InfoNCE
from isotrope.paradigm import loss_shares, registry
from isotrope.paradigm.loss_shares import shared_loss
from tests.training.ranks import Case, of_rank, on_two, one_process

_SIZES = [(4, 4), (5, 3), (7, 1)]

CASES = [
    *(Case(name, sizes=sizes) for name in registry.names() for sizes in _SIZES),
    *(Case(name, grouped=True) for name in registry.names() if registry.build(name).pairwise),
    *(Case("infonce", {"symmetric": True}, sizes) for sizes in _SIZES),
    *(
        Case(name, negatives=counts, grouped=True)
        for name in ("infonce", "dcl", "ntxent", "mpt", "mixedinfonce", "paradigm")
        for counts in ((2, 1), (0, 3))
    ),
    Case("infonce", {"symmetric": True}, negatives=(1, 2), grouped=True),
    Case("infonce", {"in_batch": False}, negatives=(2, 1)),
    Case("infonce", {"in_batch": False, "symmetric": True}, negatives=(3, 0)),
    *(Case(name, cached=True) for name in ("infonce", "ntxent", "barlowtwins", "mhe")),
    Case("infonce", {"symmetric": True}, negatives=(1, 2), cached=True),
    Case("infonce", {"dissipation": "margin:0.3", "ratio": 1.5}),
    Case("infonce", {"part": "repulsion"}),
    Case("barlowtwins", {"dissipation": "margin:0.3", "weight": "softmax:0.05", "ratio": 1.5}),
    Case("dcl", {"views": "both"}),
    Case("dclw", {"symmetric": True}),
    Case("mhs", {"variant": "released"}),
    Case("mhe", {"variant": "released"}),
    Case("paradigm", {"variant": "released"}),
    Case("mpt", {"variant": "released"}),
    Case("modifiedmhe", {"variant": "direct"}),
    Case("modifiedmhs", {"variant": "direct"}),
    Case("plug-in"),
    Case("plug-in", {"coupling": "batch"}, sizes=(7, 1), grouped=True),
]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return on_two(CASES, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def two_without_cases(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What needs none of the cases, which are slow together."""
    return on_two([], tmp_path_factory.mktemp("ranks"))


def error(found: list[torch.Tensor], truth: list[torch.Tensor]) -> float:
    a, b = (torch.cat([g.flatten() for g in gradients]) for gradients in (found, truth))
    return float((a - b).norm() / b.norm().clamp_min(1e-12))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.slow
def test_the_mean_of_two_gradients_is_that_of_the_whole_batch(two: dict, case: Case) -> None:
    losses, gradients = two[str(case)]
    loss, truth = one_process(case)
    assert losses == pytest.approx([loss, loss], rel=1e-12, abs=1e-14)
    assert error(gradients, truth) < 1e-12


@pytest.mark.parametrize("name", ["infonce", "barlowtwins", "ntxent"])
def test_the_mean_of_two_separate_batches_is_another_gradient(name: str) -> None:
    """The counter-example: without the gather, each rank would learn from its own rows only."""
    case = Case(name, sizes=(4, 4))
    halves = []
    for rank in range(2):
        mine = dataclasses.replace(case, sizes=(case.sizes[rank], 0))
        halves.append(_gradients(mine, of_rank(case, rank)))
    mean = [(a + b) / 2 for a, b in zip(*halves, strict=True)]
    assert error(mean, one_process(case)[1]) > 0.01


def _gradients(case: Case, batch: tuple) -> list[torch.Tensor]:
    from tests.training.ranks import embedded, encoder

    model = encoder()
    case.built().loss(embedded(model, *batch)).backward()
    return [p.grad for p in model.parameters()]


def test_the_gather_has_the_rows_of_both_and_sums_what_both_want(two_without_cases: dict) -> None:
    anchors, groups, gradient, rows, agreed, summed = two_without_cases["facts"][1]
    assert anchors.dtype == torch.float32
    assert anchors.tolist() == [[1.5, 1.5], [1.5, 1.5], [2.5, 2.5]]
    assert groups.tolist() == [0, 1, 10]
    assert gradient.dtype == torch.bfloat16
    assert gradient.tolist() == [[3.0, 3.0], [3.0, 3.0]]  # 1 of rank 0 and 2 of rank 1
    assert rows.tolist() == [0, 2, 1]
    assert agreed.tolist() == [4, 0, 4]
    assert summed.item() == 3


def test_anchors_that_are_declared_not_to_be_coupled_and_are(
    two_without_cases: dict,
) -> None:
    """Each process sees its own anchors only, and refuses to take them for all that count."""
    (refused,) = two_without_cases["refused"][1]
    assert refused.tolist() == [4, 40, 700]


def test_one_process_gathers_nothing() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    views = Views(x, x * 2)
    whole = all_gather_views(views)
    assert whole.views is views
    assert whole.rows == slice(0, 4) == rows_of(4)
    objective = registry.build("infonce")
    assert torch.equal(shared_loss(objective, whole), objective.loss(views))


@pytest.mark.parametrize("processes", [1, 2])
def test_the_backend_is_the_one_asked_for(monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    monkeypatch.setattr(loss_shares, "world_size", lambda: processes)
    monkeypatch.setattr(loss_shares, "all_reduce_sum", lambda share: share.detach())
    x = torch.randn(2, 40, 8, generator=torch.Generator().manual_seed(0))
    whole = all_gather_views(Views(x[0], x[1]))
    objective = registry.build("infonce")
    found = {
        backend: float(shared_loss(objective, whole, backend=backend))
        for backend in ("eager", "rowblock", "bfloat16")
    }
    assert found["rowblock"] == pytest.approx(found["eager"], rel=1e-5)
    assert found["bfloat16"] != pytest.approx(found["eager"], rel=1e-5)
    assert found["bfloat16"] == pytest.approx(found["eager"], rel=1e-2)


class OwnProduct(InfoNCE, register=False):
    """InfoNCE whose formula compares the rows by itself, as if all anchors were there."""

    def formula(self, pairs: Pairs) -> Tensor:
        logits = pairs.views.anchors @ pairs.views.positives.T / self.temperature
        return logits.logsumexp(dim=1) - logits.diagonal()


def test_a_formula_that_cannot_be_shared_is_refused_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loss_shares, "world_size", lambda: 2)
    monkeypatch.setattr(loss_shares, "all_reduce_sum", lambda share: share.detach())
    monkeypatch.setattr(loss_shares, "_separable", set())
    x = torch.randn(2, 40, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    whole = all_gather_views(Views(x[0], x[1]))
    with pytest.raises(WrongCoupling, match=r"8 anchors is [\d.]+, and the losses of two halves"):
        shared_loss(OwnProduct(), whole)
    shared_loss(InfoNCE(in_batch=False), whole._replace(views=Views(x[0], x[1], x[0])))
    temperature = torch.tensor(0.1, requires_grad=True)
    shared_loss(InfoNCE(temperature=temperature), whole).backward()
    assert temperature.grad is not None


def test_gathered_views_are_not_gathered_again() -> None:
    x = torch.randn(4, 3)
    with pytest.raises(
        ValueError,
        match="with one positive for each anchor; found 2 anchors",
    ):
        all_gather_views(Views(x[:2], x))
