"""The bfloat16 backend: rounded products, asked for, with an error that is stated."""

import pytest
import torch
from torch import Tensor

from benchmarks.bfloat16 import errors
from isotrope.core.errors import NeedsEager
from isotrope.core.views import Views
from isotrope.kernels import tiles
from isotrope.kernels.choose import choose
from isotrope.objectives import MPT, InfoNCE
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from tests.paradigm.batches import batch

SUMS = ["infonce", "ntxent", "dcl", "dclw", "alignuniform", "mhe", "miov1", "miov3", "arccon"]
WORST = 0.02  # of a gradient's norm; docs/results/bfloat16.csv has what is usual


def derivatives(objective: Objective, a: Tensor, b: Tensor, backend: str) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in (a, b)]
    value = objective(*leaves, backend=backend)
    found = torch.autograd.grad(value, leaves, allow_unused=True)
    zeros = [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]
    return [value.detach(), *zeros]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("height", [8, 512])
@pytest.mark.parametrize("name", SUMS)
def test_error_is_small_but_there(
    name: str, height: int, symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against float64: under 2%, and more than float32 has, or nothing was rounded."""
    monkeypatch.setattr(tiles, "MOST", height)
    monkeypatch.setattr(tiles, "LEAST", 8)
    objective = registry.build(name)
    objective = objective.symmetric() if symmetric else objective
    a, b = batch("random", 203, 96)
    exact = derivatives(objective, a, b, "eager")
    rounded = derivatives(objective, a.float(), b.float(), "bfloat16")
    single = derivatives(objective, a.float(), b.float(), "rowblock")
    for truth, found in zip(exact[1:], rounded[1:], strict=True):
        assert found.dtype == torch.float32
        assert (found.double() - truth).norm() <= WORST * truth.norm()
    error, least = ((x[1].double() - exact[1]).norm() for x in (rounded, single))
    assert error > 10 * least
    torch.testing.assert_close(rounded[0].double(), exact[0], rtol=WORST, atol=WORST)


@pytest.mark.parametrize("objective", [MPT(), registry.build("mhs")], ids=str)
def test_the_hardest_negative_is_not_rounded(objective: Objective) -> None:
    a, b = (x.float() for x in batch("clustered", 70, 12))
    rounded, exact = (derivatives(objective, a, b, name) for name in ("bfloat16", "rowblock"))
    for found, expected in zip(rounded, exact, strict=True):
        assert torch.equal(found, expected)


def test_a_learnt_temperature_and_further_negatives() -> None:
    a, b = (x.float() for x in batch("clustered", 90, 16))
    more = batch("random", 7, 16, seed=3)[0].float()
    found = []
    for backend in ("eager", "bfloat16"):
        temperature = torch.tensor(0.5, requires_grad=True)
        value = InfoNCE(temperature=temperature)(a, b, more, backend=backend)
        found.append(torch.autograd.grad(value, temperature)[0])
    torch.testing.assert_close(found[1], found[0], rtol=WORST, atol=WORST)


@pytest.mark.parametrize("temperature", [0.03, 0.02])
def test_the_error_is_small_at_a_low_temperature(temperature: float) -> None:
    """Cosines of about 0.5 divided by it: what is subtracted before exponentials is large."""
    found = errors(InfoNCE(temperature=temperature), 203, 0.5, seed=0, backend="bfloat16")
    assert max(found) <= WORST


def test_low_temperatures_stay_finite() -> None:
    a, b = (x.float() for x in batch("duplicate rows", 60, 16))
    for found in derivatives(InfoNCE(temperature=0.005), a, b, "bfloat16"):
        assert torch.isfinite(found).all()


def test_asked_for_and_never_chosen() -> None:
    a, b = (x.float() for x in batch("random", 300, 4))
    assert choose(Views(a, b))[0] == "rowblock"
    assert choose(Views(a, b), "bfloat16") == ("bfloat16", "chosen by the user")


def test_not_for_float64() -> None:
    a, b = batch("random", 9, 4)
    with pytest.raises(ValueError, match=r"backend='rowblock': .* rounds to 8 bits"):
        InfoNCE()(a, b, backend="bfloat16")


def test_no_second_derivatives() -> None:
    a, b = (x.float() for x in batch("random", 9, 4))
    value = InfoNCE()(a.requires_grad_(), b, backend="bfloat16")
    with pytest.raises(NeedsEager, match="use backend='eager'"):
        torch.autograd.grad(value, a, create_graph=True)
