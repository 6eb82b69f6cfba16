"""Chooses the pictures of each training step. The choice depends only on the seed and the step."""

from typing import NamedTuple

import torch
from torch import Tensor

from isotrope.data.images.records import ImagePart
from isotrope.data.text.batches import Batches


class ImageBatch(NamedTuple):
    """The pictures of one training step, or the part of them that one process reads.

    Attributes:
        images: Pictures that were read, uint8, rows x 3 x side x side.
        step: Number of the step, counted from 0 at the start of training.
        size: Number of pictures that all processes together read for this step.
    """

    images: Tensor
    step: int
    size: int


class ImageBatches:
    """The pictures of every step. The last batch of an epoch is skipped if it is incomplete.

    Args:
        part: Split from which the batches are made.
        batch_size: Number of pictures in a batch. A split with fewer pictures becomes one batch.
        seed: Seed of the run. Every epoch has the pictures in another order.

    Attributes:
        size: Number of pictures in every batch.
        steps_per_epoch: Number of batches in an epoch, at least one.
    """

    def __init__(self, part: ImagePart, batch_size: int, seed: int = 0) -> None:
        self.images = part.images
        self.size = min(batch_size, len(part.images))
        self._batches = Batches(range(len(part.images)), self.size, seed)
        self.steps_per_epoch = self._batches.steps_per_epoch

    def at(self, step: int, part: slice | None = None) -> ImageBatch:
        """Return the batch of a step.

        Args:
            step: Number of the step from the start of training; the first is 0.
            part: Rows of the batch to read; None for all rows. ``core.distributed.rows_of(size)``
                returns the rows of this process.
        """
        rows = self._batches.at(step)[part or slice(None)]
        return ImageBatch(torch.from_numpy(self.images.read(rows)), step, self.size)
