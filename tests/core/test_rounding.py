"""Equality up to rounding."""

import math

import torch

from isotrope.core.rounding import same


def test_an_infinity_does_not_hide_a_difference() -> None:
    a = torch.tensor([math.inf, 1.0, math.nan])
    assert same(a, a)
    assert same(a, a + 1e-6)
    assert not same(a, torch.tensor([math.inf, 5.0, math.nan]))
    assert not same(a, torch.tensor([-math.inf, 1.0, math.nan]))
    assert not same(a[:2], a)
