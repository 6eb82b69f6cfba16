"""Effective rank and mean cosine against their definitions."""

import doctest
import importlib
import itertools
import math

import pytest
import torch
from torch import Tensor

from isotrope.measures import effective_rank
from isotrope.measures.mean_cosine import mean_cosine


def rows(n: int, d: int = 5, seed: int = 0) -> Tensor:
    """n x d float64 of any length, off the origin."""
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(n, d, generator=generator, dtype=torch.float64) + 1


def cosine(x: Tensor, y: Tensor) -> float:
    return float(x @ y / (x.norm() * y.norm()))


def entropy_rank(x: Tensor) -> float:
    """By the singular values themselves, which the code never computes."""
    p = torch.linalg.svdvals(x - x.mean(dim=0))
    p = p[p > 1e-12 * p.max()] / p.sum()
    return math.exp(float(-(p * p.log()).sum()))


class TestEffectiveRank:
    @pytest.mark.parametrize("shape", [(40, 5), (3, 8), (6, 6), (5, 300)])
    def test_of_the_singular_values(self, shape: tuple[int, int]) -> None:
        x = rows(*shape)
        assert effective_rank(x) == pytest.approx(entropy_rank(x), rel=1e-6)

    def test_two_directions_of_unequal_weight(self) -> None:
        x = torch.diag(torch.tensor([3.0, 1.0])).double()
        expected = math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
        assert effective_rank(torch.cat([x, -x])) == pytest.approx(expected, rel=1e-14)

    def test_an_offset_does_not_hide_the_spread(self) -> None:
        x = torch.cat([torch.eye(8), -torch.eye(8)]).double() + 1e4
        assert effective_rank(x) == pytest.approx(8, rel=1e-9)

    def test_of_a_line_and_of_a_point(self) -> None:
        line = torch.outer(torch.arange(5.0).double(), torch.ones(300).double())
        assert effective_rank(line) == pytest.approx(1, abs=1e-9)
        for point in (torch.zeros(5, 3), torch.ones(5, 3), rows(1)):
            assert effective_rank(point) == 0

    def test_float32_is_summed_in_float64(self) -> None:
        x = rows(500, 6).float() + 100
        assert effective_rank(x) == pytest.approx(effective_rank(x.double()), rel=1e-12)

    @pytest.mark.parametrize("number", [math.nan, math.inf])
    def test_of_broken_embeddings(self, number: float) -> None:
        x = rows(9)
        x[3, 2] = number
        assert math.isnan(effective_rank(x))


class TestMeanCosine:
    @pytest.mark.parametrize("n", [2, 3, 20])
    def test_over_distinct_pairs(self, n: int) -> None:
        x = rows(n)
        found = [cosine(a, b) for a, b in itertools.combinations(x, 2)]
        assert float(mean_cosine(x)) == pytest.approx(sum(found) / len(found), rel=1e-12)

    def test_a_zero_row_has_cosine_zero(self) -> None:
        x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
        assert float(mean_cosine(x)) == pytest.approx(1 / 3)

    @pytest.mark.parametrize("n", [0, 1])
    def test_needs_a_pair(self, n: int) -> None:
        with pytest.raises(
            ValueError, match=rf"at least two embeddings for a mean cosine; found {n}"
        ):
            mean_cosine(torch.ones(n, 3))


@pytest.mark.parametrize("name", ["effective_rank", "mean_cosine"])
def test_examples(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"isotrope.measures.{name}"))
    assert outcome.attempted
    assert not outcome.failed
