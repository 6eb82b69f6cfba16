"""Every registered objective is finite on batches that provoke NaN, in three precisions.

Few rows are compared all at once, many in blocks, and in blocks with rounded products.
"""

import pytest
import torch
from torch import Tensor

from isotrope.core.views import Views
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.proof import additional_negatives

N, D = 72, 8  # so many rows that they are compared in blocks


def rows(seed: int) -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(seed))


def opposite() -> Tensor:
    half = rows(0)[: N // 2]
    return torch.stack([half, -half], dim=1).flatten(0, 1)


ONE_HOT = torch.eye(D).repeat(N // D, 1)
SOME_ZERO = (torch.arange(N) % 3 > 0).float()[:, None]
BATCHES: dict[str, tuple[Tensor, Tensor]] = {
    "identical rows": (rows(0)[:1].expand(N, D), rows(0)[:1].expand(N, D)),
    "identical rows, opposite positives": (rows(0)[:1].expand(N, D), -rows(0)[:1].expand(N, D)),
    "identical views": (rows(0), rows(0)),
    "opposite rows": (opposite(), opposite()),
    "opposite positives": (rows(0), -rows(0)),
    "duplicates": (rows(0)[:3].repeat(N // 3, 1), rows(1)[:3].repeat(N // 3, 1)),
    "one-hot": (ONE_HOT, ONE_HOT),
    "one-hot, others as positives": (ONE_HOT, ONE_HOT.roll(1, 1)),
    "one dimension": (ONE_HOT[:1] * rows(0), ONE_HOT[:1] * rows(1)),
    "zero rows": (torch.zeros(N, D), torch.zeros(N, D)),
    "some zero rows": (rows(0) * SOME_ZERO, rows(1) * SOME_ZERO.roll(1, 0)),
    "zero positives": (rows(0), torch.zeros(N, D)),
    "huge norms": (rows(0).clamp(-6, 6) * 1e4, rows(1).clamp(-6, 6) * 1e4),
    "tiny norms": (rows(0) * 1e-6, rows(1) * 1e-6),
    "huge and tiny norms": (rows(0) * 1e4 ** rows(2)[:, :1].sign(), rows(1)),
    "huge identical rows": (torch.full((N, D), 3e4), torch.full((N, D), 3e4)),
}
HOW = [(6, "eager"), (N, "rowblock"), (N, "bfloat16")]


def gradients(
    objective: Objective, anchors: Tensor, positives: Tensor, backend: str
) -> tuple[Tensor, list[Tensor]]:
    leaves = [anchors.clone().requires_grad_(), positives.clone().requires_grad_()]
    more = additional_negatives(objective, leaves[0])
    found = objective.loss(Views(*leaves, more), backend=backend)
    given = torch.autograd.grad(found, leaves, allow_unused=True)
    return found, [g for g in given if g is not None]


@pytest.mark.parametrize("name", registry.names())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.slow
def test_value_and_gradients_are_finite(name: str, dtype: torch.dtype) -> None:
    """In float16, too, where the gradient itself fits into it: of norms of 1e-6 it may not."""
    objective = registry.build(name, {})
    most = torch.finfo(dtype).max
    for kind, (a, b) in BATCHES.items():
        for n, backend in HOW:
            anchors, positives = a[:n].to(dtype), b[:n].to(dtype)
            assert anchors.isfinite().all()
            value, found = gradients(objective, anchors, positives, backend)
            assert value.isfinite(), (kind, n, backend)
            assert value.dtype == torch.float32
            exact = found
            if dtype == torch.float16 and "tiny" in kind:
                exact = gradients(objective, anchors.float(), positives.float(), backend)[1]
            for gradient, wide in zip(found, exact, strict=True):
                assert wide.isfinite().all(), (kind, n, backend)
                assert gradient[wide.abs() < most].isfinite().all(), (kind, n, backend)


@pytest.mark.parametrize(("n", "backend"), [(6, "auto"), (N, "rowblock"), (600, "auto")])
@pytest.mark.parametrize("name", registry.names())
def test_one_row_of_nan_shows_in_the_loss(name: str, n: int, backend: str) -> None:
    """It is not called a wrong declaration of the objective."""
    anchors, positives = torch.randn(2, n, D, generator=torch.Generator().manual_seed(0))
    anchors[3] = torch.nan
    loss, _ = gradients(registry.build(name), anchors, positives, backend)
    assert loss.isnan()
