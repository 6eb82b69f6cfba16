"""Reads pictures from arrays: ``.npz`` files, strips of lossless WebP, scikit-learn's digits.

The pictures of an ``.npz`` file are a uint8 array named ``images``, ``x``, ``x_train`` or
``train_images``. The shape is n x h x w x channels, n x channels x h x w or n x h x w, with 1, 3 or
4 channels. If an array fits both of the first two shapes, its last axis holds the channels. The
file may also hold ``labels`` or ``y`` (n integers or names), ``class_names``, and a test part, such
as ``x_test`` with the labels ``y_test``, or ``test_images`` with the labels ``test_labels``. A
label of -1 marks a picture without a label.

A strip is a WebP image of square pictures, one below the other. A folder of strips has files
``train*.npz`` and optionally ``test.npz``. Each file has the arrays ``webp`` (bytes of all strips),
``offsets`` (start of each strip, and number of bytes), ``labels``, and perhaps ``class_names``.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from isotrope.core.errors import InputError, needs_extra, place
from isotrope.core.pictures import Unreadable, pixels, square
from isotrope.data.images.records import ImagePart, ImageSet, Pictures, balanced_prefix, held_out
from isotrope.data.lines import open_bytes, quoted, refuse_bomb

_IMAGES = ("images", "x", "x_train", "train_images")
_LABELS = ("labels", "y", "y_train", "train_labels")
_TEST_PARTS = {
    "x_test": "y_test",
    "test_images": "test_labels",
    "images_test": "labels_test",
    "x_val": "y_val",
    "val_images": "val_labels",
}
_DIGITS_TEST = 0.2


@dataclass(frozen=True, eq=False)
class ArrayImages(Pictures):
    """An array of pictures, n x 3 x h x w. A picture is resized when it is read."""

    array: NDArray[np.uint8]
    side: int | None = None

    def __len__(self) -> int:
        return len(self.array)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Width and height that all pictures have, 1 x 2."""
        return np.array([self.array.shape[:1:-1]])

    def read(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the pictures at these positions as RGB, n x 3 x side x side."""
        rows = self.array[np.asarray(indices, np.int64)]
        if self.side is None or self.in_memory():
            return rows
        made = np.empty((len(rows), 3, self.side, self.side), np.uint8)
        for row, to in zip(rows, made, strict=True):
            to[:] = square(row, self.side)
        return made

    def select(self, places: NDArray[np.int64]) -> Self:
        """Return only the pictures at these positions."""
        if len(places) and np.array_equal(places, np.arange(len(places))):
            return replace(self, array=self.array[: len(places)])  # a prefix needs no copy
        return replace(self, array=self.array[places])

    def in_memory(self) -> bool:
        """Return whether the pictures need no resizing."""
        return self.array.shape[2:] == (self.side, self.side)

    def facts(self) -> Iterator[Any]:
        """Yield the pixels, for the fingerprint of the set."""
        yield self.array


def load_npz(path: Path) -> ImageSet:
    """Open the pictures of an ``.npz`` file."""
    with _opened(path) as arrays:
        key = arrays.one_of(_IMAGES)
        if key is None:
            raise InputError(
                f"{place(path)}: call the array of pictures {' or '.join(_IMAGES)}; the arrays in "
                f"the file are: {quoted(', '.join(arrays.names), 200)[1:-1] or 'none'}"
            )
        names = arrays.strings("class_names")
        train, names = _part(arrays, key, arrays.one_of(_LABELS), names)
        test, test_key = None, arrays.one_of(tuple(_TEST_PARTS))
        if test_key is not None:
            labels = arrays.one_of((_TEST_PARTS[test_key],))
            test, names = _part(arrays, test_key, labels, names)
    return ImageSet(path.stem, train, test, names)


@contextmanager
def _opened(path: Path) -> "Iterator[_Archive]":
    """Open an ``.npz`` file. Nothing in the file is executed."""
    with open_bytes(path) as handle:
        why = "one array without a name"
        try:
            archive = np.load(handle, allow_pickle=False)
        except Exception as error:  # numpy raises many kinds of errors on damaged bytes
            archive, why = None, str(error)
        if not isinstance(archive, NpzFile):
            raise InputError(
                f"{place(path)}: write the file with numpy.savez(path, images=..., labels=...); "
                f"isotrope cannot read it as an .npz file of pictures ({quoted(why, 80)})"
            )
        with archive:
            yield _Archive(path, archive)


class _Archive:
    """The arrays of an ``.npz`` file. Each is read when it is asked for by its name."""

    def __init__(self, path: Path, arrays: NpzFile) -> None:
        self.path, self._arrays, self.names = path, arrays, list(arrays)

    def one_of(self, names: Sequence[str]) -> str | None:
        """Return the first of these names that the archive holds."""
        return next((name for name in names if name in self.names), None)

    def __getitem__(self, name: str) -> NDArray[Any]:
        assert self._arrays.zip is not None  # it is open
        for member in self._arrays.zip.infolist():
            if member.filename in (name, f"{name}.npy"):
                refuse_bomb(self.path, member.file_size, member.compress_size)
        try:
            array = self._arrays[name]
            if not isinstance(array, np.ndarray):  # numpy returns other members as bytes
                raise TypeError("no array")
            return array
        except Exception as error:  # numpy raises many kinds of errors on damaged bytes
            raise InputError(
                f"{place(self.path)}: save the array {name!r} as numbers or texts, without Python "
                f"objects; the array cannot be read ({quoted(str(error), 80)})"
            ) from error

    def strings(self, name: str) -> tuple[str, ...] | None:
        """Return an array as a tuple of texts; None if the file has no array of this name."""
        return tuple(map(str, self[name].ravel())) if name in self.names else None


def _part(
    arrays: _Archive, images: str, labels: str | None, names: tuple[str, ...] | None
) -> tuple[ImagePart, tuple[str, ...] | None]:
    """Return a split, and the names of its classes if they are known."""
    rows = ArrayImages(_channels_first(arrays[images], arrays.path, images))
    if labels is None:
        return ImagePart(rows, None), names
    label_array = arrays[labels]
    if label_array.shape not in {(len(rows),), (len(rows), 1)}:
        raise InputError(
            f"{place(arrays.path)}: give one label for each of the {len(rows)} pictures in the "
            f"array {images!r}; the array {labels!r} has the shape {label_array.shape}"
        )
    label_array = label_array.ravel()
    if label_array.dtype.kind == "U":
        return _by_name(rows, label_array, names, arrays.path)
    if label_array.dtype.kind not in "iu":
        raise InputError(
            f"{place(arrays.path)}: save {labels!r} as integers or names, not {label_array.dtype}"
        )
    numbers = label_array.astype(np.int64)
    if names is not None and not -1 <= numbers.min() <= numbers.max() < len(names):
        raise InputError(
            f"{place(arrays.path)}: give labels from 0 to {len(names) - 1}, one for each class "
            f"name, or -1 for pictures without a label; the labels in the file go from "
            f"{numbers.min()} to {numbers.max()}"
        )
    return ImagePart(rows, numbers), names


def _by_name(
    rows: ArrayImages, label_names: NDArray[Any], names: tuple[str, ...] | None, path: Path
) -> tuple[ImagePart, tuple[str, ...]]:
    """Return a split whose labels are names, with a number for each name."""
    class_names = tuple(sorted(set(label_names.tolist()))) if names is None else names
    if unknown := set(label_names.tolist()) - set(class_names):
        raise InputError(
            f"{place(path)}: add {quoted(min(unknown))} to the array class_names, because a "
            "picture has this label"
        )
    number = {name: i for i, name in enumerate(class_names)}
    numbers = [number[name] for name in label_names.tolist()]
    return ImagePart(rows, np.array(numbers, np.int64)), class_names


def _channels_first(array: NDArray[Any], path: Path, name: str) -> NDArray[np.uint8]:
    """Return pictures as n x 3 x h x w, from any of the known layouts."""
    if array.dtype != np.uint8:
        raise InputError(
            f"{place(path)}: save the array {name!r} as uint8 from 0 to 255, not {array.dtype}; to "
            "convert values between 0 and 1, use (255 * images).round().astype('uint8')"
        )
    shape = array.shape
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and shape[3] in (1, 3, 4):
        array = array.transpose(0, 3, 1, 2)
    elif array.ndim != 4 or shape[1] not in (1, 3, 4):
        raise InputError(
            f"{place(path)}: give pictures as n x h x w x channels, n x channels x h x w or "
            f"n x h x w, with 1, 3 or 4 channels; the array {name!r} has the shape {shape}"
        )
    if not array.size:
        raise InputError(f"{place(path)}: add pictures to the empty array {name!r} (shape {shape})")
    if array.shape[1] == 1:
        array = np.broadcast_to(array, (len(array), 3, *array.shape[2:]))
    if array.shape[1] == 4:  # transparent pixels become white
        alpha = array[:, 3:].astype(np.float32) / 255
        array = (array[:, :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)
    return np.ascontiguousarray(array)


def is_strips(folder: Path) -> bool:
    """Return whether a folder is a folder of strips."""
    first = min(folder.glob("train*.npz"), default=None)
    if first is None:
        return False
    with _opened(first) as arrays:
        return "webp" in arrays.names


def load_strips(folder: Path, limit: int | None = None) -> ImageSet:
    """Open a folder of strips; decode only files needed to choose ``limit`` training pictures."""
    files = sorted(folder.glob("train*.npz"))
    needed = None
    labels = np.concatenate([_labels(path) for path in files])
    if limit is not None:
        needed = int(balanced_prefix(labels, limit, len(labels))[-1]) + 1
    parts: list[ImagePart] = []
    names = None
    for path in files:
        before = sum(len(part.images) for part in parts)
        if needed is None or before < needed:
            part, names = _strips(path, None if needed is None else needed - before)
            parts.append(part)
    array = np.concatenate([part.images.read(range(len(part.images))) for part in parts])
    test_file = folder / "test.npz"
    test = _strips(test_file)[0] if test_file.exists() else None
    return ImageSet(folder.name, ImagePart(ArrayImages(array), labels[: len(array)]), test, names)


def _labels(path: Path) -> NDArray[np.int64]:
    with _opened(path) as arrays:
        return arrays["labels"].astype(np.int64)


def _strips(path: Path, limit: int | None = None) -> tuple[ImagePart, tuple[str, ...] | None]:
    """Return at most the first ``limit`` pictures of a file, and the names of the classes."""
    with _opened(path) as arrays:
        webp, offsets = arrays["webp"], arrays["offsets"]
        labels, names = arrays["labels"].astype(np.int64)[:limit], arrays.strings("class_names")
    decoded: list[NDArray[np.uint8]] = []
    try:
        for start, end in pairwise(offsets):
            if limit is None or sum(map(len, decoded)) < limit:
                strip = pixels(io.BytesIO(webp[start:end].tobytes()))
                decoded.append(strip.reshape(-1, strip.shape[1], strip.shape[1], 3))
        rows = np.concatenate(decoded).transpose(0, 3, 1, 2)[:limit]
    except (Unreadable, ValueError, TypeError) as error:
        raise InputError(
            f"{place(path)}: copy this file from its source again; strip {len(decoded)} in the "
            f"file is damaged ({quoted(str(error), 80)})"
        ) from error
    if len(labels) != len(rows):
        raise InputError(
            f"{place(path)}: copy this file from its source again; the numbers of pictures "
            f"({len(rows)}) and labels ({len(labels)}) differ"
        )
    return ImagePart(ArrayImages(np.ascontiguousarray(rows)), labels), names


def load_digits(share: float, seed: int) -> ImageSet:
    """Open scikit-learn's 1,797 handwritten digits as RGB pictures of 8 x 8.

    Args:
        share: Share of each class's pictures that form the test part. If 0, the share is 0.2.
        seed: Seed of the random choice of the test pictures.
    """
    with needs_extra("image"):
        from sklearn.datasets import load_digits as bundled
    digits = bundled()
    grey = (digits.images * (255 / 16)).round().astype(np.uint8)[:, None]
    images = ArrayImages(np.ascontiguousarray(np.broadcast_to(grey, (len(grey), 3, 8, 8))))
    everything = ImagePart(images, digits.target.astype(np.int64))
    train, test = held_out(digits.target, share or _DIGITS_TEST, seed)
    names = tuple(map(str, range(10)))
    return ImageSet("digits", everything.select(train), everything.select(test), names)
