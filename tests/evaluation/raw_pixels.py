"""An encoder that does nothing: by its scores the numbers of a test are known."""

import numpy as np
from numpy.typing import NDArray

from isotrope.data.images.records import ImagePart


class RawPixels:
    """The encoder that does nothing: pixels less their channel's mean, over its deviation.

    A representation is worth something where its neighbours are better than those of the pixels.

    Args:
        part: the pictures whose mean and standard deviation are taken.

    Attributes:
        name: ``raw pixels``.
    """

    name = "raw pixels"

    def __init__(self, part: ImagePart, *, batch_size: int = 1024) -> None:
        total, squares, count = np.zeros(3), np.zeros(3), 0
        for first in range(0, len(part.images), batch_size):
            index = np.arange(first, min(first + batch_size, len(part.images)))
            pixels = part.images.read(index).astype(np.float64)
            total += pixels.sum(axis=(0, 2, 3))
            squares += (pixels**2).sum(axis=(0, 2, 3))
            count += pixels[:, 0].size
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
        self._mean = mean.astype(np.float32)[:, None, None]
        # one grey value throughout: nothing to divide by
        self._scale = np.where(deviation > 0, deviation, 1).astype(np.float32)[:, None, None]

    def encode(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the standardised pixels of ``images`` (n x 3 x h x w) as rows."""
        rows: NDArray[np.float32] = (images.astype(np.float32) - self._mean) / self._scale
        return rows.reshape(len(rows), -1)
