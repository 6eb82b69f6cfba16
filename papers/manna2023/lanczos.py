"""The Lanczos process with full reorthogonalisation: a symmetric operator as a tridiagonal matrix.

Source: Lanczos 1950; Golub and Van Loan, "Matrix Computations", chapter 10. Each new vector is made
orthogonal to all before it twice, which is enough (Parlett, "The symmetric eigenvalue problem",
section 6.9), so that no eigenvalue appears more often than it is found. Takes anything with ``@``.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace

Floats = NDArray[np.float64]
Progress = Callable[[int], object]

_SECONDS = 60  # between two states
_ROUNDING = (
    32  # units of the dtype's precision that a product may be wrong by, of the largest value
)


class Operator(Protocol):
    """A symmetric matrix of ``size`` rows, of which only products are needed."""

    size: int

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its vectors."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of its vectors."""
        ...

    def __matmul__(self, vector: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Ritz:
    """The Ritz values of k steps of Lanczos, with what they say about the eigenvalues.

    Attributes:
        values: k, ascending.
        errors: k: within this distance of a value there is an eigenvalue (the norm of the residual
            of value and vector, or one rounding of the largest value if that is more).
        weights: k, with sum 1: the squared share of the start vector in each direction. For a
            random start, the mass of the spectrum there.
    """

    values: Floats
    errors: Floats
    weights: Floats


class Lanczos:
    """The process from a random start vector; :meth:`run` continues where it stands.

    Args:
        operator: symmetric, N x N.
        seed: the seed of the start vector, which is uniform on the sphere.
        state: file in which the process is kept, or None. It is written whole, every minute and at
            the end (also when interrupted), and read if it is there: the numbers are then the same
            to the bit as without the interruption. Of a process that ``finish`` has ended only the
            tridiagonal matrix is left.
        belongs: a fingerprint of what the process depends on; a state of another is refused.

    Attributes:
        rows: k times the number on the diagonal and the one beside it, which belongs to the next
            row.

    Raises:
        InputError: a state that cannot be read, or belongs to something else.
    """

    def __init__(
        self,
        operator: Operator,
        *,
        seed: int = 0,
        state: Path | None = None,
        belongs: str = "",
    ) -> None:
        self.operator = operator
        self.state, self.belongs = state, f"{belongs} seed {seed} of {operator.size}"
        self.rows: list[tuple[float, float]] = []
        generator = torch.Generator().manual_seed(seed)
        start = torch.randn(operator.size, generator=generator, dtype=torch.float64)
        # k + 1 vectors, the last of which comes next
        self._basis = (start / torch.linalg.vector_norm(start))[None]
        self._basis = self._basis.to(operator.device, operator.dtype)
        if state is not None and state.is_file():
            self._read(state)

    @property
    def exhausted(self) -> bool:
        """Whether the start vector is used up; then the Ritz values are eigenvalues."""
        if not self.rows:
            return False
        scale = max(max(abs(row[0]), row[1]) for row in self.rows)
        rounding = _ROUNDING * torch.finfo(self.operator.dtype).eps
        return len(self.rows) == self.operator.size or self.rows[-1][1] <= rounding * scale

    def run(self, iterations: int, progress: Progress | None = None) -> "Lanczos":
        """Go on until there are ``iterations`` rows, or fewer if the start vector is used up."""
        if iterations < 1:
            raise InputError(f"Lanczos needs at least 1 iteration; found {iterations}")
        tell = progress or (lambda count: None)
        tell(min(len(self.rows), iterations))
        if len(self.rows) >= iterations or self.exhausted:
            return self
        if not len(self._basis):
            raise InputError(
                f"the Lanczos process was finished with {len(self.rows)} iterations, and its basis "
                f"dropped; for {iterations} remove {self.state} and start again"
            )
        room = self._basis.new_empty(min(iterations, self.operator.size) + 1, self.operator.size)
        room[: len(self._basis)] = self._basis
        self._basis = room
        saved = time.monotonic()
        try:
            while len(self.rows) < len(room) - 1 and not self.exhausted:
                self._step(len(self.rows))
                tell(1)
                if time.monotonic() - saved > _SECONDS:
                    self._write()
                    saved = time.monotonic()
        finally:
            self._basis = room[: len(self.rows) + 1]
            self._write()
        return self

    def _step(self, k: int) -> None:
        """Make row ``k``; it counts from the last line on, so that an interruption does no harm."""
        v = self._basis[k]
        w = self.operator @ v
        alpha = _dot(w, v)
        if not math.isfinite(alpha):
            raise InputError(
                f"the curvature is not finite in iteration {k + 1}: the second derivatives "
                "overflow; use float64, or check the checkpoint"
            )
        basis = self._basis[: k + 1]
        w = w - alpha * v
        for _ in range(2):
            w = w - basis.T @ (basis @ w)
        beta = math.sqrt(_dot(w, w))
        self._basis[k + 1] = w / beta if beta else w
        self.rows.append((alpha, beta))

    def ritz(self) -> Ritz:
        """Return the eigenvalues of the tridiagonal matrix with errors and weights."""
        values, vectors = self._eigen()
        _, beside = np.array(self.rows).T
        rounding = torch.finfo(self.operator.dtype).eps * np.abs(values).max()
        errors = np.maximum(np.abs(beside[-1] * vectors[-1]), rounding)
        return Ritz(values, errors, vectors[0] ** 2)

    def vectors(self, places: Sequence[int]) -> Tensor:
        """Return the Ritz vectors of these places in ``ritz().values``, as rows of N numbers."""
        if not len(self._basis):
            raise InputError("the basis of a finished Lanczos process is gone; run it again")
        chosen = torch.from_numpy(self._eigen()[1][:, list(places)].T.copy())
        ritz_vectors: Tensor = chosen.to(self._basis) @ self._basis[: len(self.rows)]
        return ritz_vectors

    def finish(self) -> None:
        """Drop the basis, here and in the state."""
        self._basis = self._basis[:0]
        self._write()

    def _eigen(self) -> tuple[Floats, Floats]:
        from scipy.linalg import eigh_tridiagonal

        diagonal, beside = np.array(self.rows).T
        values, vectors = eigh_tridiagonal(diagonal, beside[:-1])
        return values, vectors

    def _write(self) -> None:
        if self.state is None:
            return
        with atomic_replace(self.state) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                belongs=np.array(self.belongs),
                tridiagonal=np.array(self.rows).reshape(-1, 2),
                basis=self._basis[: len(self.rows) + 1].cpu().numpy(),  # what is filled of it
            )

    def _read(self, state: Path) -> None:
        try:
            # a handle of our own: NumPy leaves one open where the archive is damaged
            with state.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
                belongs, rows, basis = (file[name] for name in ("belongs", "tridiagonal", "basis"))
        except Exception as error:  # whatever a damaged archive makes NumPy raise
            raise InputError(
                f"{state} is not a state of Lanczos ({type(error).__name__}); remove it to start "
                "again"
            ) from error
        if str(belongs) != self.belongs:
            raise InputError(
                f"{state} belongs to another Hessian or start vector; remove it to start again"
            )
        self.rows = [(a, b) for a, b in rows.tolist()]
        self._basis = torch.from_numpy(basis).to(self._basis)


def _dot(a: Tensor, b: Tensor) -> float:
    """Sum in float64: a million products in float32 lose digits."""
    return float(torch.dot(a.double(), b.double()))
