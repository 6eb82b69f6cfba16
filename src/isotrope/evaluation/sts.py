"""Scores semantic textual similarity by the protocol of SimCSE: seven tasks, no training.

The score of a pair is the cosine of its two embeddings. The score of a task is Spearman's
correlation (rho) of these cosines with the human scores. For STS12 to STS16, the pairs of all
subsets of a year are ranked together ("all"). For STS-B and SICK-R, only the test split is used.
The score is reported as 100 rho, rounded to two decimals. The average is the mean of the seven
rounded scores.

The results also have the numbers that other papers report: means over the subsets of a year (equal
weights, or weights by the number of pairs); Pearson's correlation; scores with dot products or with
negative Euclidean or Manhattan distances; scores on the dev splits of STS-B and SICK-R.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.result import Result, provenance
from isotrope.data.text.sts_sets import Subset, load_sts, load_sts_file
from isotrope.evaluation.embed import Encoder, embed, encoder_name
from isotrope.measures.judgement import DevEvaluation


def load_tasks(path: Path) -> dict[str, list[Subset]]:
    """Return a dict from task to subsets: the seven tasks of a folder, or a file as one task."""
    if path.is_file():
        subset = load_sts_file(path)
        return {subset.task: [subset]}
    return load_sts(path)


def score_task(encoder: Encoder, task: str, subsets: Sequence[Subset]) -> Result:
    """Score an encoder on one STS task.

    Returns:
        A Result of kind ``sts`` with ``details`` ``{"tasks": {task: scores}}``. All scores are 100
        times a correlation on the test split, or on all pairs of a file. ``spearman`` and
        ``pearson`` are the correlations of the cosine with the human scores; ``dot``, ``euclidean``
        and ``manhattan`` are dicts of these two correlations for other similarities. ``pairs`` is
        the number of pairs, ``split`` the name of the split. STS12 to STS16 also have ``subsets``,
        a dict from subset to scores, with the means ``mean`` and ``weighted_mean``. ``dev`` has the
        scores of a dev split; for STS-B, also ``alignment`` (alpha = 2, pairs scored above 4) and
        ``uniformity`` (t = 2), as in Nie et al. (2023). The Result's ``items`` are
        ``"<task>/cosine"`` and ``"<task>/gold"`` (human scores).
    """
    test = [subset for subset in subsets if subset.split == "test"]
    used = test or list(subsets)
    dev = [subset for subset in subsets if test and subset.split == "dev"]
    vectors = embed(encoder, _texts([*used, *dev]), task)
    sides = _by_subset(vectors, [*used, *dev])
    similar = [similarities(x, y) for x, y in sides]
    gold = np.concatenate([subset.scores for subset in used])
    scored = similar[: len(used)]
    pooled = {name: np.concatenate([each[name] for each in scored]) for name in similar[0]}
    scores: dict[str, Any] = {"split": used[0].split, **_measure(pooled, gold, task)}
    if len(used) > 1:
        parts = {
            subset.name: _measure({"cosine": similar[i]["cosine"]}, subset.scores, subset.name)
            for i, subset in enumerate(used)
        }
        each = [_correlations(similar[i]["cosine"], subset.scores) for i, subset in enumerate(used)]
        scores["mean"] = _means(each, [1] * len(used))
        scores["weighted_mean"] = _means(each, [len(subset) for subset in used])
        scores["subsets"] = parts
    for i, subset in enumerate(dev, len(used)):
        scores["dev"] = _measure(similar[i], subset.scores, f"{task} dev")
        if task == "STS-B":
            scores["dev"] |= _geometry(subset, *sides[i])
    return Result(
        kind="sts",
        name=encoder_name(encoder),
        metrics={task: scores["spearman"]},
        details={"tasks": {task: scores}},
        provenance=provenance(),
        items={f"{task}/cosine": pooled["cosine"], f"{task}/gold": gold},
    )


def sts_dev(encoder: Encoder, subset: Subset) -> float:
    """Return 100 times Spearman's correlation on one file of scored pairs, without rounding."""
    return sts_evaluation(encoder, subset).value


def sts_evaluation(encoder: Encoder, subset: Subset) -> DevEvaluation:
    """Return the score of :func:`sts_dev`, and the cosine and human score of every pair."""
    ((x, y),) = _by_subset(embed(encoder, _texts([subset])), [subset])
    _check(subset.scores, subset.task)
    cosine = similarities(x, y)["cosine"]
    return DevEvaluation(100 * spearman(cosine, subset.scores), cosine, subset.scores)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's rank correlation of two vectors of length n; 0 if a vector is constant.

    Equal values have the mean of their ranks.
    """
    from scipy.stats import rankdata

    return _pearson(rankdata(x), rankdata(y))


def similarities(x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return four similarities of row i of x and row i of y (both n x d), for every i.

    Returns:
        A dict with ``cosine``, ``dot``, ``euclidean`` and ``manhattan``, n float64 values each.
        The last two are negative distances, so closer pairs have higher values. The cosine is 0 if
        a row is zero or not finite, and exactly 1 for equal rows.
    """
    x, y = x.astype(np.float64), y.astype(np.float64)
    dot = (x * y).sum(axis=1)
    with np.errstate(all="ignore"):
        cosine = dot / (np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1))
    cosine = np.where((x == y).all(axis=1) & np.isfinite(cosine), 1.0, cosine)
    return {
        "cosine": np.where(np.isnan(cosine), 0.0, cosine),
        "dot": dot,
        "euclidean": -np.linalg.norm(x - y, axis=1),
        "manhattan": -np.abs(x - y).sum(axis=1),
    }


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Return Pearson's correlation of two vectors; 0 if one of them is constant."""
    if x.min() == x.max() or y.min() == y.max():
        return 0.0
    x, y = (part - part.mean() for part in (_scaled(x), _scaled(y)))
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


def _scaled(x: np.ndarray) -> np.ndarray:
    """Divide by a power of two, so that squares stay finite and above 0. This rounds nothing."""
    return np.asarray(np.ldexp(x, -np.frexp(np.abs(x).max())[1]))


def _texts(subsets: Sequence[Subset]) -> list[str]:
    return [text for s in subsets for text in (*s.first, *s.second)]


def _by_subset(
    vectors: np.ndarray, subsets: Sequence[Subset]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the first and the second vectors of each subset's pairs, given in _texts' order."""
    ends = np.cumsum([n for subset in subsets for n in (len(subset), len(subset))])[:-1]
    parts = np.split(vectors, ends)
    return list(zip(parts[::2], parts[1::2], strict=True))


def _geometry(subset: Subset, x: np.ndarray, y: np.ndarray) -> dict[str, float | None]:
    """Return the alignment of pairs scored above 4, and the uniformity of distinct sentences."""
    import torch

    from isotrope.measures.alignment import alignment
    from isotrope.measures.uniformity import uniformity

    close = subset.scores > 4
    rows = dict(zip([*subset.first, *subset.second], [*x, *y], strict=True))
    a, b, all_rows = (
        torch.from_numpy(part).double() for part in (x[close], y[close], np.stack([*rows.values()]))
    )
    return {
        "alignment": round(float(alignment(a, b)), 4) if close.any() else None,
        "uniformity": round(float(uniformity(all_rows)), 4),
    }


def _measure(predicted: dict[str, np.ndarray], gold: np.ndarray, name: str) -> dict[str, Any]:
    """Return Spearman's and Pearson's correlation of every similarity, the cosine's first."""
    _check(gold, name)
    scores = {
        kind: {name: _rounded(value) for name, value in _correlations(values, gold).items()}
        for kind, values in predicted.items()
    }
    return {**scores.pop("cosine"), "pairs": len(gold), **scores}


def _correlations(values: np.ndarray, gold: np.ndarray) -> dict[str, float]:
    """Return 100 times Spearman's and Pearson's correlation, not rounded."""
    return {"spearman": 100 * spearman(values, gold), "pearson": 100 * _pearson(values, gold)}


def _means(each: Sequence[dict[str, float]], weights: Sequence[int]) -> dict[str, float]:
    """Return the means over subsets. As in SentEval, only the means are rounded."""
    return {
        kind: _rounded(float(np.average([part[kind] for part in each], weights=weights)))
        for kind in ("spearman", "pearson")
    }


def _check(gold: np.ndarray, name: str) -> None:
    """Refuse human scores that are all equal, not finite, or fewer than two."""
    if len(gold) < 2 or not np.isfinite(gold).all() or gold.min() == gold.max():
        raise InputError(
            f"give human scores for {name} that are all finite, and at least two different scores: "
            f"the {len(gold)} scores found are all equal, or some are not finite"
        )


def _rounded(value: float) -> float:
    """Round to two decimals, as papers print scores; never return -0."""
    return float(f"{value:.2f}") + 0.0
