"""The components of a loss, from the gradient on its scores."""

import pytest
import torch
from torch.nn import functional as F

from isotrope.paradigm.score_matrix import of_scores


def scores(n: int = 8, m: int = 24) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(n, m, generator=random, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("scale", [0.5, 1.0, 20.0])
def test_a_softmax_has_its_temperature_and_its_weights(scale: float) -> None:
    s = scores()
    own = torch.arange(8) * 3  # wherever the positives stand
    F.cross_entropy(scale * s, own).backward()
    found = of_scores(s, s.grad)
    p = (scale * s.detach()).softmax(dim=1)
    left = 1 - p[torch.arange(8), own]
    assert found.temperature == pytest.approx(1 / scale, rel=1e-6)
    assert found.misfit < 1e-6
    assert torch.allclose(found.dissipation, left)
    p[torch.arange(8), own] = 0
    live = left > 1e-6
    assert torch.allclose(found.weight[live], p[live] / left[live, None])
    assert found.hardest == pytest.approx(float((p.amax(dim=1) / left).mean()), rel=1e-4)


def test_a_margin_has_no_temperature() -> None:
    s = scores()
    positive = s.diagonal()[:, None]
    (s[:, 8:] - positive + 1).relu().sum(dim=1).mean().backward()
    found = of_scores(s, s.grad)
    assert found.temperature is None
    assert found.misfit > 0.01
    assert (found.weight.count_nonzero(dim=1) <= 16).all()


def test_a_gradient_of_zero_is_no_push() -> None:
    s = scores()
    found = of_scores(s, torch.zeros_like(s))
    assert found.temperature is found.hardest is None
    assert not found.dissipation.any()
    assert not found.weight.any()
