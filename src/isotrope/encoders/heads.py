"""Heads between the encoder and the objective, which are dropped after training."""

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from isotrope.core.errors import InputError


class MLPHead(nn.Module):
    """A linear layer and a tanh: n x d to n x d, as in SimCSE (Gao et al. 2021, section 3.1).

    As in the authors' code, the initial weights are N(0, 0.02) and the initial bias is 0. SimCSE's
    unsupervised models use this head in training only.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dimension, dimension)
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, h: Tensor) -> Tensor:
        """Return tanh(h A^T + b) for embeddings ``h`` (n x d)."""
        return torch.tanh(self.dense(h))


class LinearHead(nn.Module):
    """A linear layer: n x d to n x d, as in the released code of Li et al. 2024 for BERT.

    As in this code, the initial weights and biases are N(0, 0.006).
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dimension, dimension)
        nn.init.normal_(self.dense.weight, std=0.006)
        nn.init.normal_(self.dense.bias, std=0.006)

    def forward(self, h: Tensor) -> Tensor:
        """Return h A^T + b for embeddings ``h`` (n x d)."""
        projected: Tensor = self.dense(h)
        return projected


def projector(
    dimension: int,
    hidden: Sequence[int],
    out: int,
    *,
    batch_norm: bool = True,
    last_norm: Literal["none", "affine", "plain"] = "none",
    bias: bool = True,
) -> nn.Sequential:
    """Return linear layers with ReLU between them.

    A linear layer before a batch norm has no bias, because the norm would cancel it.

    Args:
        dimension: Dimension of the input.
        hidden: Widths of the hidden layers; empty for a single linear layer.
        out: Dimension of the output.
        batch_norm: Whether a batch norm follows every hidden linear layer.
        last_norm: Batch norm after the last layer: ``none``, ``affine`` (with learnt scale and
            shift) or ``plain`` (without scale and shift).
        bias: Whether the last linear layer has a bias if no batch norm follows.

    Raises:
        InputError: A width is below 1, or ``last_norm`` is not one of the three.
    """
    widths = [dimension, *hidden, out]
    if min(widths) < 1:
        raise InputError(f"give the head widths of at least 1; found {widths}")
    if last_norm not in ("none", "affine", "plain"):
        raise InputError(f"set last_norm to 'none', 'affine' or 'plain'; found {last_norm!r}")
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths[:-1]):
        layers.append(nn.Linear(before, after, bias=not batch_norm))
        if batch_norm:
            layers.append(nn.BatchNorm1d(after))
        layers.append(nn.ReLU(inplace=True))
    layers.append(nn.Linear(widths[-2], out, bias=bias and last_norm == "none"))
    if last_norm != "none":
        layers.append(nn.BatchNorm1d(out, affine=last_norm == "affine"))
    return nn.Sequential(*layers)


def predictor(
    dimension: int,
    hidden: int,
    *,
    batch_norm: bool = True,
    last_norm: Literal["none", "affine", "plain"] = "none",
) -> nn.Sequential:
    """Return a head with one hidden layer, which predicts the projection of the other view.

    Args:
        dimension: Dimension d of the projections.
        hidden: Width of the hidden layer; SimSiam uses a bottleneck of d/4.
        batch_norm: Whether a batch norm follows the hidden linear layer.
        last_norm: Batch norm after the last layer: ``none``, ``affine`` or ``plain``.
    """
    return projector(dimension, [hidden], dimension, batch_norm=batch_norm, last_norm=last_norm)


class DINOHead(nn.Module):
    """Maps n x d embeddings to n x k logits, one per prototype (Caron et al. 2021, section 3.1).

    Three linear layers with GELU between them map an embedding to a bottleneck vector. The logits
    are the cosines between this vector and the prototypes. As in the authors' code, the initial
    weights are N(0, 0.02), the initial biases are 0, and the initial prototypes are those of
    torch's linear layer.

    Args:
        dimension: Dimension d of the embeddings.
        prototypes: Number k of prototypes.
        hidden: Width of the two hidden layers.
        bottleneck: Dimension of the bottleneck vector and of the prototypes.
        batch_norm: Whether batch norms follow the hidden layers. The paper has none with ViTs.

    Attributes:
        prototypes: Linear layer without bias. The weights are the prototypes (k x bottleneck).
    """

    def __init__(
        self,
        dimension: int,
        prototypes: int,
        *,
        hidden: int = 2048,
        bottleneck: int = 256,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        layers = projector(dimension, [hidden, hidden], bottleneck, batch_norm=batch_norm)
        self.body = nn.Sequential(
            *(nn.GELU() if isinstance(layer, nn.ReLU) else layer for layer in layers)
        )
        self.prototypes = nn.Linear(bottleneck, prototypes, bias=False)
        for layer in self.body:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=0.02)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, h: Tensor) -> Tensor:
        """Return the n x k logits of embeddings ``h`` (n x d)."""
        z = nn.functional.normalize(self.body(h), dim=-1)
        return nn.functional.linear(z, nn.functional.normalize(self.prototypes.weight, dim=-1))
