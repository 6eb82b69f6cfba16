"""Finds the nearest rows by cosine. The search is exact and computes similarities in tiles.

Scores are cosines in float64, rounded to nine decimals. In a tie, the row with the lower index in
the corpus comes first. Therefore the order does not depend on the size of the tiles or on the
linear algebra library, and duplicate rows keep their order.
"""

import numpy as np
import torch

# An int64 key holds a score and an index: (1 + cosine) * 1e9 in the upper 31 bits, and the largest
# index minus the index in the lower 32 bits. A larger key is then a better row.
_STEPS = 10**9
_INDICES = 2**32 - 1

_QUERIES = 1024  # number of queries that are searched at a time


def nearest_rows(
    queries: np.ndarray,
    corpus: np.ndarray,
    top: int,
    *,
    tile: int = 2_000_000,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of ``corpus`` with the highest cosine, by exhaustive search.

    Args:
        queries: Embeddings of the queries, n x d.
        corpus: Embeddings of the corpus, m x d, an array or memory map; m is below 2^32. A row of
            zeros, or a row that is not finite, has cosine 0.
        top: Number k of rows to return for each query; all m rows if there are fewer.
        tile: Number of similarities in memory at a time, 8 bytes each. The search needs three times
            this memory.

    Returns:
        Indices (n x k, int64) and cosines (n x k, float64, nine decimals), best first.
    """
    starts = range(0, max(1, len(queries)), _QUERIES)
    keys = np.concatenate([_best(queries[i : i + _QUERIES], corpus, top, tile) for i in starts])
    return _INDICES - (keys & _INDICES), (keys >> 32) / _STEPS - 1


def _best(queries: np.ndarray, corpus: np.ndarray, top: int, tile: int) -> np.ndarray:
    """Return the keys of the best rows, n x k, best first."""
    anchors = _unit(queries)
    width = max(1, tile // max(1, len(anchors)))
    best = np.empty((len(anchors), 0), dtype=np.int64)
    for first in range(0, len(corpus), width):
        rows = _unit(corpus[first : first + width])
        new = _highest(_keys(anchors @ rows.T, first + np.arange(len(rows))), top)
        best = _highest(np.concatenate([best, new], axis=1), top)
    return best


def _highest(keys: np.ndarray, top: int) -> np.ndarray:
    """Return the ``top`` highest keys of each row, in descending order. No two keys are equal."""
    found = torch.topk(torch.from_numpy(keys), min(top, keys.shape[1]), dim=1).values
    highest: np.ndarray = found.numpy()
    return highest


def _keys(cosines: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return one int64 per similarity; a larger one has a higher cosine, or a lower index."""
    steps = cosines + 1
    steps *= _STEPS
    keys: np.ndarray = np.rint(steps, out=steps).astype(
        np.int64
    )  # in place: a tile is a lot of memory
    keys <<= 32
    keys |= _INDICES - indices
    return keys


def _unit(rows: np.ndarray) -> np.ndarray:
    """Return the rows with length 1, in float64; rows without a direction become 0."""
    rows = np.asarray(rows, dtype=np.float64)
    with np.errstate(all="ignore"):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(np.isfinite(unit).all(axis=1, keepdims=True), unit, 0.0)
