"""Classifies features of a frozen encoder by their k nearest neighbours, without any training.

Neighbours are the training rows with the highest cosine. Each votes for its class with the weight
exp(cosine/t), as in Wu et al. (2018). Draganov et al. (2024) and Manna et al. (2023) use k = 200
and t = 0.1. In a second score, the majority vote, each neighbour has the weight 1.
"""

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.data.text.labelled import Features
from isotrope.evaluation.labelled import (
    Classes,
    check_finite,
    classified,
    index_classes,
    label_in_top_k,
)
from isotrope.evaluation.nearest import nearest_rows

_ROWS = 1024  # test rows whose votes are counted at a time


def knn(
    train: Features,
    test: Features,
    *,
    k: int = 200,
    temperature: float = 0.1,
    name: str = "features",
) -> Result:
    """Classify every test row by the votes of its k nearest training rows.

    Memory holds the test features, the k neighbours of each, and a block of similarities, but not
    the training features if they are a memory map. If neighbours have the same cosine (to nine
    decimals), the earlier row of the training part comes first. If classes have equal votes, the
    first by name wins. A class without a neighbour is never among the first five.

    Args:
        train: Labelled training rows, n.
        test: Labelled test rows, m.
        k: Number of neighbours that vote. If n is smaller than k, all n rows vote, and the result
            reports n.
        temperature: Temperature t of the weighted vote. A smaller t favours near neighbours.
        name: Name of the Result.

    Returns:
        A Result of kind ``knn``. ``knn_top1`` and ``knn_top5`` are the shares of test rows whose
        class is first, or among the first five, in the weighted vote. ``knn_top5`` is None with
        five classes or fewer. ``knn_majority_top1`` is the share for the majority vote. ``items``
        hold, under the same names, whether each row is right.
    """
    if k < 1 or not 0 < temperature < np.inf:
        raise InputError(
            f"kNN needs k of at least 1 and a temperature above 0; found k = {k} and "
            f"t = {temperature}"
        )
    classes = index_classes(train, test)
    check_finite(test.vectors, "test")
    check_finite(train.vectors, "training")
    places, cosines = nearest_rows(test.vectors, train.vectors, min(k, len(classes.train)))
    items = _votes(places, cosines, classes, temperature)
    settings = {"k": places.shape[1], "k_asked": k, "temperature": temperature}
    return classified("knn", name, items, classes, **settings)


def _votes(
    places: np.ndarray, cosines: np.ndarray, classes: Classes, temperature: float
) -> dict[str, np.ndarray]:
    """Return, for each kind of vote, whether the neighbours (m x k) classify each row right."""
    correct: dict[str, list[np.ndarray]] = {"top1": [], "top5": [], "majority_top1": []}
    for first in range(0, len(places), _ROWS):
        block = slice(first, first + _ROWS)
        labels = classes.train[places[block]]
        # subtracting the highest cosine of a row changes no order, and exp cannot overflow
        weight = np.exp((cosines[block] - cosines[block, :1]) / temperature)
        count = _sums(labels, np.ones_like(weight), len(classes.names))
        weighted = np.where(count > 0, _sums(labels, weight, len(classes.names)), -np.inf)
        truth = classes.test[block]
        correct["top1"].append(label_in_top_k(weighted, truth, 1))
        correct["top5"].append(label_in_top_k(weighted, truth, 5))
        correct["majority_top1"].append(label_in_top_k(count, truth, 1))
    return {key: np.concatenate(right) for key, right in correct.items()}


def _sums(labels: np.ndarray, weights: np.ndarray, classes: int) -> np.ndarray:
    """Return, for each row and class, the sum of the weights (n x k) with that label, n x C."""
    cell = np.arange(len(labels))[:, None] * classes + labels
    total = np.bincount(cell.ravel(), weights.ravel(), minlength=len(labels) * classes)
    return total.reshape(len(labels), classes)
