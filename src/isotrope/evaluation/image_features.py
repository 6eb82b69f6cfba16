"""Computes frozen features of labelled pictures, in blocks.

A block of pictures is read, encoded and forgotten, so memory holds the features and one block,
however many pictures there are and wherever they lie.
"""

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError
from isotrope.core.progress import bar
from isotrope.data.images.splits import balanced_prefix
from isotrope.data.text.labelled import Features
from isotrope.evaluation.embed import Encoder, encoder_name

if TYPE_CHECKING:
    from isotrope.data.images.sets import ImagePart, ImageSet

__all__ = ["RawPixels", "both_features", "image_features"]


def image_features(
    encoder: Encoder,
    part: "ImagePart",
    *,
    what: str = "training",
    limit: int | None = None,
    batch_size: int = 256,
    progress: bool = False,
) -> Features:
    """Return the features of labelled pictures (n x d, float32) and their labels.

    Args:
        encoder: ours, or anything whose ``encode`` makes n vectors of one size of n pictures
            (uint8, n x 3 x side x side). It has to see to its evaluation mode itself; ours does.
        part: the pictures.
        what: part of the set, as messages name it.
        limit: the most pictures, the first when the classes take turns.
        batch_size: pictures held and encoded at a time.
        progress: show a bar on stderr.

    Raises:
        InputError: pictures without labels, a limit below 1, or an encoder that returns something
            else.
    """
    if part.labels is None:
        raise InputError(
            f"the {what} pictures have no labels, and neighbours or a linear probe need them: put "
            "each class into a folder of its own, or add labels to the .npz file"
        )
    labels = np.asarray(part.labels)
    if limit is not None and limit < 1:
        raise InputError(f"at least 1 picture is needed; found a limit of {limit}")
    count = len(labels) if limit is None else limit
    chosen = balanced_prefix(labels, count, len(labels))
    taken = inspect.signature(encoder.encode).parameters
    options: dict[str, Any] = {"batch_size": batch_size} if "batch_size" in taken else {}
    vectors = np.empty((len(chosen), 0), dtype=np.float32)
    with bar(len(chosen), "encode", f"{what} pictures", show=progress) as done:
        for first in range(0, len(chosen), batch_size):
            index = chosen[first : first + batch_size]
            rows = np.asarray(encoder.encode(part.images.read(index), **options))
            if first == 0 and rows.ndim == 2:
                vectors = np.empty((len(chosen), rows.shape[1]), dtype=np.float32)
            if rows.shape != (len(index), vectors.shape[1]):
                raise InputError(
                    f"{encoder_name(encoder)}.encode must return one vector for each of "
                    f"{len(index)} pictures; it returned an array of shape {rows.shape}"
                )
            vectors[first : first + len(rows)] = rows
            done(len(rows))
    return Features(vectors, labels[chosen])


def both_features(
    encoder: Encoder,
    image_set: "ImageSet",
    *,
    limit_train: int | None = None,
    limit_test: int | None = None,
    batch_size: int = 256,
    progress: bool = False,
) -> tuple[Features, Features]:
    """Return the features of the training and of the test pictures of a set.

    Raises:
        InputError: see :func:`image_features`; or there is no test part.
    """
    test = image_set.test
    if test is None:
        raise InputError(
            f"{image_set.name} has no test part to score on: hold some of its labelled pictures "
            "out (--holdout 0.1), or give a folder with train/ and test/"
        )
    parts = ((image_set.train, "training", limit_train), (test, "test", limit_test))
    train, tested = (
        image_features(
            encoder, part, what=what, limit=limit, batch_size=batch_size, progress=progress
        )
        for part, what, limit in parts
    )
    return train, tested


class RawPixels:
    """The encoder that does nothing: pixels less their channel's mean, over its deviation.

    A representation is worth something where its neighbours are better than those of the pixels.

    Args:
        part: the pictures whose mean and standard deviation are taken.

    Attributes:
        name: ``raw pixels``.
    """

    name = "raw pixels"

    def __init__(self, part: "ImagePart", *, batch_size: int = 1024) -> None:
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
