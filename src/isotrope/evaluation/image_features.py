"""Computes features of labelled pictures with a frozen encoder.

Pictures are read and encoded in blocks. Memory holds all features, and the pixels of one block.
"""

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.progress import bar
from isotrope.data.images.records import balanced_prefix
from isotrope.data.text.labelled import Features
from isotrope.data.text.repeats import hash64
from isotrope.evaluation.embed import Encoder, encoder_name
from isotrope.evaluation.knn import knn as nearest_neighbours
from isotrope.measures.judgement import DevEvaluation

if TYPE_CHECKING:
    from isotrope.data.images.records import ImagePart, ImageSet


def image_features(
    encoder: Encoder,
    part: "ImagePart",
    *,
    what: str = "training",
    limit: int | None = None,
    batch_size: int = 256,
    progress: bool = False,
) -> Features:
    """Return the features of labelled pictures (n x d, float32), with labels and hashes.

    Args:
        encoder: An ImageEncoder, or any object whose ``encode`` returns n vectors of one size for n
            pictures (uint8, n x 3 x side x side). It must set its own evaluation mode.
        part: The pictures.
        what: Name of the part for messages.
        limit: Largest number of pictures, taken evenly from the classes.
        batch_size: Number of pictures in memory and in a batch.
        progress: Whether to show a progress bar on stderr.
    """
    if part.labels is None:
        raise InputError(
            f"put each class into its own folder, or add labels to the .npz file: the {what} "
            "pictures have no labels, which kNN and a linear probe need"
        )
    labels = np.asarray(part.labels)
    count = len(labels) if limit is None else limit
    chosen = balanced_prefix(labels, count, len(labels))
    taken = inspect.signature(encoder.encode).parameters
    options: dict[str, Any] = {"batch_size": batch_size} if "batch_size" in taken else {}
    vectors, marks = np.empty((len(chosen), 0), dtype=np.float32), np.empty(len(chosen), np.uint64)
    with bar(len(chosen), "encode", f"{what} pictures", show=progress) as done:
        for first in range(0, len(chosen), batch_size):
            index = chosen[first : first + batch_size]
            pictures = part.images.read(index)
            marks[first : first + len(index)] = [hash64(pixels.tobytes()) for pixels in pictures]
            rows = np.asarray(encoder.encode(pictures, **options))
            if first == 0 and rows.ndim == 2:
                vectors = np.empty((len(chosen), rows.shape[1]), dtype=np.float32)
            if rows.shape != (len(index), vectors.shape[1]):
                raise InputError(
                    f"{encoder_name(encoder)}.encode must return one vector for each of "
                    f"{len(index)} pictures; it returned an array of shape {rows.shape}"
                )
            vectors[first : first + len(rows)] = rows
            done(len(rows))
    return Features(vectors, labels[chosen], marks)


def both_features(
    encoder: Encoder,
    image_set: "ImageSet",
    *,
    limit_train: int | None = None,
    limit_test: int | None = None,
    batch_size: int = 256,
    progress: bool = False,
) -> tuple[Features, Features]:
    """Return the features of the training and of the test pictures of a set."""
    test = image_set.test
    if test is None:
        raise InputError(
            "hold some labelled pictures out (`--holdout 0.1`), or give a folder with train/ and "
            f"test/: {image_set.name} has no test part to score on"
        )
    parts = ((image_set.train, "training", limit_train), (test, "test", limit_test))
    train, tested = (
        image_features(
            encoder, part, what=what, limit=limit, batch_size=batch_size, progress=progress
        )
        for part, what, limit in parts
    )
    return train, tested


def knn_evaluation(
    encoder: Encoder,
    image_set: "ImageSet",
    *,
    limit_train: int | None = None,
    limit_test: int | None = None,
) -> DevEvaluation:
    """Return the kNN accuracy in percent, and whether each test picture is classified right."""
    features = both_features(encoder, image_set, limit_train=limit_train, limit_test=limit_test)
    result = nearest_neighbours(*features)
    return DevEvaluation(100 * float(result.metrics["knn_top1"] or 0.0), result.items["knn_top1"])
