"""The share of pairs beyond an angle, on pairs whose angles are planted."""

import doctest
import importlib
import math

import pytest
import torch
from torch import Tensor

from isotrope.measures import dimension_std
from isotrope.measures.opposite_halves import opposite_halves

HALF, FAR = math.pi / 2, 7 * math.pi / 8


def planted(
    angles: list[float], d: int = 64, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Pairs of random rows, of any length, that are ``angles`` apart."""
    generator = torch.Generator().manual_seed(3)
    x, other = torch.randn(2, len(angles), d, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True)
    across = other - (other * x).sum(dim=1, keepdim=True) * x
    across = across / across.norm(dim=1, keepdim=True)
    turn = torch.tensor(angles, dtype=torch.float64)[:, None]
    lengths = 10 ** torch.linspace(-3, 3, len(angles), dtype=torch.float64)[:, None]
    y = turn.cos() * x + turn.sin() * across
    return (x * lengths).to(dtype), (y * lengths.flip(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("angle", [HALF, FAR, 0.3, 3.0])
def test_pairs_a_thousandth_to_each_side(angle: float, dtype: torch.dtype) -> None:
    angles = [angle - 1e-3] * 5 + [angle + 1e-3] * 3
    assert float(opposite_halves(*planted(angles, dtype=dtype), angle)) == pytest.approx(3 / 8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_fan_of_angles(dtype: torch.dtype) -> None:
    angles = [math.pi * (i + 0.5) / 32 for i in range(32)]
    pairs = planted(angles, dtype=dtype)
    assert float(opposite_halves(*pairs)) == pytest.approx(16 / 32)
    assert float(opposite_halves(*pairs, FAR)) == pytest.approx(4 / 32)


def test_orthogonal_pairs_are_not_beyond_a_right_angle() -> None:
    assert float(opposite_halves(torch.eye(4), torch.eye(4).flip(0))) == 0
    assert float(opposite_halves(torch.eye(4), -torch.eye(4), math.pi)) == 0


def test_a_zero_row_counts_as_orthogonal_and_one_that_is_not_finite_shows() -> None:
    x = torch.eye(4)
    y = -x.clone()
    y[0] = 0
    assert float(opposite_halves(x, y)) == 0.75
    y[1, 1] = torch.inf
    assert opposite_halves(x, y).isnan()


def test_independent_directions() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 20_000, 3, generator=generator)
    assert float(opposite_halves(x, y)) == pytest.approx(0.5, abs=0.015)
    # the cap of the sphere in three dimensions
    assert float(opposite_halves(x, y, FAR)) == pytest.approx((1 + math.cos(FAR)) / 2, abs=0.006)


def test_it_is_a_number_without_a_history() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    assert not opposite_halves(x, x).requires_grad


def test_what_cannot_be_measured() -> None:
    with pytest.raises(ValueError, match="at least one pair of embeddings; found none"):
        opposite_halves(torch.ones(0, 3), torch.ones(0, 3))
    with pytest.raises(ValueError, match="between 0 and pi; found 180"):
        opposite_halves(torch.ones(1, 3), torch.ones(1, 3), 180)
    with pytest.raises(ValueError, match=r"at least one embedding.*; found 0 rows"):
        dimension_std(torch.ones(0, 3))


def test_dimension_std_by_its_definition() -> None:
    x, _ = planted([1.0] * 50, d=5)
    h = x / x.norm(dim=1, keepdim=True)
    expected = ((h - h.mean(dim=0)) ** 2).mean(dim=0).sqrt().mean()
    torch.testing.assert_close(dimension_std(x), expected)
    torch.testing.assert_close(dimension_std(100 * x), expected)
    assert float(dimension_std(x)) < 5**-0.5
    assert float(dimension_std(torch.eye(3)[[0, 0, 0]] * torch.arange(1, 4)[:, None])) == 0


@pytest.mark.parametrize("name", ["dimension_std", "opposite_halves"])
def test_examples(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"isotrope.measures.{name}"))
    assert outcome.attempted
    assert not outcome.failed
