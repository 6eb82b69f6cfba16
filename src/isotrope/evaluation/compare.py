"""Which differences between models are noise: paired bootstrap over what was scored.

Every resample draws as many pairs, examples or queries of a task as it has, with replacement, the
same for all models, and every number is computed anew from them: Spearman's correlation with the
ranks of the resample, an accuracy as a mean. So the intervals say what another sample of the same
kind of data would change. What another training seed would change they do not say, and pairs that
share a sentence count as independent, which makes the intervals a little too narrow.

The p-value of a difference is two-sided, twice the share of resamples on the other side of zero;
Holm's correction makes it hold for all comparisons of a table together.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.result import Result, provenance

__all__ = ["LEVEL", "RESAMPLES", "bootstrap_spearman", "compare", "holm"]

RESAMPLES = 5_000
LEVEL = 0.95

_HELD = 100_000  # counts held at a time: a few copies of them fit into the cache of a core

_AVERAGES = {"average": "spearman", "transfer_average": "accuracy"}
"""What the tasks of an average have a score of."""

_Statistic = Callable[[np.ndarray], np.ndarray]  # counts (n x b) to numbers of all models (m x b)


def compare(results: Sequence[Result], *, resamples: int | None = None, seed: int = 0) -> Result:
    """Compare models with the first of them.

    Args:
        results: what ``isotrope.evaluate`` returned for each model on the same data.
        resamples: of the bootstrap; None is 5,000, or 100 for each comparison where that is more.
        seed: of the bootstrap; a task's resamples depend on it and the task's name alone.

    Returns:
        A Result of kind ``comparison``. Its ``details["columns"]`` are, for each task and average,
        ``{"models": [{"value", "low", "high", "best"}, ...], "differences": [{"value", "low",
        "high", "p", "verdict"}, ...], "percent": ...}``: the models in the given order, the
        differences those of the second and later ones, each ``higher``, ``lower`` or ``noise``;
        whether the numbers are percents or shares of 1.

    Raises:
        InputError: fewer than two models; other data, protocols or modes; Results without items.
    """
    _check(results)
    resamples = _enough(results) if resamples is None else resamples
    draws = _draws(results, resamples, seed)
    columns = {name: _column(name, rows, results) for name, rows in draws.items()}
    for name, column in columns.items():
        column["percent"] = name in _AVERAGES or name in results[0].details.get("tasks", {})
    differences = [cell for column in columns.values() for cell in column["differences"]]
    for cell, p in zip(differences, holm([cell["p"] for cell in differences]), strict=True):
        cell["p"] = p
        cell["verdict"] = "noise" if p > 1 - LEVEL else "higher" if cell["value"] > 0 else "lower"
    return Result(
        kind="comparison",
        name=results[0].name,
        metrics={},
        details={
            "models": [result.name for result in results],
            "level": LEVEL,
            "resamples": resamples,
            "seed": seed,
            "comparisons": len(differences),
            "columns": columns,
            "data": results[0].details.get("data"),
            "protocol": results[0].details.get("protocol"),
            "fingerprints": [result.details.get("model") for result in results],
        },
        provenance=provenance(seed=seed),
    )


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's step-down method (Holm 1979)."""
    p = np.asarray(values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1.0)
    return [float(value) for value in corrected]


def bootstrap_spearman(
    predicted: Sequence[np.ndarray], gold: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Return Spearman's correlation of every model in every resample.

    A resample is how often it holds each pair; equal values share their mean rank, so a pair drawn
    twice ties with itself. The values are sorted once, not in every resample.

    Args:
        predicted: for each of m models the scores of n pairs.
        gold: n human scores.
        counts: n x b, each column sums to n.

    Returns:
        m x b; 0 where a resample ranks nothing.
    """
    y = _centred_ranks(gold, counts)
    weighted = counts * y
    length = np.einsum("nb,nb->b", weighted, y)
    found = []
    for scores in predicted:
        x = _centred_ranks(scores, counts)
        product = np.einsum("nb,nb->b", weighted, x)
        norm = np.sqrt(np.einsum("nb,nb->b", counts, x * x) * length)
        found.append(np.divide(product, norm, out=np.zeros_like(product), where=norm > 0))
    return np.stack(found)


def _centred_ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the rank of each value in each resample, less the mean rank: n x b."""
    _, where = np.unique(values, return_inverse=True)
    order = np.argsort(where, kind="stable")
    starts = np.flatnonzero(np.diff(where[order], prepend=-1))
    equal = np.add.reduceat(counts[order], starts, axis=0)
    rank = np.cumsum(equal, axis=0) - (equal + values.size) / 2
    return np.asarray(rank[where])


def _draws(results: Sequence[Result], resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Return for every column the numbers of every model in every resample (m x b)."""
    found = {}
    for name, (size, statistic) in _statistics(results).items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        blocks = [statistic(counts) for counts in _counts(rng, size, resamples)]
        found[name] = np.concatenate(blocks, axis=1)
    ordered: dict[str, np.ndarray] = {}
    for average, score in _AVERAGES.items():
        tasks = results[0].details.get("tasks", {}).items()
        parts = {task: found.pop(task) for task, scores in tasks if score in scores}
        ordered |= parts
        if parts and average in results[0].metrics:
            ordered[average] = np.mean(list(parts.values()), axis=0)
    return ordered | found


def _enough(results: Sequence[Result]) -> int:
    """Return how many resamples leave Holm's method something to find.

    Of m comparisons and B resamples no corrected p-value is below 2 m/(B + 1).
    """
    columns = len(_statistics(results)) + sum(name in results[0].metrics for name in _AVERAGES)
    return max(RESAMPLES, 100 * columns * (len(results) - 1))


def _statistics(results: Sequence[Result]) -> dict[str, tuple[int, _Statistic]]:
    """Return for every column how many things were scored, and the number of a resample."""
    found: dict[str, tuple[int, _Statistic]] = {}
    tasks = results[0].details.get("tasks", {})
    for item, values in results[0].items.items():
        name, _, part = item.rpartition("/")
        if part == "gold":
            predicted = [result.items[f"{name}/cosine"] for result in results]
            found[name] = len(values), _correlation(predicted, values)
        elif all(result.metrics.get(item) is not None for result in results):
            scale = 100.0 if item in tasks else 1.0
            rows = np.stack([scale * result.items[item] for result in results])
            found[item] = len(values), _mean(rows)
    return found


def _correlation(predicted: Sequence[np.ndarray], gold: np.ndarray) -> _Statistic:
    return lambda counts: 100 * bootstrap_spearman(predicted, gold, counts)


def _mean(rows: np.ndarray) -> _Statistic:
    return lambda counts: np.asarray(rows @ counts / rows.shape[1])


def _counts(rng: np.random.Generator, size: int, resamples: int) -> Iterator[np.ndarray]:
    """Yield how often each resample holds each of ``size`` things, block by block (size x b)."""
    most = max(1, _HELD // size)
    for start in range(0, resamples, most):
        rows = min(most, resamples - start)
        places = rng.integers(size, size=(rows, size)) + size * np.arange(rows)[:, None]
        held = np.bincount(places.ravel(), minlength=rows * size).reshape(rows, size)
        yield np.ascontiguousarray(held.T, dtype=np.float64)


def _column(name: str, draws: np.ndarray, results: Sequence[Result]) -> dict[str, Any]:
    """Return one column of the table; p is not corrected yet."""
    values = [float(result.metrics[name] or 0.0) for result in results]
    # how embeddings lie is neither good nor bad
    best = None if name in results[0].details.get("corpus", {}) else max(values)
    models = [
        {"value": value, **_interval(row), "best": value == best}
        for value, row in zip(values, draws, strict=True)
    ]
    differences = [
        {"value": round(value - values[0], 6), **_interval(row - draws[0]), "p": _p(row - draws[0])}
        for value, row in zip(values[1:], draws[1:], strict=True)
    ]
    return {"models": models, "differences": differences}


def _interval(draws: np.ndarray) -> dict[str, float]:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"low": round(float(low), 6), "high": round(float(high), 6)}


def _p(differences: np.ndarray) -> float:
    """Return the two-sided p-value that the differences are on one side of zero by chance."""
    beyond = 1 + min((differences <= 0).sum(), (differences >= 0).sum())
    return min(1.0, 2 * float(beyond) / (1 + len(differences)))


_SAME = {"data": "on other data", "protocol": "on other protocol", "mode": "in another mode"}


def _check(results: Sequence[Result]) -> None:
    """Refuse what cannot be compared pair by pair."""
    if len(results) < 2:
        raise InputError(f"a comparison needs at least two models; found {len(results)}")
    first, *others = results
    for other in others:
        for what, how in _SAME.items():
            if other.details.get(what) != first.details.get(what):
                raise InputError(
                    f"{other.name} was scored {how} than {first.name}; evaluate both on the same, "
                    "with one version of isotrope"
                )
        sizes = [{name: len(v) for name, v in r.items.items()} for r in (first, other)]
        if not sizes[0] or sizes[0] != sizes[1]:
            raise InputError(
                f"the results of {first.name} and {other.name} do not hold the same items, which "
                "resampling needs; compare what `isotrope.evaluate` returned"
            )
