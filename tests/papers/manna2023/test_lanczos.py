"""The Lanczos process: extremes against SciPy, error bounds, interruptions."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigsh

from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.diagnostics.curvature import embedding_hessian
from isotrope.objectives import NTXent
from papers.manna2023.lanczos import Lanczos
from tests.papers.manna2023.matrices import Matrix, bulk_and_outliers, with_eigenvalues


def test_extremes_are_those_of_scipy() -> None:
    """Of a real loss: 24 x 8 embeddings under NT-Xent, 384 numbers."""
    rows = torch.randn(2, 24, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hessian = embedding_hessian(NTXent(), Views(*rows))

    def product(v: np.ndarray) -> np.ndarray:
        return (hessian @ torch.from_numpy(v.reshape(-1).copy())).numpy()

    operator = LinearOperator((hessian.size,) * 2, matvec=product, dtype=np.float64)
    low, high = (eigsh(operator, k=3, which=w, return_eigenvectors=False) for w in ("SA", "LA"))
    found = Lanczos(hessian).run(100).ritz()
    assert found.values[-3:] == pytest.approx(np.sort(high), rel=1e-6)
    assert found.values[:3] == pytest.approx(np.sort(low), rel=1e-6)


def test_every_error_bound_holds() -> None:
    """Within the bound of each Ritz value there is an eigenvalue, converged or not."""
    values = bulk_and_outliers()
    found = Lanczos(with_eigenvalues(values), seed=3).run(30).ritz()
    distance = np.abs(found.values[:, None] - values.numpy()).min(axis=1)
    assert (distance <= found.errors + 1e-12).all()
    assert found.errors[-1] < 1e-9 < found.errors.max()
    assert found.weights.sum() == pytest.approx(1)


def test_full_orthogonality_finds_each_eigenvalue_once() -> None:
    """A simple process loses it here, and shows the outliers again and again."""
    values = bulk_and_outliers()
    process = Lanczos(with_eigenvalues(values)).run(120)
    found = process.ritz()
    for outlier in values[:5]:
        assert (np.abs(found.values - float(outlier)) < 1e-6).sum() == 1
    basis = process._basis
    assert (basis @ basis.T - torch.eye(len(basis))).abs().max() < 1e-12


def test_all_of_a_small_matrix() -> None:
    values = torch.linspace(-1, 2, 12, dtype=torch.float64)
    process = Lanczos(with_eigenvalues(values)).run(50)
    assert len(process.rows) == 12
    assert process.exhausted
    assert process.ritz().values == pytest.approx(values.numpy(), abs=1e-10)


def test_few_distinct_eigenvalues_exhaust_the_start() -> None:
    values = [3.0] * 10 + [-1.0] * 20 + [0.0] * 30
    process = Lanczos(with_eigenvalues(values)).run(50)
    assert process.exhausted
    assert len(process.rows) == 3
    found = process.ritz()
    assert found.values == pytest.approx([-1, 0, 3], abs=1e-9)
    nothing = Lanczos(Matrix(torch.zeros(5, 5))).run(4)
    assert nothing.ritz().values.tolist() == [0.0]


def test_eigenvectors() -> None:
    matrix = with_eigenvalues(bulk_and_outliers())
    process = Lanczos(matrix).run(60)
    found = process.ritz()
    vectors = process.vectors([0, -1])
    for vector, place in zip(vectors, (0, -1), strict=True):
        residual = torch.linalg.vector_norm(matrix @ vector - found.values[place] * vector)
        assert float(residual) < 1e-8
        assert float(vector.norm()) == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_resumed_process_is_the_same_to_the_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    entries = with_eigenvalues(bulk_and_outliers()).entries.to(dtype)
    whole = Lanczos(Matrix(entries), seed=5).run(30)
    state = tmp_path / "state.npz"
    for stop in (11, 7):  # twice
        with pytest.raises(KeyboardInterrupt):
            Lanczos(Matrix(entries, stop_after=stop), seed=5, state=state).run(30)
    matrix, told = Matrix(entries), []
    resumed = Lanczos(matrix, seed=5, state=state).run(30, told.append)
    assert matrix.products == 30 - 18
    assert told == [18, *[1] * 12]
    assert resumed.rows == whole.rows
    assert torch.equal(resumed._basis, whole._basis)
    other = Lanczos(Matrix(entries), seed=6).run(30)
    assert other.rows != whole.rows


def test_a_finished_process_keeps_its_numbers_only(tmp_path: Path) -> None:
    matrix = with_eigenvalues(bulk_and_outliers())
    state = tmp_path / "state.npz"
    process = Lanczos(matrix, state=state).run(20)
    large, values = state.stat().st_size, process.ritz().values
    process.finish()
    assert state.stat().st_size < large / 20
    again = Lanczos(matrix, state=state)
    before = matrix.products
    assert np.array_equal(again.run(20).ritz().values, values)
    assert matrix.products == before
    with pytest.raises(InputError, match="finished with 20 iterations, and its basis dropped"):
        again.run(21)
    with pytest.raises(InputError, match="basis of a finished Lanczos process is gone"):
        again.vectors([0])


def test_more_iterations_go_on_from_the_state(tmp_path: Path) -> None:
    matrix = with_eigenvalues(bulk_and_outliers())
    state = tmp_path / "state.npz"
    Lanczos(matrix, state=state).run(10)
    longer = Lanczos(matrix, state=state).run(25)
    assert longer.rows == Lanczos(matrix).run(25).rows


def test_a_state_that_is_none_of_ours(tmp_path: Path) -> None:
    matrix = with_eigenvalues([1.0, 2.0, 3.0])
    state = tmp_path / "state.npz"
    Lanczos(matrix, state=state, belongs="a").run(2)
    for changed in ({"belongs": "b"}, {"belongs": "a", "seed": 1}):
        with pytest.raises(InputError, match="belongs to another Hessian or start vector"):
            Lanczos(matrix, state=state, **changed)
    state.write_bytes(state.read_bytes()[:200])
    with pytest.raises(InputError, match="is not a state of Lanczos"):
        Lanczos(matrix, state=state, belongs="a")


def test_what_cannot_be_run() -> None:
    with pytest.raises(InputError, match="at least 1 iteration; found 0"):
        Lanczos(with_eigenvalues([1.0, 2.0])).run(0)
    with pytest.raises(InputError, match="curvature is not finite in iteration 1"):
        Lanczos(Matrix(torch.full((3, 3), torch.nan))).run(2)
