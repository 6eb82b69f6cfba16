"""Semantic textual similarity by the protocol of SimCSE: seven tasks, no training.

A pair's score is the cosine of its two embeddings as the encoder gives them; a task's is the
Spearman correlation of these with the human scores, over all pairs of the year concatenated for
STS12 to STS16, over the test split for STS-B and SICK-R. Each is 100 rho, rounded to two decimals,
and the average is the mean of the seven rounded numbers, as papers print them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.result import Result, provenance
from isotrope.data.sts_sets import TASKS, Subset, load_sts
from isotrope.evaluation.embed import Encoder, embed, encoder_name

__all__ = ["load_tasks", "spearman", "sts", "sts_dev"]


_NEEDED = f"the average needs all of {', '.join(TASKS)}"


def sts(
    encoder: Encoder,
    data: Path | str | Mapping[str, Sequence[Subset]],
    *,
    progress: bool = False,
    batch_size: int = 128,
) -> Result:
    """Score an encoder on the seven tasks.

    Every distinct sentence of all tasks is encoded once.

    Args:
        encoder: anything with ``encode``.
        data: the folder of the tasks, or what ``load_sts`` made of it.
        progress: show a bar on stderr, where the encoder can.
        batch_size: texts a batch.

    Returns:
        A Result of kind ``sts``; its ``details`` are
        ``{"tasks": {"STS12": {"spearman": ...}, ...}, "average": ...}``.

    Raises:
        InputError: a task is absent, or has human scores that rank nothing.
    """
    sets = load_tasks(Path(data)) if isinstance(data, (str, Path)) else data
    subsets = {task: [s for s in sets.get(task, ()) if s.split == "test"] for task in TASKS}
    absent = [task for task in TASKS if not subsets[task]]
    if absent:
        raise InputError(f"the data lack the test split of {', '.join(absent)}; {_NEEDED}")
    scores = iter(
        _cosines(encoder, [s for task in TASKS for s in subsets[task]], batch_size, progress)
    )
    tasks = {
        task: {
            "spearman": _percent(
                np.concatenate([next(scores) for _ in subsets[task]]),
                np.concatenate([subset.scores for subset in subsets[task]]),
                task,
            )
        }
        for task in TASKS
    }
    average = _rounded(float(np.mean([value["spearman"] for value in tasks.values()])))
    return Result(
        kind="sts",
        name=encoder_name(encoder),
        metrics={**{task: value["spearman"] for task, value in tasks.items()}, "average": average},
        details={"tasks": tasks, "average": average},
        provenance=provenance(),
    )


def sts_dev(encoder: Encoder, subset: Subset, *, batch_size: int = 128) -> float:
    """Return 100 rho of one file of scored pairs, not rounded: a score to choose a model by.

    Raises:
        InputError: the human scores rank nothing.
    """
    (predicted,) = _cosines(encoder, [subset], batch_size, progress=False)
    return 100 * _rho(predicted, subset.scores, subset.task)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's rank correlation of two vectors of length n; ties share their mean rank.

    Where one of them is constant, nothing is ranked: 0.
    """
    from scipy.stats import rankdata

    rank_x, rank_y = rankdata(x), rankdata(y)
    rank_x, rank_y = rank_x - rank_x.mean(), rank_y - rank_y.mean()
    length = np.linalg.norm(rank_x) * np.linalg.norm(rank_y)
    return float(rank_x @ rank_y / length) if length else 0.0


def load_tasks(folder: Path) -> dict[str, list[Subset]]:
    """Load the seven tasks of a folder, and say of all at once which are not there.

    Raises:
        InputError: absent tasks, or anything that ``load_sts`` finds wrong.
    """
    absent = [task for task in TASKS if not (folder / task.lower().replace("-", "")).is_dir()]
    if folder.is_dir() and len(absent) == len(TASKS):
        raise InputError(
            f"{folder} holds none of the STS tasks; expected folders sts12 to sts16, stsb and "
            "sickr with files of score<TAB>sentence1<TAB>sentence2, such as sts12/MSRpar.tsv and "
            "stsb/test.tsv"
        )
    if folder.is_dir() and absent:
        raise InputError(f"{folder} lacks {', '.join(absent)}; {_NEEDED}")
    return load_sts(folder)


def _cosines(
    encoder: Encoder, subsets: Sequence[Subset], batch_size: int, progress: bool
) -> list[np.ndarray]:
    """Return the cosine of every pair, subset by subset, in float64; not a number counts as 0."""
    first = [text for subset in subsets for text in subset.first]
    second = [text for subset in subsets for text in subset.second]
    vectors = embed(encoder, first + second, batch_size=batch_size, progress=progress)
    x, y = np.split(vectors.astype(np.float64), [len(first)])
    with np.errstate(all="ignore"):
        cosine = (x * y).sum(axis=1) / (np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1))
    cosine = np.where(np.isnan(cosine), 0.0, cosine)
    return np.split(cosine, np.cumsum([len(subset.scores) for subset in subsets])[:-1])


def _rho(predicted: np.ndarray, gold: np.ndarray, name: str) -> float:
    if len(gold) < 2 or not np.isfinite(gold).all() or gold.min() == gold.max():
        raise InputError(
            f"the {len(gold)} human scores of {name} rank nothing (at least two different, finite "
            "scores are needed)"
        )
    return spearman(predicted, gold)


def _percent(predicted: np.ndarray, gold: np.ndarray, name: str) -> float:
    return _rounded(100 * _rho(predicted, gold, name))


def _rounded(value: float) -> float:
    """Return what the papers print, as a number."""
    return float(f"{value:.2f}")
