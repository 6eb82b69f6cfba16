"""Makes the tasks of ``isotrope.evaluate``, scores each separately, and joins the Results."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from isotrope.core.fingerprint import fingerprint
from isotrope.core.result import Result, provenance
from isotrope.core.spelling import spell
from isotrope.data.text import sts_sets, transfer_sets
from isotrope.data.text.labelled import Features
from isotrope.data.text.retrieval_sets import RetrievalSet
from isotrope.evaluation.embed import Encoder, encoder_name

PROTOCOLS = {"sts": 2, "transfer": 1, "retrieval": 3, "knn": 2, "linear": 1}
"""Version of each protocol. It is raised when the same model and data would give other numbers."""

# by kind of task: the name of the average, the score that is averaged, and all tasks of the kind
_AVERAGES = {
    "sts": ("average", "spearman", sts_sets.TASKS),
    "transfer": ("transfer_average", "accuracy", transfer_sets.TASKS),
}


@dataclass(frozen=True)
class Task:
    """One task of an evaluation.

    Attributes:
        kind: Kind of the task and of its Result: ``sts``, ``transfer``, ...
        name: Name of the task: ``STS12``, ``MR``, ...
        data: Fingerprint of the task's data.
        score: Function that takes an encoder and returns a Result.
        settings: A dict of all settings that change the scores.
        searched: The data of a retrieval task; None for the other kinds.
    """

    kind: str
    name: str
    data: str
    score: Callable[[Encoder], Result]
    settings: dict[str, Any] = field(default_factory=dict)
    searched: RetrievalSet | None = None

    def key(self, model: str | None) -> dict[str, Any]:
        """Return a dict of all that determines the scores; ``model`` is the model's fingerprint."""
        return {
            "model": model,
            "kind": self.kind,
            "task": self.name,
            "data": self.data,
            "protocol": PROTOCOLS[self.kind],
            "settings": self.settings,
        }


def sts_tasks(path: Path) -> list[Task]:
    """Load the STS tasks of a folder (the five years, STS-B and SICK-R), or one task of a file."""
    from isotrope.evaluation.sts import load_tasks, score_task

    return [
        Task("sts", name, fingerprint(subsets), partial(score_task, task=name, subsets=subsets))
        for name, subsets in load_tasks(path).items()
    ]


def transfer_tasks(
    path: Path,
    mode: Literal["full", "prototyping"],
    only: Sequence[str] | None = None,
    *,
    batch_size: int,
) -> list[Task]:
    """Load the seven transfer tasks, or those in ``only``."""
    from isotrope.data.text.transfer_sets import TransferTask, load_transfer
    from isotrope.evaluation.classifier import SEED
    from isotrope.evaluation.transfer import check_task, transfer_task

    def task(name: str, data: TransferTask) -> Task:
        def score(encoder: Encoder) -> Result:
            found = transfer_task(encoder, data, mode=mode, batch_size=batch_size)
            return Result(
                kind="transfer",
                name=encoder_name(encoder),
                metrics={name: found.accuracy},
                details={"tasks": {name: found.numbers()}, "mode": mode},
                provenance=provenance(seed=SEED),
                items={name: found.correct},
            )

        check_task(data, mode)
        return Task("transfer", name, fingerprint(data), score, {"mode": mode})

    return [task(name, data) for name, data in load_transfer(path, only).items()]


def retrieval_tasks(
    path: Path,
    columns: Sequence[str] = (),
    corpus: Path | None = None,
    *,
    progress: bool,
    batch_size: int,
) -> list[Task]:
    """Load a retrieval set as one task; see :func:`isotrope.data.text.load_retrieval`."""
    from isotrope.data.text.retrieval_sets import load_retrieval
    from isotrope.evaluation.retrieval import retrieval

    data = load_retrieval(path, columns, corpus=corpus)
    if progress:
        counts = f"{len(data.queries):,} queries, {len(data.corpus):,} documents"
        counted = f"{path}: {counts}{' (equal texts count once)' if data.how else ''}"
        if data.how and corpus is None:
            counted += spell("; only these are ranked: add other texts with `--corpus FILE`")
        if data.left_out:
            counted += f"; without a relevant document, so left out: {data.left_out:,} queries"
        print(*data.how, counted, sep="\n", file=sys.stderr)

    # recall@k is 1 if there are only k documents
    ks = [k for k in (1, 10, 100) if k < len(data.corpus)] or [1]
    score = partial(retrieval, data=data, ks=ks, batch_size=batch_size)
    own = {} if len(ks) == 3 else {"ks": ks}
    return [Task("retrieval", "retrieval", fingerprint(data), score, own, data)]


def labelled_tasks(
    path: Path, test: Path | None, columns: list[str], *, knn: bool, linear: bool, batch_size: int
) -> list[Task]:
    """Load labelled texts for kNN, a linear probe, or both."""
    from isotrope.data.text.labelled import load_labelled
    from isotrope.evaluation.labelled import text_features

    data = load_labelled(path, test, columns)
    features = partial(text_features, data=data, batch_size=batch_size)
    return classification_tasks(fingerprint(data), features, knn=knn, linear=linear)


def classification_tasks(
    data: str,
    features: Callable[[Encoder], tuple[Features, Features]],
    counts: Callable[[], dict[str, int]] = dict,
    *,
    knn: bool,
    linear: bool,
) -> list[Task]:
    """Return the kNN and linear tasks of labelled examples, with ``counts()`` in the details."""
    from isotrope.evaluation.linear_probe import linear_probe
    from isotrope.evaluation.nearest import knn as nearest_neighbours

    encoded: list[tuple[Encoder, tuple[Features, Features]]] = []

    def task(kind: str, function: Callable[..., Result]) -> Task:
        def score(encoder: Encoder) -> Result:
            if not encoded or encoded[0][0] is not encoder:
                encoded[:] = [(encoder, features(encoder))]
            result = function(*encoded[0][1], name=encoder_name(encoder))
            if kind == "linear" or not linear:  # the last task: release the encoder
                encoded.clear()
            result.details[kind].update(counts())
            return result

        return Task(kind, kind, data, score)

    protocols = (("knn", knn, nearest_neighbours), ("linear", linear, linear_probe))
    return [task(kind, function) for kind, wanted, function in protocols if wanted]


def with_average(results: Sequence[Result]) -> Result:
    """Join the Results of all STS tasks, of all transfer tasks, or of the one task of another kind.

    If all seven tasks are there, ``average`` or ``transfer_average`` is the mean of their scores.
    """
    if results[0].kind not in _AVERAGES:
        return results[0]
    average, score, seven = _AVERAGES[results[0].kind]
    tasks = {name: scores for result in results for name, scores in result.details["tasks"].items()}
    metrics = {name: scores[score] for name, scores in tasks.items()}
    mean = {}
    if set(tasks) == set(seven):
        mean[average] = round(float(np.mean(list(metrics.values()))), 2) + 0.0  # never -0
    return Result(
        kind=results[0].kind,
        name=results[0].name,
        metrics={**metrics, **mean},
        details={**results[0].details, "tasks": tasks, **mean},
        provenance=results[0].provenance,
        items={name: values for result in results for name, values in result.items.items()},
    )
