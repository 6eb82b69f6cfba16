"""Lanczos, densities and counts on matrices whose eigenvalues are known."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigsh

from isotrope import Views
from isotrope.core import InputError
from isotrope.objectives import NTXent
from papers.manna2023.spectrum import Ritz, Spectrum, density, grid, lanczos
from tests.diagnostics.embedding_hessian import embedding_hessian
from tests.papers.manna2023.matrices import Matrix, bulk_and_outliers, with_eigenvalues


def test_extremes_are_those_of_scipy() -> None:
    """Of a real loss: 24 x 8 embeddings under NT-Xent, 384 numbers."""
    rows = torch.randn(2, 24, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hessian = embedding_hessian(NTXent(), Views(*rows))

    def product(v: np.ndarray) -> np.ndarray:
        return (hessian @ torch.from_numpy(v.reshape(-1).copy())).numpy()

    operator = LinearOperator((hessian.size,) * 2, matvec=product, dtype=np.float64)
    low, high = (eigsh(operator, k=3, which=w, return_eigenvectors=False) for w in ("SA", "LA"))
    found = lanczos(hessian, 100)
    assert found.values[-3:] == pytest.approx(np.sort(high), rel=1e-6)
    assert found.values[:3] == pytest.approx(np.sort(low), rel=1e-6)


def test_every_error_bound_holds() -> None:
    """Within the bound of each Ritz value there is an eigenvalue, converged or not."""
    values = bulk_and_outliers()
    found = lanczos(with_eigenvalues(values), 30, seed=3)
    distance = np.abs(found.values[:, None] - values.numpy()).min(axis=1)
    assert (distance <= found.errors + 1e-12).all()
    assert found.errors[-1] < 1e-9 < found.errors.max()
    assert found.weights.sum() == pytest.approx(1)


def test_full_orthogonality_finds_each_eigenvalue_once() -> None:
    """A simple process loses it here, and shows the outliers again and again."""
    values = bulk_and_outliers()
    found = lanczos(with_eigenvalues(values), 120)
    for outlier in values[:5]:
        assert (np.abs(found.values - float(outlier)) < 1e-6).sum() == 1


def test_all_of_a_small_matrix_and_few_distinct_eigenvalues() -> None:
    values = torch.linspace(-1, 2, 12, dtype=torch.float64)
    matrix = with_eigenvalues(values)
    assert lanczos(matrix, 50).values == pytest.approx(values.numpy(), abs=1e-10)
    assert matrix.products == 12
    few = with_eigenvalues([3.0] * 10 + [-1.0] * 20 + [0.0] * 30)
    assert lanczos(few, 50).values == pytest.approx([-1, 0, 3], abs=1e-9)
    assert lanczos(Matrix(torch.zeros(5, 5)), 4).values.tolist() == [0.0]


def test_the_seed_decides_and_what_is_not_finite_is_refused() -> None:
    matrix = with_eigenvalues(bulk_and_outliers())
    one, two, other = (lanczos(matrix, 20, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(one.values, two.values)
    assert not np.array_equal(one.values, other.values)
    with pytest.raises(InputError, match="curvature is not finite in iteration 1"):
        lanczos(Matrix(torch.full((3, 3), torch.nan)), 2)


def known(values: list[float], *, size: int = 100) -> Spectrum:
    """A spectrum whose Ritz values are these, with equal weights and no error."""
    found = np.array(values, dtype=np.float64)
    one = np.ones_like(found)
    return Spectrum(size, 2.0, 0.1, Ritz(found, 0 * one, one / len(found)))


def drawn(values: torch.Tensor, count: int, iterations: int = 40) -> list[Ritz]:
    matrix = with_eigenvalues(values)
    return [lanczos(matrix, iterations, seed=seed) for seed in range(count)]


def test_the_density_is_that_of_the_eigenvalues() -> None:
    values = bulk_and_outliers()
    found = drawn(values, 12)
    width = 0.3
    low, high = float(values.min()), float(values.max())
    where = grid(low, high, width=width, points=800)
    exact = np.exp(-(((where[:, None] - values.numpy()) / width) ** 2) / 2).mean(axis=1)
    exact /= width * np.sqrt(2 * np.pi)
    mean = np.mean([density(ritz, where, width=width) for ritz in found], axis=0)
    step = where[1] - where[0]
    assert mean.sum() * step == pytest.approx(1, abs=1e-3)
    assert np.abs(mean - exact).sum() * step < 0.05


def test_the_trace_and_its_error() -> None:
    """The error is that of the estimate: over many draws, their standard deviation."""
    values = bulk_and_outliers()
    estimates = [Spectrum(400, 1.0, 1.0, ritz).trace for ritz in drawn(values, 60, iterations=4)]
    found, errors = np.array(estimates).T
    spread = found.std(ddof=1)
    assert abs(found.mean() - float(values.sum())) < 3 * spread / np.sqrt(60)
    assert np.sqrt((errors**2).mean()) == pytest.approx(spread, rel=0.3)


def test_eigenvalues_are_counted_by_their_weights() -> None:
    values = torch.cat([torch.full((300,), -1.0), torch.full((100,), 2.0)])
    found = [Spectrum(400, 1.0, 1.0, ritz) for ritz in drawn(values, 20, iterations=5)]
    below, above = (
        np.mean([spectrum.eigenvalues(*ends) for spectrum in found])
        for ends in ((-np.inf, 0.0), (0.0, np.inf))
    )
    assert below == pytest.approx(300, rel=0.05)
    assert above == pytest.approx(100, rel=0.15)
    # there are two Ritz values, whatever the multiplicities
    assert (found[0].count(-np.inf, 0.0), found[0].count(0.0, np.inf)) == (1, 1)


def test_counts_and_numbers() -> None:
    numbers = known([-2.0, -0.5, 0.0, 0.3, 0.9, 1.0, 7.0]).numbers()
    assert (numbers["negative"], numbers["flat"], numbers["ritz_values"]) == (2, 2, 7)
    assert (numbers["lambda_max"], numbers["lambda_min"]) == (7, -2)
    assert numbers["eigenvalues_not_positive"] == pytest.approx(100 * 3 / 7)
    assert numbers["eigenvalues_positive"] == pytest.approx(100 * 4 / 7)


def test_a_bulk_at_zero_is_not_positive_whatever_its_sign() -> None:
    for bulk in (-1e-7, 1e-7):
        numbers = known([-1.0, bulk, 5.0]).numbers()
        assert numbers["eigenvalues_not_positive"] == pytest.approx(100 * 2 / 3)
