"""The queue of MoCo: holds embeddings of earlier batches as negatives."""

import torch
from torch import Tensor, nn

from isotrope.core.errors import InputError


class Queue(nn.Module):
    """The last ``size`` embeddings that were pushed, as float32 unit vectors.

    It starts with random directions, drawn by the seed, as in MoCo (He et al. 2020). The
    ``state_dict`` holds rows and position.

    Args:
        size: the number of rows.
        dimension: d, of the embeddings.
        seed: Seed of the initial rows.

    Attributes:
        rows: size x d, in no particular order. ``push`` overwrites this tensor, so run the backward
            pass of a loss that uses it first.

    Raises:
        InputError: a size below 1.
    """

    rows: Tensor
    place: Tensor

    def __init__(self, size: int, dimension: int, seed: int) -> None:
        super().__init__()
        if size < 1:
            raise InputError(f"a queue holds at least 1 row; found {size}")
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randn(size, dimension, generator=generator)
        self.register_buffer("rows", nn.functional.normalize(rows, dim=1))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, rows: Tensor) -> None:
        """Replace the oldest embeddings.

        Args:
            rows: n x d, any n; normalised here. The last ``size`` rows are kept.
        """
        size = len(self.rows)
        end = self.place + len(rows)
        newest = nn.functional.normalize(rows[-size:].float(), dim=1)
        # where they would stand had they come one by one
        places = torch.arange(-len(newest), 0, device=self.rows.device) + end
        self.rows[places % size] = newest
        self.place.copy_(end % size)
