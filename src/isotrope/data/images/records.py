"""Declares the types of image sets: indexed pictures, a labelled part, and a whole set."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray


class Pictures(Protocol):
    """Pictures that are read by number, to select from and to resize; files are decoded then."""

    def __len__(self) -> int: ...

    def read(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return pictures as RGB, n x 3 x side x side."""
        ...

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Width and height of each picture (n x 2), or of all (1 x 2) if they are equal."""
        ...

    @property
    def replaced(self) -> tuple[str, ...]:
        """Names of pictures that turned out to be damaged when they were decoded."""
        ...

    def select(self, places: NDArray[np.int64]) -> Self:
        """Return only the pictures at these places, in this order."""
        ...

    def resized(self, side: int) -> Self:
        """Return the same pictures, read as side x side."""
        ...

    def in_memory(self) -> bool:
        """Return whether reading is a copy of memory, without any decoding or resizing."""
        ...

    def facts(self) -> Iterator[Any]:
        """Yield the values for the fingerprint of the set."""
        ...


@dataclass(frozen=True, eq=False)
class ImagePart:
    """The pictures of one split.

    Attributes:
        images: n pictures.
        labels: int64 (n), or None without labels.
        numbers: int64 (n), the position of each in the stored part; None if all are present.
    """

    images: Pictures
    labels: NDArray[np.int64] | None
    numbers: NDArray[np.int64] | None = None

    @property
    def names(self) -> list[int | str]:
        """The path of each picture, or its number from 0 if pictures are not files."""
        if (names := getattr(self.images, "names", None)) is not None:
            return list(names)
        return list(range(len(self.images))) if self.numbers is None else self.numbers.tolist()

    def select(self, places: NDArray[np.int64]) -> "ImagePart":
        """Return only the rows at these places, in this order."""
        labels = None if self.labels is None else self.labels[places]
        numbers = places if self.numbers is None else self.numbers[places]
        return ImagePart(self.images.select(places), labels, numbers)


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Pictures to train on, and to score on.

    Attributes:
        name: the name in tables: the folder's, the file's, or that of a known data set.
        side: pixels of a side of every picture.
        train: the training part, at least two pictures.
        test: the test part, or None.
        class_names: names by label, or None.
        fingerprint: the fingerprint of parts and side. Pictures from arrays enter with their
            pixels; files with name, length in bytes, width and height, so that no folder is decoded
            for it.
        in_memory: Whether the pictures are in memory, so that worker processes would not help.
        skipped: Names of skipped files, which are not readable pictures.
    """

    name: str
    side: int
    train: ImagePart
    test: ImagePart | None
    class_names: tuple[str, ...] | None
    fingerprint: str
    in_memory: bool
    skipped: tuple[str, ...] = ()

    @property
    def replaced(self) -> tuple[str, ...]:
        """Names of the pictures that could not be decoded so far; others replace them."""
        parts = [self.train] if self.test is None else [self.train, self.test]
        return tuple(name for part in parts for name in getattr(part.images, "replaced", ()))


@dataclass(frozen=True, eq=False)
class RecognisedSet:
    """A data set as it is stored, before a part is held out, limited or resized."""

    name: str
    train: ImagePart
    test: ImagePart | None = None
    class_names: tuple[str, ...] | None = None
    skipped: tuple[str, ...] = ()
