"""Alignment, uniformity and norms against their definitions, written as loops over pairs."""

import doctest
import importlib
import itertools
import math

import pytest
import torch
from torch import Tensor

from isotrope.measures.alignment import alignment
from isotrope.measures.dimension_std import dimension_std
from isotrope.measures.effective_rank import effective_rank
from isotrope.measures.mean_cosine import mean_cosine
from isotrope.measures.norms import mean_norm
from isotrope.measures.opposite_halves import opposite_halves
from isotrope.measures.uniformity import uniformity


def rows(n: int, d: int = 5, seed: int = 0) -> Tensor:
    """n x d float64 of any length."""
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(n, d, generator=generator, dtype=torch.float64)


def distance(x: Tensor, y: Tensor) -> float:
    """Between the directions of two vectors."""
    return float((x / x.norm() - y / y.norm()).norm())


@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0])
def test_alignment_is_the_mean_power_of_the_distance(alpha: float) -> None:
    a, b = rows(7), rows(7, seed=1)
    expected = sum(distance(x, y) ** alpha for x, y in zip(a, b, strict=True)) / 7
    assert float(alignment(a, b, alpha)) == pytest.approx(expected, rel=1e-12)


def test_alignment_of_equal_and_of_opposite_views() -> None:
    a = rows(6)
    assert float(alignment(a, 2 * a)) == pytest.approx(0, abs=1e-30)
    assert float(alignment(a, -a)) == pytest.approx(4)


@pytest.mark.parametrize("t", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("n", [2, 3, 17])
def test_uniformity_is_the_log_mean_over_distinct_pairs(n: int, t: float) -> None:
    x = rows(n)
    kernel = [math.exp(-t * distance(a, b) ** 2) for a, b in itertools.combinations(x, 2)]
    expected = math.log(sum(kernel) / len(kernel))
    assert float(uniformity(x, t)) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("block", [1, 2, 3, 8, 9, 10, 1024])
def test_blocks_do_not_change_uniformity(block: int) -> None:
    x = rows(10).requires_grad_()
    whole, parts = uniformity(x), uniformity(x, block=block)
    torch.testing.assert_close(parts, whole, rtol=1e-13, atol=0)
    expected, found = (torch.autograd.grad(value, x)[0] for value in (whole, parts))
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-14)


def test_uniformity_of_collapsed_embeddings_is_zero_its_maximum() -> None:
    x = torch.ones(5, 3, dtype=torch.float64) * torch.arange(1, 6)[:, None]
    assert float(uniformity(x)) == pytest.approx(0, abs=1e-14)
    assert float(uniformity(rows(5))) < 0


def test_uniformity_does_not_underflow_at_a_large_t() -> None:
    x = torch.eye(3, dtype=torch.float64)
    assert float(uniformity(x, t=1e4)) == pytest.approx(-2e4)


def test_a_random_sphere_is_as_uniform_as_the_theory_says() -> None:
    """On S^2, E exp(-t |x - y|^2) = (1 - e^{-4t}) / (4t): s is uniform on [-1, 1]."""
    t, x = 2.0, rows(3000, d=3)
    expected = math.log((1 - math.exp(-4 * t)) / (4 * t))
    assert float(uniformity(x, t)) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("n", [0, 1])
def test_uniformity_needs_a_pair(n: int) -> None:
    with pytest.raises(
        ValueError, match=rf"give at least two embeddings for a uniformity; found {n}"
    ):
        uniformity(torch.ones(n, 3))


def test_mean_norm() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    assert float(mean_norm(x)) == 2.0


OF_ROWS = [dimension_std, effective_rank, mean_cosine, mean_norm, uniformity]
OF_PAIRS = [alignment, opposite_halves]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("measure", [*OF_ROWS, *OF_PAIRS])
def test_half_precision_rounds_the_embeddings_but_no_result(measure, dtype: torch.dtype) -> None:
    views = [rows(1024, 64, seed).to(dtype) + 1 for seed in range(1 + (measure in OF_PAIRS))]
    found = measure(*views)
    assert math.isfinite(found)
    assert float(found) == float(measure(*(x.float() for x in views)))


@pytest.mark.parametrize("name", ["alignment", "uniformity"])
def test_examples(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"isotrope.measures.{name}"))
    assert outcome.attempted
    assert not outcome.failed
