"""The momentum encoder (a moving average of an encoder), and MoCo's queue of embeddings."""

import copy

import torch
from torch import Tensor, nn

from isotrope.core.errors import InputError


class Momentum(nn.Module):
    """A copy of a module. The parameters of the copy are a moving average of the module's.

    With parameters theta' of the copy and theta of the module, an update is
    theta' <- decay theta' + (1 - decay) theta. The copy gets no gradient. Buffers (the running
    statistics of batch norms) are not averaged: the forward passes of the copy update them, as in
    the code of MoCo, BYOL and Draganov et al., 2025.

    Args:
        module: Module to copy. If you use ``cut_initialize``, first apply it to the module.
        decay: Decay, in [0, 1]. BYOL uses 0.99 on small images; DINO starts at 0.996 and ends at 1.

    Attributes:
        module: The copy.
        decay: Decay of :meth:`update` if no other decay is given.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        super().__init__()
        self.decay = _checked(decay)
        self.module = copy.deepcopy(module).requires_grad_(False)

    @torch.no_grad()
    def forward(self, *inputs: Tensor) -> object:
        """Apply the copy to ``inputs``, without gradients."""
        return self.module(*inputs)

    @torch.no_grad()
    def update(self, source: nn.Module, decay: float | None = None) -> None:
        """Move the copy towards ``source``. If ``decay`` is None, the attribute is used."""
        decay = self.decay if decay is None else _checked(decay)
        for average, parameter in zip(self.module.parameters(), source.parameters(), strict=True):
            average.lerp_(parameter.to(average.dtype), 1 - decay)


def _checked(decay: float) -> float:
    if not 0 <= decay <= 1:
        raise InputError(f"give a decay of the moving average in [0, 1]; found {decay}")
    return decay


class Queue(nn.Module):
    """The last ``size`` embeddings that were pushed, as float32 unit vectors.

    As in MoCo (He et al. 2020), the queue starts with random directions, which the seed determines.

    Args:
        size: Number of rows.
        dimension: Dimension d of the embeddings.
        seed: Seed of the initial rows.

    Attributes:
        rows: Embeddings in the queue, size x d, in no particular order. ``push`` overwrites rows,
            so call ``push`` after the backward pass of every loss that uses them.
    """

    rows: Tensor
    place: Tensor

    def __init__(self, size: int, dimension: int, seed: int) -> None:
        super().__init__()
        if size < 1:
            raise InputError(f"give the queue a size of at least 1 row; found {size}")
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randn(size, dimension, generator=generator)
        self.register_buffer("rows", nn.functional.normalize(rows, dim=1))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, rows: Tensor) -> None:
        """Replace the oldest embeddings by new ones.

        Args:
            rows: Embeddings, n x d, with any norm. Only the last ``size`` rows are kept.
        """
        size = len(self.rows)
        end = self.place + len(rows)
        newest = nn.functional.normalize(rows[-size:].float(), dim=1)
        # the places that they would have after pushes of one row each
        places = torch.arange(-len(newest), 0, device=self.rows.device) + end
        self.rows[places % size] = newest
        self.place.copy_(end % size)
