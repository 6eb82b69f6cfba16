"""Heads between encoder and objective, used in training and dropped afterwards."""

import torch
from torch import Tensor, nn


class MLPHead(nn.Module):
    """A linear layer and a tanh, n x d to n x d, as in SimCSE (Gao et al. 2021, section 3.1).

    Weights start as N(0, 0.02), the bias at zero, as in the authors' code. SimCSE's unsupervised
    models train with the head and embed without it.

    Args:
        dimension: d, of the embeddings.
        generator: source of the initial weights; by default torch's global one.
    """

    def __init__(self, dimension: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.dense = nn.Linear(dimension, dimension)
        nn.init.normal_(self.dense.weight, std=0.02, generator=generator)
        nn.init.zeros_(self.dense.bias)

    def forward(self, h: Tensor) -> Tensor:
        """Return tanh(h A^T + b) for embeddings ``h`` (n x d)."""
        return torch.tanh(self.dense(h))


class LinearHead(nn.Module):
    """A linear layer, n x d to n x d, as in the released code of Li et al. 2024 for BERT.

    Weights and bias start as N(0, 0.006), as there.

    Args:
        dimension: d, of the embeddings.
        generator: source of the initial weights; by default torch's global one.
    """

    def __init__(self, dimension: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.dense = nn.Linear(dimension, dimension)
        nn.init.normal_(self.dense.weight, std=0.006, generator=generator)
        nn.init.normal_(self.dense.bias, std=0.006, generator=generator)

    def forward(self, h: Tensor) -> Tensor:
        """Return h A^T + b for embeddings ``h`` (n x d)."""
        projected: Tensor = self.dense(h)
        return projected
