"""Declares the types of image sets, and chooses pictures by their labels."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError


class Pictures(ABC):
    """A sequence of pictures. A subclass is a dataclass with the field ``side``."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the pictures at these positions as RGB, n x 3 x side x side."""

    @property
    @abstractmethod
    def sizes(self) -> NDArray[np.int64]:
        """Width and height of each picture, n x 2; may be 1 x 2 if all have the same size."""

    @property
    def replaced(self) -> tuple[str, ...]:
        """Names of the pictures that could not be decoded. Others were read in their place."""
        return ()

    @abstractmethod
    def select(self, places: NDArray[np.int64]) -> Self:
        """Return only the pictures at these positions, in this order."""

    def resized(self, side: int) -> Self:
        """Return the same pictures, which ``read`` resizes to side x side."""
        return cast("Self", replace(cast("Any", self), side=side))

    def in_memory(self) -> bool:
        """Return whether the decoded pictures are in memory and have their final size."""
        return False

    @abstractmethod
    def facts(self) -> Iterator[Any]:
        """Yield the values for the fingerprint of the set."""


@dataclass(frozen=True, eq=False)
class ImagePart:
    """The pictures of one split.

    Attributes:
        images: The n pictures.
        labels: Number of each picture's class, int64 (n). A number below 0 marks a picture without
            a label, which is trained on, but not scored. None if no picture has a label.
        numbers: Position of each picture in the split as it was loaded, int64 (n). None means that
            the positions are 0 to n - 1.
    """

    images: Pictures
    labels: NDArray[np.int64] | None
    numbers: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.labels is not None and not (self.labels >= 0).any():
            object.__setattr__(self, "labels", None)

    @property
    def names(self) -> list[int | str]:
        """Names of the pictures as a list; pictures without names have positions in the split."""
        if (names := getattr(self.images, "names", None)) is not None:
            return list(names)
        return list(range(len(self.images))) if self.numbers is None else self.numbers.tolist()

    def select(self, places: NDArray[np.int64]) -> "ImagePart":
        """Return only the pictures at these positions, in this order."""
        labels = None if self.labels is None else self.labels[places]
        numbers = places if self.numbers is None else self.numbers[places]
        return ImagePart(self.images.select(places), labels, numbers)


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Pictures for training, and pictures for scoring.

    Attributes:
        name: Name of the folder or file, or ``digits``. It is printed in tables.
        train: Training part, at least two pictures.
        test: Test part; None if the set has none.
        class_names: Names of the classes, in the order of the labels; None if unknown.
        skipped: Names of the files that were skipped, because they are not readable pictures.
        side: Height and width of every picture in pixels; 0 if not yet chosen.
        fingerprint: Hash of the pictures, the labels and ``side``. For picture files, the hash is
            of their names, lengths, widths and heights, and of their first and last kilobytes.
        in_memory: Whether all pictures are in memory. If True, worker processes do not help.
    """

    name: str
    train: ImagePart
    test: ImagePart | None = None
    class_names: tuple[str, ...] | None = None
    skipped: tuple[str, ...] = ()
    side: int = 0
    fingerprint: str = ""
    in_memory: bool = False

    @property
    def replaced(self) -> tuple[str, ...]:
        """Names of the pictures that could not be decoded. Others were read in their place."""
        parts = [self.train] if self.test is None else [self.train, self.test]
        return tuple(name for part in parts for name in part.images.replaced)


def matched(
    numbers: NDArray[np.int64], names: tuple[str, ...] | None, others: tuple[str, ...] | None
) -> NDArray[np.int64]:
    """Return the labels of a test part with the numbers that the training part uses.

    Args:
        numbers: Labels of the test part, int64 (n). Numbers below 0 stay the same.
        names: Names of the classes of the test part, in the order of its labels.
        others: Names of the classes of the training part, in the order of its labels.
    """
    if (names is None) != (others is None):
        raise InputError(
            "name the classes of both parts, or of neither: one part has names of classes, and the "
            "other has only numbers, so classes cannot be matched"
        )
    if not names or not others or names == others:
        return numbers
    unknown = [name for name in names if name not in others]
    place = {name: i for i, name in enumerate((*others, *unknown))}
    renumbered = np.array([place[name] for name in names], dtype=np.int64)
    return np.where(numbers < 0, numbers, renumbered[numbers])


def balanced_prefix(labels: NDArray[np.int64] | None, n: int, total: int) -> NDArray[np.int64]:
    """Return the positions of at most ``n`` pictures, in ascending order.

    The first picture of every class is chosen, then the second of every class, and so on. Pictures
    without a label count as a class. Without any labels, the first ``n`` pictures are chosen.
    """
    if labels is None:
        return np.arange(min(n, total))
    return np.sort(np.lexsort((np.arange(total), _ranks(labels)))[:n])


def _ranks(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each label, how many equal labels precede it."""
    order = np.argsort(labels, kind="stable")
    _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(len(labels)) - np.repeat(starts, counts)
    return ranks


def held_out(
    labels: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of the training pictures, and the positions of the held-out pictures.

    From each class, ``share`` of the pictures are held out (rounded), and at least one is kept.
    Pictures without a label (below 0) are training pictures.
    """
    if not 0 < share < 1:
        raise InputError(f"give a held-out share between 0 and 1, not {share}")
    order = np.random.default_rng(seed).permutation(len(labels))
    out = np.zeros(len(labels), bool)
    classes = np.unique(labels[labels >= 0])
    for label in classes:
        rows = order[labels[order] == label]
        out[rows[: min(int(share * len(rows) + 0.5), len(rows) - 1)]] = True
    if not out.any():
        raise InputError(
            f"give a held-out share above {share}, give more pictures of each class, or add a "
            f"folder test/ beside train/; with this share of {len(labels)} pictures in "
            f"{len(classes)} classes, no class has a picture for the test part"
        )
    return np.flatnonzero(~out), np.flatnonzero(out)
