"""Prepares labelled examples for kNN and the linear probe: numbers of classes, and features."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.result import Result, provenance
from isotrope.data.text.labelled import Features, LabelledSplit, LabelledText
from isotrope.data.text.repeats import hash64
from isotrope.evaluation.embed import Encoder, embed

_ROWS = 8192  # rows that are checked at a time


@dataclass(frozen=True)
class Classes:
    """The labels of a training set and a test set, as numbers of classes.

    Attributes:
        names: The C classes: the different labels of the training set, sorted.
        train: Class of each training example, int64 (n), in [0, C).
        test: Class of each test example, int64 (m), in [0, C). It is -1 for a class that is not in
            the training set; any prediction for such an example counts as wrong.
        repeated: Number of test examples that are also in the training set; None if unknown.
    """

    names: np.ndarray
    train: np.ndarray
    test: np.ndarray
    repeated: int | None = None


def index_classes(train: Features, test: Features) -> Classes:
    """Return the labels of a training set and a test set as numbers of classes."""
    first, second = np.asarray(train.labels), np.asarray(test.labels)
    names, numbers = np.unique(first, return_inverse=True)
    if len(names) < 2:
        raise InputError(f"give examples of at least two classes; found only {names.tolist()}")
    # for an unknown label, searchsorted returns the place of another class; np.where makes it -1
    place = np.searchsorted(names, second).clip(max=len(names) - 1)
    repeated = None
    if train.marks is not None and test.marks is not None:
        repeated = int(np.isin(test.marks, train.marks).sum())
    return Classes(names, numbers, np.where(names[place] == second, place, -1), repeated)


def check_finite(rows: np.ndarray, what: str) -> None:
    """Raise an error if a number in ``rows`` (n x d, also a memory map) is NaN or infinite."""
    for first in range(0, len(rows), _ROWS):
        if not np.isfinite(rows[first : first + _ROWS]).all():
            raise InputError(
                f"encode the {what} examples again, or remove those whose features are not "
                "finite: some features are NaN or infinite, or too large"
            )


def label_in_top_k(scores: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Return, for each row of scores (n x C), whether its label has one of the k highest scores.

    In a tie, the class with the lower number comes first. The result is False for a label whose
    score is minus infinity, and for the label -1 (a class outside the training set).
    """
    label_scores = scores[np.arange(len(scores)), labels][:, None]
    earlier = np.arange(scores.shape[1]) < labels[:, None]
    before = ((scores > label_scores) | (earlier & (scores == label_scores))).sum(axis=1)
    return np.asarray((before < k) & (labels >= 0) & (label_scores[:, 0] > -np.inf))


def classified(
    kind: str, name: str, items: Mapping[str, np.ndarray], classes: Classes, **details: Any
) -> Result:
    """Return the Result of a classification; ``items`` are True for rows classified correctly."""
    values: dict[str, float | None] = {key: float(right.mean()) for key, right in items.items()}
    if len(classes.names) <= 5:
        values["top5"] = None
    counts = {
        "train": len(classes.train),
        "test": len(classes.test),
        "classes": len(classes.names),
        "unseen": int((classes.test < 0).sum()),
        "repeated": classes.repeated,
    }
    return Result(
        kind=kind,
        name=name,
        metrics={f"{kind}_{key}": value for key, value in values.items()},
        details={kind: {**values, **details, **counts}},
        provenance=provenance(seed=details.get("seed")),
        items={f"{kind}_{key}": right for key, right in items.items()},
    )


def text_features(
    encoder: Encoder, data: LabelledSplit, *, batch_size: int = 128
) -> tuple[Features, Features]:
    """Return the embeddings of the training and test texts. Each distinct text is encoded once."""
    texts = [*data.train.texts, *data.test.texts]
    vectors = embed(encoder, texts, "labelled texts", batch_size=batch_size)
    train, test = np.split(vectors, [len(data.train)])
    return _marked(train, data.train), _marked(test, data.test)


def _marked(vectors: np.ndarray, part: LabelledText) -> Features:
    marks = np.array([hash64(text.encode()) for text in part.texts], dtype=np.uint64)
    return Features(vectors, part.labels, marks)
