"""Decides which differences between models are noise, by the paired bootstrap.

A resample draws, with replacement, as many pairs, examples or queries as the task has. All
models are scored on the same resamples. Every score is computed again from the drawn examples;
Spearman's correlation uses the ranks in the resample. The intervals include the effect of the
choice of examples, but not of the training seed. They are slightly too narrow if pairs share a
sentence, because each pair is drawn independently.

The p-value of a difference is two-sided: twice the share of resamples in which the difference has
the opposite sign. Holm's method corrects the p-values of each model for the number of its scores.
The verdict on two models therefore does not depend on the other models of a table.
"""

import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from isotrope.core.errors import InputError, unknown
from isotrope.core.result import Result, provenance
from isotrope.evaluation.dispatch import score_model, text_tasks
from isotrope.evaluation.embed import Encoder
from isotrope.evaluation.options import Evaluation
from isotrope.evaluation.tables import AVERAGES, Scores, in_percent
from isotrope.measures import bootstrap

_Model = str | os.PathLike[str] | Encoder | Result
_Statistic = Callable[[Iterable[np.ndarray]], np.ndarray]  # resamples to scores of models (m x b)


class _Resampled(NamedTuple):
    """Resampled scores of a column."""

    scores: np.ndarray  # of all models in all resamples, m x b
    changed: np.ndarray  # m - 1 counts: examples that a model scores differently than the first


def compare(models: Sequence[_Model], *, metric: str = "", **options: Any) -> Scores:
    """Score models on the same data, and find which differ from the first model beyond noise.

    Every score is compared by a paired bootstrap over the scored examples. The p-values of a model
    are corrected for its number of scores. They do not include the effect of the training seed.

    Args:
        models: Two or more models: names, folders, outcomes of ``isotrope.fit`` or encoders. Or
            two or more results of ``isotrope.evaluate``, without options.
        metric: Score that decides, chosen before you see it. Its p-values are not corrected.
        options: The tasks, as for ``isotrope.evaluate``: ``sts="DIR"``, ...

    Returns:
        A Result of kind ``comparison``; ``print`` shows its tables. ``details["columns"]`` is a
        dict from each task or average to ``{"models": [{"value", "low", "high", "best"}, ...],
        "differences": [{"value", "low", "high", "p", "changed", "verdict"}, ...], "metric": ...,
        "percent": ...}``. The models are in the given order. There is a difference for each model
        after the first, with the verdict ``higher``, ``lower`` or ``noise``, and the number of
        examples whose score changed. ``percent`` is False for scores from 0 to 1, else True.
        ``details["same_weights"]`` has, for each group of equal models, a list of positions.

    Raises:
        InputError: There are fewer than two models, or no data, or an evaluation failed.
    """
    results = [model for model in models if isinstance(model, Result)]
    if results and (options or len(results) < len(models)):
        raise InputError("give either models and data to score them on, or only results")
    if len(models) < 2:
        raise InputError(f"give at least two models to compare; found {len(models)}")
    if not results:
        settings = Evaluation.read(options)
        tasks = text_tasks(models, settings)
        results = [score_model(m, settings, tasks) for m in models if not isinstance(m, Result)]
    return compare_results(results, metric=metric)


def compare_results(
    results: Sequence[Result], *, metric: str = "", resamples: int | None = None, seed: int = 0
) -> Scores:
    """Compare results of ``isotrope.evaluate``; :func:`compare` describes the Result."""
    _check(results)
    results = named_apart(results)
    resamples = _enough(results) if resamples is None else resamples
    draws = _draws(results, resamples, seed)
    if metric and metric not in draws:
        raise InputError(unknown("change `--metric`: unknown score", metric, draws))
    columns = {name: _column(name, results, drawn) for name, drawn in draws.items()}
    for differences in zip(*(column["differences"] for column in columns.values()), strict=True):
        p_values = bootstrap.holm([cell["p"] for cell in differences])
        for name, cell, corrected in zip(columns, differences, p_values, strict=True):
            p = cell["p"] = cell["p"] if name == metric else corrected
            above = cell["low"] + cell["high"] > 0  # the rounded scores may be equal
            cell["verdict"] = "noise" if p > 1 - bootstrap.LEVEL else "higher" if above else "lower"
    return Scores(
        kind="comparison",
        name=results[0].name,
        metrics={
            f"{name} of {result.name}": column["models"][i]["value"]
            for name, column in columns.items()
            for i, result in enumerate(results)
        },
        details={
            "models": [result.name for result in results],
            "level": bootstrap.LEVEL,
            "resamples": resamples,
            "seed": seed,
            "comparisons": len(columns),
            "metric": metric,
            "columns": columns,
            "data": results[0].details.get("data"),
            "near_copies": results[0].details.get("near_copies"),
            "at_most": results[0].details.get("at_most"),
            "protocol": results[0].details.get("protocol"),
            "fingerprints": [result.details.get("model") for result in results],
            "same_weights": _same_weights(results),
        },
        provenance=provenance(seed=seed),
    )


def named_apart(results: Sequence[Result]) -> list[Result]:
    """Return the results; the second one of a name NAME is called ``NAME (2)``, and so on."""
    names: list[str] = []
    for result in results:
        numbered = (f"{result.name} ({i})" if i > 1 else result.name for i in count(1))
        names.append(next(name for name in numbered if name not in names))
    return [replace(result, name=name) for result, name in zip(results, names, strict=True)]


def _metric(name: str, result: Result) -> str:
    scores = result.details.get("tasks", {}).get(name, {})
    metric = AVERAGES.get(name) or next((m for m in AVERAGES.values() if m in scores), name)
    return metric.capitalize() if metric == "spearman" else metric


def _same_weights(results: Sequence[Result]) -> list[list[int]]:
    """Return groups of two or more results of the same model, as positions in ``results``."""
    groups: dict[str, list[int]] = {}
    for i, result in enumerate(results):
        identity = (result.details.get("model") or {}).get("fingerprint")
        if identity is not None:
            groups.setdefault(identity, []).append(i)
    return [places for places in groups.values() if len(places) > 1]


def _draws(results: Sequence[Result], resamples: int, seed: int) -> dict[str, _Resampled]:
    """Return the resampled scores of each column, an average after its tasks."""
    tasks = results[0].details.get("tasks", {})
    draws = {}
    for name, (rows, statistic) in _statistics(results).items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        scores = statistic(bootstrap.resampled(rng, rows.shape[1], resamples))
        scores *= 100 if name in tasks else 1
        draws[name] = _Resampled(scores, (rows[1:] != rows[0]).sum(axis=1))
    ordered: dict[str, _Resampled] = {}
    for average, score in AVERAGES.items():
        parts = {task: draws.pop(task) for task, scores in tasks.items() if score in scores}
        ordered |= parts
        if parts and average in results[0].metrics:
            scores, changed = zip(*parts.values(), strict=True)
            ordered[average] = _Resampled(np.mean(scores, axis=0), np.sum(changed, axis=0))
    return ordered | draws


def _enough(results: Sequence[Result]) -> int:
    """Return a number of resamples with which Holm's method can find differences.

    With m scores of a model and B resamples, no corrected p-value is below 2 m/(B + 1).
    """
    columns = len(_statistics(results)) + sum(name in results[0].metrics for name in AVERAGES)
    return max(bootstrap.RESAMPLES, 100 * columns)


def _statistics(results: Sequence[Result]) -> dict[str, tuple[np.ndarray, _Statistic]]:
    """Return, for every column, all models' values (m x n) and the function of a resample."""
    statistics: dict[str, tuple[np.ndarray, _Statistic]] = {}
    for item, values in results[0].items.items():
        name, _, part = item.rpartition("/")
        if part == "gold":
            rows = np.stack([result.items[f"{name}/cosine"] for result in results])
            statistics[name] = rows, partial(bootstrap.spearman, list(rows), values)
        elif all(result.metrics.get(item) is not None for result in results):
            rows = np.stack([result.items[item] for result in results])
            statistics[item] = rows, partial(bootstrap.means, rows)
    return statistics


def _column(name: str, results: Sequence[Result], drawn: _Resampled) -> dict[str, Any]:
    """Return one column of the table, in which p-values are not corrected yet."""
    values = [float(result.metrics[name] or 0.0) for result in results]
    models = [
        {"value": value, **bootstrap.interval(row), "best": value == max(values)}
        for value, row in zip(values, drawn.scores, strict=True)
    ]
    differences = [
        {
            "value": round(value - values[0], 6),
            **bootstrap.interval(row - drawn.scores[0]),
            "p": bootstrap.p_value(row - drawn.scores[0], int(changed)),
            "changed": int(changed),
        }
        for value, row, changed in zip(values[1:], drawn.scores[1:], drawn.changed, strict=True)
    ]
    shown = {"metric": _metric(name, results[0]), "percent": in_percent(name, results[0])}
    return {"models": models, "differences": differences, **shown}


_SAME = {"data": "on other data", "protocol": "by another protocol", "mode": "in another mode"}


def _check(results: Sequence[Result]) -> None:
    """Refuse results that were not scored on the same examples."""
    first, *others = results
    for other in others:
        for what, how in _SAME.items():
            if other.details.get(what) != first.details.get(what):
                raise InputError(
                    "evaluate both models on the same data, with one version of isotrope: "
                    f"{other.name} was scored {how} than {first.name}"
                )
        sizes = [{name: len(v) for name, v in r.items.items()} for r in (first, other)]
        if not sizes[0] or sizes[0] != sizes[1]:
            raise InputError(
                f"score both models again with `isotrope.evaluate`: the results of {first.name} "
                f"and {other.name} do not have the same scored examples"
            )
