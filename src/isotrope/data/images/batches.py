"""Chooses the pictures of a training step as a function of seed and step."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from isotrope.data.images.records import ImagePart
from isotrope.data.text.batches import Batches


class ImageBatch(NamedTuple):
    """The pictures of one step, or the part of them that is one process's.

    Attributes:
        images: uint8, rows of this process x 3 x side x side.
        step: Number of the batch, counted from the start of training.
        size: pictures of the whole batch.
    """

    images: Tensor
    step: int
    size: int


class ImageBatches:
    """The pictures of every step; an incomplete last batch of an epoch is left out.

    Args:
        part: where they come from.
        batch_size: pictures of a batch; of a part that has fewer, all of them.
        seed: the seed of the run; each epoch is in its own order.

    Attributes:
        size: pictures of every batch.
        steps_per_epoch: batches of an epoch, at least one.

    Raises:
        InputError: a batch of fewer than two pictures.
    """

    def __init__(self, part: ImagePart, batch_size: int, seed: int = 0) -> None:
        self.images = part.images
        self.size = min(batch_size, len(part.images))
        self._batches = Batches(range(len(part.images)), self.size, seed)
        self.steps_per_epoch = self._batches.steps_per_epoch

    def at(self, step: int, part: slice | None = None) -> ImageBatch:
        """Return the batch of a step counted from the start of training.

        Args:
            step: the step, from 0.
            part: which of its rows to read; None for all. ``core.distributed.rows_of(size)`` gives
                those of this process.
        """
        rows = self._batches.at(step)[part or slice(None)]
        return ImageBatch(torch.from_numpy(self.images.read(rows)), step, self.size)


class ImageSteps(IterableDataset[ImageBatch]):
    """The batches of the steps ``start`` to ``stop`` of a run, in order.

    For ``DataLoader(..., batch_size=None, num_workers=k)``: worker w yields the steps start + w,
    start + w + k and so on, which the loader puts in order again, so that any k gives the same.

    Args:
        batches: The batches to yield from.
        start: first step.
        stop: the step after the last.
        part: the rows of this process. Workers know of no other processes, so it is found
            beforehand.
    """

    def __init__(
        self, batches: ImageBatches, start: int, stop: int, part: slice | None = None
    ) -> None:
        self.batches, self.start, self.stop, self.part = batches, start, stop, part

    # no length: a trainer counts batches from the start of the run, so that the number of the steps
    # that are left would end a resumed run early

    def __iter__(self) -> Iterator[ImageBatch]:
        """Yield the steps of this worker."""
        worker = get_worker_info()
        first, apart = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for step in range(self.start + first, self.stop, apart):
            yield self.batches.at(step, self.part)
