"""Choosing a backend, and saying why."""

import pytest
import torch

from isotrope.core.errors import NeedsEager
from isotrope.core.views import Views
from isotrope.kernels.choose import choose, pairs
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.tiles import height
from isotrope.objectives import InfoNCE

VIEWS = Views(torch.eye(2), torch.eye(3)[:, :2])


def test_auto_gives_a_reason_with_the_size() -> None:
    small, reason = choose(VIEWS)
    assert small == "eager"
    assert reason.startswith("the 2 x 3 similarities take ")
    assert reason.endswith("MB, so all are held in memory")
    batch = torch.empty(182, 1)
    assert choose(Views(batch, batch))[0] == "rowblock"
    many = torch.empty(5000, 1)
    assert choose(Views(many, many)) == (
        "rowblock",
        "the 5000 x 5000 similarities take 95.4 MB, so they are computed in blocks of rows",
    )


def test_a_small_batch_with_a_queue_has_second_derivatives() -> None:
    batch, queue = torch.randn(64, 3, dtype=torch.float64), torch.randn(5000, 3).double()
    leaf = batch.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(InfoNCE()(leaf, batch, queue), leaf, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), leaf)
    assert bool(second.isfinite().all())
    assert choose(Views(batch, batch, queue))[0] == "eager"


def test_a_small_batch_with_a_huge_queue_is_computed_in_blocks() -> None:
    batch, queue = torch.empty(128, 1), torch.empty(200_000, 1)
    name, reason = choose(Views(batch, batch, queue))
    assert name == "rowblock"
    assert reason.startswith("the 128 x 200128 similarities take 97.7 MB")


def test_additional_negatives_are_columns_of_a_matrix_that_is_held() -> None:
    batch, queue = torch.empty(400, 1), torch.empty(50000, 1)
    assert pairs(Views(batch, batch)).backend == "eager"
    assert pairs(Views(batch, batch, queue)).backend == "rowblock"  # 77 MiB


def test_a_backend_that_was_asked_for() -> None:
    assert choose(VIEWS, "eager") == ("eager", "chosen by the user")


def test_pairs_come_from_the_chosen_backend() -> None:
    found = pairs(VIEWS, "eager")
    assert isinstance(found, EagerPairs)
    assert found.backend == "eager"
    assert found.views is VIEWS


def test_statistics_one_by_one_come_from_one_matrix_while_there_is_room() -> None:
    batch, many = torch.empty(64, 1), torch.empty(5000, 1)
    assert pairs(Views(batch, batch)).backend == "eager"
    assert pairs(Views(batch, batch), "rowblock").backend == "rowblock"
    assert pairs(Views(many, many)).backend == "rowblock"


@pytest.mark.parametrize("function", [choose, pairs])
def test_an_unknown_backend_names_the_nearest(function: object) -> None:
    with pytest.raises(
        ValueError,
        match=r"unknown backend 'eagre' .did you mean 'eager'\?.; known: auto, eager, rowblock, "
        "bfloat16",
    ):
        function(VIEWS, "eagre")  # type: ignore[operator]


def test_torch_func_goes_through_the_whole_matrix() -> None:
    """Row blocks are functions with a gradient of their own, which torch.func refuses."""
    a, b = torch.randn(2, 100, 3, dtype=torch.float64)
    objective = InfoNCE()
    leaf = a.clone().requires_grad_()
    (expected,) = torch.autograd.grad(objective(leaf, b, backend="rowblock"), leaf)
    torch.testing.assert_close(torch.func.grad(objective)(a, b), expected)
    with pytest.raises(NeedsEager, match=r"the rowblock backend does not support torch\.func"):
        torch.func.grad(objective)(a, b, backend="rowblock")


def test_a_gpu_gets_one_matrix_or_large_blocks() -> None:
    """Each block starts many kernels there, whatever its size."""
    for n, backend in ((4096, "eager"), (5000, "rowblock")):
        x = torch.empty(n, 8, device="meta")
        assert choose(Views(x, x))[0] == backend
        assert choose(Views(x.bfloat16(), x.bfloat16()))[0] == backend  # computed in float32
    assert height(65536, torch.empty(0, device="meta")) == 2048
    assert height(65536, torch.empty(0)) < 512
