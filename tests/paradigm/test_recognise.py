"""What a gradient shows of the loss it came from."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from isotrope.core.views import Views
from isotrope.objectives import DCL, MPT, BarlowTwins, InfoNCE, VICReg
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.recognise import Recognised, recognise
from isotrope.paradigm.softmax_fit import fit_pairs, fit_softmax, normalised, radial


def batch(n: int, d: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, n, d, generator=random, dtype=torch.float64)
    return (3 * x).to(dtype), (x + 0.9 * noise).to(dtype)


def gradient(loss: Tensor, leaf: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(loss, leaf)
    return len(leaf) * found


def recognised(
    objective: Objective, anchors: Tensor, positives: Tensor, further: Tensor | None = None
) -> Recognised:
    leaf = anchors.clone().requires_grad_()
    found = gradient(objective.loss(Views(leaf, positives, further)), leaf)
    return recognise(found, Views(anchors, positives, further))


@pytest.mark.parametrize("temperature", [0.01, 0.02, 0.05, 0.3, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_softmax_has_its_temperature(temperature: float, dtype: torch.dtype) -> None:
    found = recognised(InfoNCE(temperature=temperature), *batch(24, 32, dtype))
    assert found.kind == "softmax"
    assert found.temperature == pytest.approx(temperature, rel=1e-3)
    assert found.misfit < 1e-4


def test_512_columns_in_384_dimensions() -> None:
    anchors, positives = batch(256, 384, torch.float32)
    further = torch.randn(256, 384, generator=torch.Generator().manual_seed(1))
    objective = InfoNCE(temperature=0.1)
    found = recognised(objective, anchors, positives, further)
    assert found.kind == "softmax"
    assert found.temperature == pytest.approx(0.1, rel=1e-4)
    assert found.misfit < 1e-5
    assert found.terms is not None
    terms = objective.components(objective.compare(Views(anchors, positives, further)))
    scaled = found.in_units_of(1 / 0.1).terms
    assert scaled is not None
    torch.testing.assert_close(scaled.dissipation.float(), terms.dissipation, rtol=1e-3, atol=1e-5)
    live = terms.dissipation > 1e-2
    assert live.any()
    torch.testing.assert_close(
        scaled.pull[live], torch.ones_like(scaled.pull[live]), rtol=1e-4, atol=0
    )


def test_the_gradient_in_half_precision_is_enough() -> None:
    found = recognised(InfoNCE(temperature=0.05), *batch(24, 64, torch.bfloat16))
    assert found.temperature == pytest.approx(0.05, rel=1e-2)


def test_weights_of_hard_negatives_are_those_of_a_lower_temperature() -> None:
    """Their ``hardness_strength`` of 5 with a scale of 20: exp(20 s) exp(5 s) is exp(25 s)."""
    anchors, positives = batch(12, 32)
    leaf = anchors.clone().requires_grad_()
    cosine = F.normalize(leaf, dim=1) @ F.normalize(positives, dim=1).T
    harder = 20 * cosine + 5 * cosine.detach() * (1 - torch.eye(12))
    loss = F.cross_entropy(harder, torch.arange(12))
    found = recognise(gradient(loss, leaf), Views(anchors, positives))
    assert found.kind == "softmax"
    assert found.temperature == pytest.approx(1 / 25, rel=1e-3)


@pytest.mark.parametrize(("n", "d"), [(10, 24), (40, 24), (1, 24)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_pairs_have_no_in_batch_negatives(n: int, d: int, dtype: torch.dtype) -> None:
    anchors, positives = batch(n, d, dtype)
    leaf = anchors.clone().requires_grad_()
    wanted = torch.arange(n) % 2
    loss = (F.cosine_similarity(leaf.float(), positives.float()) - wanted).square().mean()
    found = recognise(gradient(loss, leaf), Views(anchors, positives))
    assert found.kind == "pairs"
    assert found.terms is None is found.temperature
    assert found.pulled is not None
    assert found.pulled < 1


def test_a_softmax_that_is_done_is_no_loss_of_pairs() -> None:
    anchors, _ = batch(12, 32, torch.float32)
    noise = torch.randn(12, 32, generator=torch.Generator().manual_seed(2))
    found = recognised(InfoNCE(temperature=0.05), anchors, anchors + 0.3 * noise)
    assert found.kind == "softmax"
    assert found.terms is not None
    assert float(found.terms.dissipation.max()) * 0.05 < 0.01


def test_what_is_no_softmax_has_no_temperature() -> None:
    assert recognised(BarlowTwins(), *batch(64, 32)).kind == "unknown"
    assert recognised(DCL(temperature=0.2), *batch(12, 32)).temperature == pytest.approx(0.2, 1e-3)


@pytest.mark.parametrize(
    ("n", "d"), [(32, 32), (32, 72), (32, 128), (64, 16), (128, 64), (1024, 768)]
)
def test_vicreg_is_no_loss_of_pairs(n: int, d: int) -> None:
    """Its pull on the own pair is all of its gradient but 0.1 to 3%, and no softmax fits that."""
    found = recognised(VICReg(), *batch(n, d, torch.float32))
    assert found.kind == "unknown"
    assert found.terms is None


def test_nothing_is_nothing() -> None:
    anchors, positives = batch(6, 24)
    found = recognise(torch.zeros_like(anchors), Views(anchors, positives))
    assert found.kind == "nothing"
    assert found.terms is not None
    assert not found.terms.dissipation.any()
    labelled = recognise(torch.zeros_like(anchors), Views(anchors, positives), labelled=True)
    assert labelled.terms is None
    assert labelled.in_units_of(2.0) == labelled


def test_scores_are_fitted_and_not_pushed() -> None:
    anchors, positives = batch(6, 24)
    further = torch.randn(6, 24, generator=torch.Generator().manual_seed(1)).double()
    leaf = anchors.clone().requires_grad_()
    margin = F.cosine_similarity(leaf, positives) - F.cosine_similarity(leaf, further)
    found = gradient((margin - torch.linspace(0, 1, 6)).square().mean(), leaf)
    views = Views(anchors, positives, further)
    assert recognise(found, views, labelled=True).kind == "scores"
    assert recognise(found, views).kind == "unknown"


def test_a_single_negative_fits_any_temperature() -> None:
    anchors, positives = batch(2, 24)
    found = recognised(InfoNCE(temperature=0.1), anchors, positives)
    assert found.kind == "other"
    assert found.temperature is None
    assert found.misfit < 1e-9
    assert found.even


def test_an_even_push_fits_any_high_temperature() -> None:
    found = recognised(InfoNCE(temperature=1000.0), *batch(24, 32, torch.float32))
    assert (found.kind, found.temperature, found.even) == ("other", None, True)
    hardest = recognised(MPT(margin=2.0), *batch(24, 32))
    assert hardest.temperature is None
    assert not hardest.even


def test_a_temperature_that_is_known_is_found_from_there_and_from_afar() -> None:
    anchors, positives = batch(24, 32)
    leaf = anchors.clone().requires_grad_()
    slope = gradient(InfoNCE(temperature=0.1)(leaf, positives), leaf)
    for near in (0.1, 0.12, 1.5):
        found = fit_softmax(slope, Views(anchors, positives), near=near)
        assert found is not None
        assert found.temperature == pytest.approx(0.1, rel=1e-3)


def test_where_several_temperatures_fit_the_last_one_is_kept() -> None:
    """Say in the last batch of an epoch, with a single negative."""
    anchors, positives = batch(2, 24)
    leaf = anchors.clone().requires_grad_()
    slope = gradient(InfoNCE(temperature=0.1)(leaf, positives), leaf)
    for near in (None, 0.1):
        found = fit_softmax(slope, Views(anchors, positives), near=near)
        assert found is not None
        assert found.temperature == near


def test_too_few_dimensions_prove_nothing() -> None:
    anchors, positives = batch(8, 4)
    assert fit_softmax(torch.ones_like(anchors), Views(anchors, positives)) is None


def test_lengths() -> None:
    anchors, positives = batch(8, 24)
    leaf = anchors.clone().requires_grad_()
    views = Views(anchors, positives)
    cosines = gradient(InfoNCE()(leaf, positives), leaf)
    assert radial(cosines, anchors) < 1e-9
    dots = gradient((leaf * positives).sum(dim=1).mean(), leaf)
    assert radial(dots, anchors) > 0.3
    assert not normalised(anchors)
    assert normalised(F.normalize(anchors, dim=1))
    assert fit_pairs(cosines, views).misfit > 0.1
