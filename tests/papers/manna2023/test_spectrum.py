"""Densities, counts and verdicts on matrices whose eigenvalues are known."""

import numpy as np
import pytest
import torch

from isotrope.core.errors import InputError
from papers.manna2023.density import density, grid
from papers.manna2023.lanczos import Lanczos, Ritz
from papers.manna2023.spectrum import Spectrum
from tests.papers.manna2023.matrices import bulk_and_outliers, with_eigenvalues


def known(values: list[float], *, size: int = 100, **given: object) -> Spectrum:
    """A spectrum whose Ritz values are these, with equal weights and no error."""
    found = np.array(values, dtype=np.float64)
    one = np.ones_like(found)
    ritz = Ritz(found, 0 * one, one / len(found))
    return Spectrum(size=size, loss=2.0, gradient_norm=0.1, probes=(ritz,), **given)


def probes(values: torch.Tensor, count: int, iterations: int = 40) -> tuple[Ritz, ...]:
    matrix = with_eigenvalues(values)
    return tuple(Lanczos(matrix, seed=s).run(iterations).ritz() for s in range(count))


def test_the_density_is_that_of_the_eigenvalues() -> None:
    values = bulk_and_outliers()
    found = probes(values, 12)
    width = 0.3
    where = grid(found, width=width, points=800)
    exact = np.exp(-(((where[:, None] - values.numpy()) / width) ** 2) / 2).mean(axis=1)
    exact /= width * np.sqrt(2 * np.pi)
    drawn = density(found, where, width=width)
    step = where[1] - where[0]
    assert drawn.sum() * step == pytest.approx(1, abs=1e-3)
    assert np.abs(drawn - exact).sum() * step < 0.05
    with pytest.raises(InputError, match="must be above 0; found 0"):
        density(found, where, width=0.0)


def test_the_trace_and_its_error() -> None:
    """The error is that of the estimate: over many draws, their standard deviation."""
    values = bulk_and_outliers()
    estimates = [
        Spectrum(400, 1.0, 1.0, (ritz,)).trace for ritz in probes(values, 60, iterations=4)
    ]
    found, errors = np.array(estimates).T
    spread = found.std(ddof=1)
    assert abs(found.mean() - float(values.sum())) < 3 * spread / np.sqrt(60)
    assert np.sqrt((errors**2).mean()) == pytest.approx(spread, rel=0.3)


def test_eigenvalues_are_counted_by_their_weights() -> None:
    values = torch.cat([torch.full((300,), -1.0), torch.full((100,), 2.0)])
    found = Spectrum(400, 1.0, 1.0, probes(values, 20, iterations=5))
    assert found.eigenvalues(-np.inf, 0.0) == pytest.approx(300, rel=0.05)
    assert found.eigenvalues(0.0, np.inf) == pytest.approx(100, rel=0.15)
    # there are two Ritz values, whatever the multiplicities
    assert (found.negative(), found.count(0.0, np.inf)) == (1, 1)


def test_counts_and_numbers() -> None:
    found = known([-2.0, -0.5, 0.0, 0.3, 0.9, 1.0, 7.0])
    numbers = found.numbers()
    assert (numbers["negative"], numbers["flat"], numbers["ritz_values"]) == (2, 2, 7)
    assert found.numbers(threshold=2.0)["flat"] == 3
    assert (numbers["lambda_max"], numbers["lambda_min"]) == (7, -2)
    assert numbers["eigenvalues_not_positive"] == pytest.approx(100 * 3 / 7)
    assert numbers["eigenvalues_positive"] == pytest.approx(100 * 4 / 7)


def test_extremes_are_the_outermost_of_all_probes() -> None:
    one, other = known([-1.0, 5.0]).probes[0], known([-3.0, 4.0]).probes[0]
    found = Spectrum(10, 1.0, 1.0, (one, other))
    assert (found.largest[0], found.smallest[0]) == (5, -3)
    assert found.count(-2.0, np.inf) == 1.5


def test_verdicts() -> None:
    assert known([-1.0, 2.0]).verdict().startswith("strict saddle or slope, not a minimum")
    assert known([0.1, 2.0]).verdict().startswith("convex along all that was found")
    vague = Ritz(np.array([-0.1, 2.0]), np.array([0.2, 0]), np.full(2, 0.5))
    assert Spectrum(10, 1.0, 1.0, (vague,)).verdict().startswith("undecided: lambda_min = -0.1")


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (0.1, "0.1 is within 1/lambda_max (1/lambda_max = 0.25)"),
        (0.3, "above 1/lambda_max, within 2/lambda_max"),
        (0.6, "above 2/lambda_max: plain gradient descent would oscillate"),
    ],
)
def test_the_learning_rate_beside_the_curvature(rate: float, said: str) -> None:
    assert said in known([-1.0, 4.0]).step(rate)
    assert "no positive curvature limits it" in known([-1.0, -0.5]).step(rate)


def test_a_bulk_at_zero_is_not_positive_whatever_its_sign() -> None:
    for bulk in (-1e-7, 1e-7):
        numbers = known([-1.0, bulk, 5.0]).numbers()
        assert numbers["eigenvalues_not_positive"] == pytest.approx(100 * 2 / 3)
