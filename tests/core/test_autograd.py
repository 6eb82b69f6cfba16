"""log(1 + e^x) where torch's own rounds, and where there is nothing."""

import math

import pytest
import torch
import torch.nn.functional as F

from isotrope.core.autograd import softplus


def test_it_is_exact_where_torchs_is_the_identity() -> None:
    x = torch.tensor([-30.0, 0.0, 3.0, 25.0], dtype=torch.float64, requires_grad=True)
    value = softplus(x)
    expected = [math.log1p(math.exp(v)) for v in x.tolist()]
    assert value.tolist() == pytest.approx(expected, rel=1e-15)
    assert value[3] > 25 == F.softplus(x)[3]
    (once,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    torch.testing.assert_close(once, torch.sigmoid(x))
    (twice,) = torch.autograd.grad(once.sum(), x)
    assert twice[3] == pytest.approx(math.exp(-25), rel=1e-4)


def test_nothing_adds_nothing() -> None:
    x = torch.tensor(-torch.inf, requires_grad=True)
    value = softplus(x)
    assert value == 0
    assert torch.autograd.grad(value, x)[0] == 0
