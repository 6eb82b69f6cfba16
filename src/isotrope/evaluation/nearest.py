"""Finds the nearest rows by cosine: exact search in tiles, in an order that no tile changes.

Scores are cosines in float64, kept to nine decimals; among equal scores the lower place in the
corpus comes first. So the order is the same whatever the tiles and the libraries below, and rows
that occur twice do not trade places.
"""

import importlib
from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np

from isotrope.core.errors import InputError, MissingExtra, nearest

__all__ = ["Search", "nearest_rows", "nearest_rows_by"]

Search = Literal["exact", "faiss"]
"""Who searches: this file, or an exact flat index of faiss (float32, several threads)."""

# one int64 carries a score and a place: 31 bits of (1 + cosine) * 1e9 above 32 bits of place
_STEPS = 10**9
_PLACES = 2**32 - 1

_QUERIES = 1024  # searched at a time


def nearest_rows(
    queries: np.ndarray,
    corpus: np.ndarray | Iterable[np.ndarray],
    top: int,
    *,
    tile: int = 2_000_000,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of ``corpus`` with the highest cosine, by exhaustive search.

    Args:
        queries: n x d.
        corpus: m x d, m below 2^32, an array or memory map; or blocks of rows (b x d), which are
            asked for once, in order, and not kept. A zero row, or one that is not finite, has
            cosine 0.
        top: k; all m if there are fewer.
        tile: similarities held at a time (of 8 bytes, about eight copies at the start).

    Returns:
        Places (n x k, int64) and cosines (n x k, float64, nine decimals), best first; among equal
        cosines the lower place first.
    """
    if isinstance(corpus, np.ndarray):
        top = min(top, len(corpus))
        starts = range(0, max(1, len(queries)), _QUERIES)
        blocks = [_best(queries[i : i + _QUERIES], [corpus], top, tile) for i in starts]
        keys = np.concatenate(blocks)
    else:
        keys = _best(queries, corpus, top, tile)
    return _places(keys), (keys >> 32) / _STEPS - 1


def nearest_rows_by(
    search: Search, queries: np.ndarray, corpus: np.ndarray, top: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what :func:`nearest_rows` returns, as ``search`` finds it.

    faiss compares in float32: where cosines differ by less than 1e-6 its k rows may be others;
    their cosines and their order are those of :func:`nearest_rows`.

    Raises:
        InputError: an unknown search.
        MissingExtra: faiss is asked for and not installed.
    """
    choices = get_args(Search)
    if search not in choices:
        raise InputError(
            f"there is no search {search!r}{nearest(search, choices)}; use {' or '.join(choices)}"
        )
    return (nearest_rows if search == "exact" else _by_faiss)(queries, corpus, top)


def _best(queries: np.ndarray, blocks: Iterable[np.ndarray], top: int, tile: int) -> np.ndarray:
    """Return the keys of the best rows of all blocks, n x k, best first."""
    anchors = _unit(queries)
    wide = max(1, tile // max(1, len(anchors)))
    best = np.full((len(anchors), top), -1, dtype=np.int64)
    seen = 0
    for block in blocks:
        for first in range(0, len(block), wide):
            rows = _unit(block[first : first + wide])
            _merge(best, anchors @ rows.T, seen)
            seen += len(rows)
    return np.sort(best, axis=1)[:, : -min(top, seen) - 1 : -1]


def _merge(best: np.ndarray, cosines: np.ndarray, start: int) -> None:
    """Put what beats the worst of ``best`` (n x k keys) in its place; columns begin at ``start``.

    After a few tiles hardly anything does, and all that is left to do is one comparison.
    """
    # a step higher at least: among equals the earlier row stays
    floor = ((best.min(axis=1) >> 32) + 0.25) / _STEPS - 1
    row, column = np.nonzero(cosines > floor[:, None])
    if not len(row):
        return
    keys = _keys(cosines[row, column], start + column)
    count = np.bincount(row, minlength=len(best))
    lines, most = np.flatnonzero(count), count.max()
    place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    candidates = np.full((len(lines), most + best.shape[1]), -1, dtype=np.int64)
    candidates[np.repeat(np.arange(len(lines)), count[lines]), place] = keys
    candidates[:, most:] = best[lines]
    # all keys differ, so partition and sort need not be stable
    best[lines] = np.partition(candidates, most, axis=1)[:, most:]


def _keys(cosines: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return integers in the order of the cosines, then against that of the places."""
    steps = np.rint((cosines + 1) * _STEPS).astype(np.int64)
    keys: np.ndarray = (steps << 32) | (_PLACES - places)
    return keys


def _places(keys: np.ndarray) -> np.ndarray:
    return _PLACES - (keys & _PLACES)


def _by_faiss(queries: np.ndarray, corpus: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        faiss: Any = importlib.import_module("faiss")
    except ImportError as error:
        raise MissingExtra("faiss", extra="faiss") from error
    top = min(top, len(corpus))
    index = faiss.IndexFlatIP(corpus.shape[1])
    for first in range(0, len(corpus), 2**16):
        index.add(_unit(corpus[first : first + 2**16]).astype(np.float32))
    keys = np.empty((len(queries), top), dtype=np.int64)
    high = max(1, 2**24 // (top * corpus.shape[1]))  # rows whose finds are compared anew at once
    for first in range(0, len(queries), high):
        anchors = _unit(queries[first : first + high])
        places = index.search(anchors.astype(np.float32), top)[1]
        rows = _unit(corpus[places.ravel()]).reshape(*places.shape, -1)
        cosines = (rows @ anchors[:, :, None])[:, :, 0]
        keys[first : first + high] = np.sort(_keys(cosines, places), axis=1)[:, ::-1]
    return _places(keys), (keys >> 32) / _STEPS - 1


def _unit(rows: np.ndarray) -> np.ndarray:
    """Return the rows on the unit sphere, in float64; zero where there is no direction."""
    rows = np.asarray(rows, dtype=np.float64)
    with np.errstate(all="ignore"):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(np.isfinite(unit).all(axis=1, keepdims=True), unit, 0.0)
