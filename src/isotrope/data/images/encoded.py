"""Pictures that are decoded when they are read: files of a folder, or cells of a table.

``folder`` and ``tables`` find the pictures, and call :func:`readable_pictures`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.errors import InputError, place
from isotrope.core.pictures import Unreadable, measure, square
from isotrope.data.images.records import ImagePart, Pictures
from isotrope.data.lines import quoted


@dataclass(frozen=True, eq=False)
class EncodedImages(Pictures):
    """Pictures that are decoded when they are read.

    A picture that cannot be decoded is replaced by the next picture of the same label. If no
    picture of this label can be decoded, the next picture of any label replaces it. Every process
    chooses the same replacement.

    Attributes:
        keys: Key of each picture: the path of its file, or the number of its row in a table.
        opened: Function that takes a key, and returns the picture's path or opens its bytes.
        facts_of: Width and height in pixels, length in bytes and checksum of each picture, int64,
            n x 4. The checksum is that of the first and last kilobyte.
        labels: Number of each picture's class, int64 (n); None if there are no classes.
        broken: Whether decoding a picture has failed, n booleans, shared by all processes.
        side: Height and width to which ``read`` resizes pictures, in pixels.
    """

    keys: tuple[str | int, ...]
    opened: Callable[[Any], Path | BinaryIO]
    facts_of: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    broken: Tensor
    side: int = 32

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the pictures: paths of files, or ``"row 5"`` and so on in a table."""
        return tuple(key if isinstance(key, str) else f"row {key}" for key in self.keys)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Width and height of each picture, n x 2."""
        return self.facts_of[:, :2]

    @property
    def replaced(self) -> tuple[str, ...]:
        """Names of the pictures that could not be decoded."""
        return tuple(compress(self.names, self.broken.tolist()))

    def read(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the pictures at these positions as RGB, n x 3 x side x side."""
        pixels = np.empty((len(indices), 3, self.side, self.side), np.uint8)
        for row, i in zip(pixels, indices, strict=True):
            row[:] = self._decoded(int(i))
        return pixels

    def _decoded(self, i: int) -> NDArray[np.uint8]:
        """Return a decoded picture, or its replacement if it is broken."""
        for candidate in self._candidates(i):
            if not self.broken[candidate]:
                try:
                    return square(self.opened(self.keys[candidate]), self.side)
                except Unreadable:
                    self.broken[candidate] = True
        raise InputError(
            f"copy the pictures from their source again: none of {len(self)} pictures can be "
            f"decoded, for example {quoted(self.names[i])}"
        )

    def _candidates(self, i: int) -> Iterator[int]:
        yield i
        after = (np.arange(1, len(self)) + i) % len(self)
        if self.labels is not None:
            same = self.labels[after] == self.labels[i]
            after = np.concatenate([after[same], after[~same]])
        yield from after.tolist()

    def select(self, places: NDArray[np.int64]) -> Self:
        """Return only the pictures at these positions."""
        labels = None if self.labels is None else self.labels[places]
        keys, facts = tuple(self.keys[i] for i in places), self.facts_of[places]
        return replace(self, keys=keys, facts_of=facts, labels=labels, broken=_flags(len(keys)))

    def facts(self) -> Iterator[Any]:
        """Yield names, widths, heights, lengths and checksums, for the fingerprint of the set."""
        yield iter(self.names)
        yield self.facts_of


def _flags(n: int) -> Tensor:
    """Return n booleans, all False, in memory that worker processes share."""
    flags: Tensor = torch.zeros(n, dtype=torch.bool).share_memory_()
    return flags


def readable_pictures(
    keys: Sequence[str | int],
    opened: Callable[[Any], Path | BinaryIO],
    labels: NDArray[np.int64] | None,
    where: Path,
) -> tuple[ImagePart, tuple[str, ...]]:
    """Return the pictures whose headers can be read, and the names of the other pictures."""
    facts = np.zeros((len(keys), 4), np.int64)
    good = np.zeros(len(keys), bool)
    for i, key in enumerate(keys):
        try:
            facts[i] = measure(opened(key))
            good[i] = True
        except Unreadable:
            pass
    images = EncodedImages(tuple(keys), opened, facts, labels, _flags(len(keys)))
    skipped = tuple(compress(images.names, ~good))
    if not good.any():
        such = f", for example {quoted(skipped[0])}" if skipped else ""
        raise InputError(
            f"{place(where)}: give pictures as PNG, JPEG, WebP, GIF, BMP or TIFF; none of "
            f"{len(keys)} files can be read as a picture{such}"
        )
    readable = images.select(np.flatnonzero(good))
    return ImagePart(readable, readable.labels), skipped
