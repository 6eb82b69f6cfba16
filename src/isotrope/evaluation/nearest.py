"""Finds the nearest rows by cosine, and predicts labels by their votes (kNN).

The search is exact and computes similarities in tiles. Scores are cosines in float64, rounded to
nine decimals. In a tie, the row with the lower index in the corpus comes first. Therefore the order
does not depend on the size of the tiles or on the linear algebra library.
"""

import numpy as np
import torch

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.data.text.labelled import Features
from isotrope.evaluation import labelled

# An int64 key holds a score and an index: (1 + cosine) * 1e9 in the upper 31 bits, and the largest
# index minus the index in the lower 32 bits. A larger key is then a better row.
_STEPS = 10**9
_INDICES = 2**32 - 1

_QUERIES = 1024  # number of queries that are searched at a time
_ROWS = 1024  # test rows whose votes are counted at a time


def nearest_rows(
    queries: np.ndarray, corpus: np.ndarray, top: int, *, tile: int = 2_000_000
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each query, the rows of ``corpus`` with the highest cosines.

    Args:
        queries: Embeddings of the queries, n x d.
        corpus: Embeddings of the corpus, m x d, an array or memory map; m is below 2^32. A row of
            zeros, or a row that is not finite, has cosine 0.
        top: Number k of rows to return for each query; all m rows if m is below k.
        tile: Number of similarities to compute at a time; a similarity takes 24 bytes. It is also
            the largest number of corpus values (rows times d) that are in memory in float64.

    Returns:
        A tuple of indices (n x k, int64) and cosines (n x k, float64, nine decimals), best first.
    """
    starts = range(0, max(1, len(queries)), _QUERIES)
    keys = np.concatenate([_best(queries[i : i + _QUERIES], corpus, top, tile) for i in starts])
    return _INDICES - (keys & _INDICES), (keys >> 32) / _STEPS - 1


def _best(queries: np.ndarray, corpus: np.ndarray, top: int, tile: int) -> np.ndarray:
    """Return the keys of the best rows, n x k, best first."""
    anchors = _unit(queries)
    width = max(1, tile // max(1, *anchors.shape))
    best = np.empty((len(anchors), 0), dtype=np.int64)
    for first in range(0, len(corpus), width):
        rows = _unit(corpus[first : first + width])
        new = _highest(_keys(anchors @ rows.T, first + np.arange(len(rows))), top)
        best = _highest(np.concatenate([best, new], axis=1), top)
    return best


def _highest(keys: np.ndarray, top: int) -> np.ndarray:
    """Return the ``top`` highest keys of each row, in descending order. No two keys are equal."""
    return np.asarray(torch.topk(torch.from_numpy(keys), min(top, keys.shape[1]), dim=1).values)


def _keys(cosines: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return an int64 key for each cosine: larger for a higher cosine, then for a lower index."""
    steps = cosines + 1
    steps *= _STEPS
    keys: np.ndarray = np.rint(steps, out=steps).astype(np.int64)  # in place, to save memory
    keys <<= 32
    keys |= _INDICES - indices
    return keys


def _unit(rows: np.ndarray) -> np.ndarray:
    """Return the rows with length 1, in float64; rows without a direction become 0."""
    rows = np.asarray(rows, dtype=np.float64)
    with np.errstate(all="ignore"):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(np.isfinite(unit).all(axis=1, keepdims=True), unit, 0.0)


def knn(
    train: Features,
    test: Features,
    *,
    k: int = 200,
    temperature: float = 0.1,
    name: str = "features",
) -> Result:
    """Classify every test row by the votes of its k nearest training rows.

    Memory holds the test features, the k neighbours of each test row, and a block of similarities.
    Training features may stay on disk, as a memory map. If cosines are equal to nine decimals, the
    earlier training row comes first. If classes have equal votes, the first class by name wins. A
    class without a vote is never among the first five.

    Args:
        train: n labelled training rows.
        test: m labelled test rows.
        k: Number of neighbours that vote. If there are fewer training rows, all of them vote. The
            details of the Result give the number that voted as ``k``.
        temperature: Temperature t. A neighbour's vote has the weight e^{cosine / t}.
        name: Name of the Result.

    Returns:
        A Result of kind ``knn``. ``knn_top1`` is the share of test rows whose class wins the
        weighted vote, and ``knn_top5`` the share whose class is among the first five. ``knn_top5``
        is None if there are at most five classes. ``items`` has a boolean array for each score:
        True for rows it counts.
    """
    if k < 1 or not 0 < temperature < np.inf:
        raise InputError(
            f"give kNN at least k = 1 and a temperature above 0; found k = {k} and temperature "
            f"{temperature}"
        )
    classes = labelled.index_classes(train, test)
    labelled.check_finite(test.vectors, "test")
    labelled.check_finite(train.vectors, "training")
    places, cosines = nearest_rows(test.vectors, train.vectors, min(k, len(classes.train)))
    items = _votes(places, cosines, classes, temperature)
    settings = {"k": places.shape[1], "k_asked": k, "temperature": temperature}
    return labelled.classified("knn", name, items, classes, **settings)


def _votes(
    places: np.ndarray, cosines: np.ndarray, classes: labelled.Classes, temperature: float
) -> dict[str, np.ndarray]:
    """Return, for each kind of vote, whether the neighbours (m x k) classify each row right."""
    correct: dict[str, list[np.ndarray]] = {"top1": [], "top5": []}
    for first in range(0, len(places), _ROWS):
        block = slice(first, first + _ROWS)
        labels = classes.train[places[block]]
        # subtracting the highest cosine of a row changes no order, and exp cannot overflow
        weight = np.exp((cosines[block] - cosines[block, :1]) / temperature)
        count = _sums(labels, np.ones_like(weight), len(classes.names))
        weighted = np.where(count > 0, _sums(labels, weight, len(classes.names)), -np.inf)
        truth = classes.test[block]
        correct["top1"].append(labelled.label_in_top_k(weighted, truth, 1))
        correct["top5"].append(labelled.label_in_top_k(weighted, truth, 5))
    return {key: np.concatenate(right) for key, right in correct.items()}


def _sums(labels: np.ndarray, weights: np.ndarray, classes: int) -> np.ndarray:
    """Return, for each row and class, the sum of the weights (n x k) with that label, n x C."""
    cell = np.arange(len(labels))[:, None] * classes + labels
    total = np.bincount(cell.ravel(), weights.ravel(), minlength=len(labels) * classes)
    return total.reshape(len(labels), classes)
