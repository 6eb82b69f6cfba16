"""M mixtures of random partners, against loops with the same draw."""

import math
from pathlib import Path

import pytest
import torch

from isotrope import Objective
from isotrope.core import unit
from isotrope.paradigm import registry

FILE = Path(__file__).parents[3] / "papers" / "nie2023" / "mixtures.py"


@pytest.fixture
def mixtures(monkeypatch: pytest.MonkeyPatch) -> type:
    registry.names()  # all of the library's are there
    monkeypatch.setattr(Objective, "registered", dict(Objective.registered))
    assert registry.load_plugin(FILE) == ["mixtures"]
    return registry.find("mixtures")


@pytest.mark.parametrize("mix", ["negatives", "positive"])
def test_as_printed(mixtures: type, mix: str) -> None:
    torch.manual_seed(3)
    a, b = (unit(torch.randn(5, 4, dtype=torch.float64)) for _ in range(2))
    objective = mixtures(mix=mix, mixtures=3, share=0.3, temperature=0.5)
    torch.manual_seed(0)
    found = objective(a, b)
    torch.manual_seed(0)
    drawn = torch.multinomial(1 - torch.eye(5), 6, replacement=True)
    losses = []
    for i in range(5):
        assert i not in drawn[i]
        own = math.exp(a[i] @ b[i] / 0.5)
        rest = sum(math.exp(a[i] @ b[j] / 0.5) for j in range(5) if j != i)
        for k in range(3):
            other = b[i] if mix == "positive" else b[drawn[i, k]]
            rest += math.exp(a[i] @ (0.3 * other + 0.7 * b[drawn[i, k + 3]]) / 0.5)
        losses.append(math.log1p(rest / own))
    assert float(found) == pytest.approx(sum(losses) / 5)


def test_mixtures_are_constant_and_need_negatives(mixtures: type) -> None:
    raw = [torch.randn(6, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    objective = mixtures(mixtures=2, share=0.0, temperature=0.5)
    torch.manual_seed(0)
    found = torch.autograd.grad(objective(*raw), raw)
    torch.manual_seed(0)
    drawn = torch.multinomial(1 - torch.eye(6), 4, replacement=True)[:, 2:]
    a, b = map(unit, raw)
    logits = torch.cat([a @ b.T, torch.einsum("nd,nmd->nm", a, b.detach()[drawn])], dim=1) / 0.5
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(6))
    for own, by_hand in zip(found, torch.autograd.grad(loss, raw), strict=True):
        torch.testing.assert_close(own, by_hand)
    alone = objective(a.detach(), b.detach(), groups=torch.zeros(6, dtype=torch.long))
    assert float(alone) == 0.0, "no negatives"
