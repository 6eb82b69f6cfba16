"""The paired bootstrap: estimates how much a score would vary with other examples.

To make a resample, examples are drawn with replacement from the n scored examples, n times. If the
examples have groups, groups are drawn, with all of their examples. All models are scored on the
same resamples. Spearman's correlation uses the ranks in a resample.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 5_000
LEVEL = 0.95

_BLOCK = 100_000  # counts in one array; a few such arrays fit into the cache of a core


def resampled(
    rng: np.random.Generator, size: int, resamples: int, groups: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Yield blocks of b resamples, size x b: how often each example is in each resample.

    If ``groups`` has a number for each example, all examples of a number are drawn together.
    """
    if groups is not None:
        names, place = np.unique(groups, return_inverse=True)
        yield from (counts[place] for counts in resampled(rng, len(names), resamples))
        return
    most = max(1, _BLOCK // size)
    for start in range(0, resamples, most):
        b = min(most, resamples - start)
        examples = rng.integers(size, size=(b, size))
        # one count for all resamples: the numbers of resample k begin at k * size
        places = examples + size * np.arange(b)[:, None]
        counts = np.bincount(places.ravel(), minlength=b * size).reshape(b, size)
        yield np.ascontiguousarray(counts.T, dtype=np.float64)


def spearman(
    predicted: Sequence[np.ndarray], gold: np.ndarray, blocks: Iterable[np.ndarray]
) -> np.ndarray:
    """Return Spearman's correlation of every model in every resample.

    Equal values have their mean rank, so all copies of a pair have the same rank. The values are
    sorted only once, not for each resample.

    Args:
        predicted: The scores of n pairs by each of m models.
        gold: Human scores of the n pairs.
        blocks: How often each of n pairs is in each resample, as :func:`resampled` yields it.

    Returns:
        Correlation of each model in each of b resamples, m x b; 0 where all scores are equal.
    """
    of_gold, of_models = _sort(gold), [_sort(scores) for scores in predicted]
    draws = []
    for counts in blocks:
        y = _centred_ranks(of_gold, counts)
        weighted = counts * y
        length = np.einsum("nb,nb->b", weighted, y)
        rows = []
        for of_model in of_models:
            x = _centred_ranks(of_model, counts)
            product = np.einsum("nb,nb->b", weighted, x)
            norm = np.sqrt(np.einsum("nb,nb->b", counts, x * x) * length)
            rows.append(np.divide(product, norm, out=np.zeros_like(product), where=norm > 0))
        draws.append(np.stack(rows))
    return np.concatenate(draws, axis=1)


def means(rows: np.ndarray, blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Return the mean of each row (m x n) in each resample of ``resampled``, m x b."""
    return np.concatenate([rows @ counts / counts.sum(axis=0) for counts in blocks], axis=1)


class _Sorted(NamedTuple):
    """The order of n values, some of which may be equal."""

    place: np.ndarray  # of each value among the different values
    order: np.ndarray  # indices that sort the values
    starts: np.ndarray  # where each different value begins in this order


def _sort(values: np.ndarray) -> _Sorted:
    _, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    return _Sorted(place, order, np.flatnonzero(np.diff(place[order], prepend=-1)))


def _centred_ranks(values: _Sorted, counts: np.ndarray) -> np.ndarray:
    """Return the rank of each value in each resample, minus the mean rank: n x b."""
    equal = np.add.reduceat(counts[values.order], values.starts, axis=0)
    rank = np.cumsum(equal, axis=0) - (equal + counts.sum(axis=0)) / 2
    return np.asarray(rank[values.place])


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values that are corrected for multiple tests by Holm's method (Holm, 1979)."""
    p = np.asarray(values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1.0)
    return [float(value) for value in corrected]


def intervals(rows: np.ndarray) -> list[dict[str, float]]:
    """Return for each row of scores a dict with its confidence bounds, ``low`` and ``high``."""
    blocks = resampled(np.random.default_rng(0), rows.shape[1], RESAMPLES)
    return [interval(row) for row in means(rows, blocks)]


def interval(draws: np.ndarray) -> dict[str, float]:
    """Return a dict of bounds, ``low`` and ``high``, between which 95% of the draws lie."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"low": round(float(low), 6), "high": round(float(high), 6)}


def p_value(differences: np.ndarray, changed: int) -> float:
    """Return the two-sided p-value of a difference between two models.

    If only a few scores differ, the differences in all resamples may have one sign by chance. The
    p-value is therefore at least 2^(1 - changed), the p-value of a sign test in which all
    ``changed`` scores moved in one direction. The p-value is at most 1.

    Args:
        differences: Difference between the models in each resample.
        changed: The number of examples (or of groups) whose scores differ between the two models.
    """
    beyond = 1 + min((differences <= 0).sum(), (differences >= 0).sum())
    return min(1.0, max(2 * float(beyond) / (1 + len(differences)), 2.0 ** (1 - changed)))


def shown_p(p: float) -> str:
    """Return a p-value with three decimals; with two, 0.054 would look like the limit 0.05."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
