"""Symmetric matrices whose eigenvalues are known, as operators."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Matrix:
    """A symmetric matrix, of which Lanczos sees products only; it counts them."""

    def __init__(self, entries: Tensor, *, stop_after: int | None = None) -> None:
        self.entries, self.size, self.stop_after = entries, len(entries), stop_after
        self.products = 0

    @property
    def dtype(self) -> torch.dtype:
        return self.entries.dtype

    @property
    def device(self) -> torch.device:
        return self.entries.device

    def __matmul__(self, vector: Tensor) -> Tensor:
        if self.products == self.stop_after:
            raise KeyboardInterrupt
        self.products += 1
        return self.entries @ vector


def with_eigenvalues(values: Sequence[float] | Tensor, seed: int = 0) -> Matrix:
    """A matrix with these eigenvalues and random eigenvectors, in float64."""
    values = torch.as_tensor(values, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(len(values), len(values), generator=generator, dtype=torch.float64)
    q, _ = torch.linalg.qr(random)
    return Matrix((q * values) @ q.T)


def bulk_and_outliers(size: int = 400) -> Tensor:
    """Most eigenvalues near zero, a few far out on either side: what networks have."""
    generator = torch.Generator().manual_seed(9)
    values = 0.05 * torch.randn(size, generator=generator, dtype=torch.float64)
    values[:5] = torch.tensor([30.0, 11.0, 4.0, -2.0, -0.7], dtype=torch.float64)
    return values
