"""Scores the seven transfer tasks by the protocol of SentEval, with the settings of SimCSE.

A linear classifier is trained on frozen embeddings; the score is the accuracy in percent. MR, CR,
SUBJ and MPQA have no test set: each of ten folds is the test set once, and a cross-validation on
the other folds chooses the strength of the regularisation. For TREC and MRPC, a cross-validation on
the training set chooses it. For SST2, the development set does. Folds are drawn with seed 1111 from
the texts, sorted by number of words and label. The average is the mean of the seven scores, rounded
to two decimals. Sources: SentEval (Conneau and Kiela, 2018), SimCSE (Gao et al., 2021).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.errors import InputError, needs_extra
from isotrope.core.progress import bar
from isotrope.data.text.transfer_sets import Examples, TransferTask
from isotrope.evaluation import classifier
from isotrope.evaluation.classifier import Fitted, Indices, TrainingSet
from isotrope.evaluation.embed import Encoder, embed

if TYPE_CHECKING:
    from sklearn.model_selection import StratifiedKFold

MODES = {"full": classifier.FULL, "prototyping": classifier.PROTOTYPING}
"""The two protocols of SimCSE: ``full``, as in papers, and ``prototyping``, which is faster."""

Mode = Literal["full", "prototyping"]


@dataclass(frozen=True)
class TaskScore:
    """The outcome of one task.

    Attributes:
        accuracy: Accuracy on the test set, or the mean over folds, in percent, two decimals.
        devacc: Accuracy by which the regularisation was chosen, in percent, two decimals.
        correct: 1 for each test example that is classified right, else 0; int8, in the order of
            the file.
        f1: F1 of the class of paraphrases in percent, for MRPC; None for other tasks.
    """

    accuracy: float
    devacc: float
    correct: NDArray[np.int8]
    f1: float | None = None

    def numbers(self) -> dict[str, float]:
        """Return a dict of ``accuracy`` and ``devacc``; MRPC also has ``f1``."""
        values = {"accuracy": self.accuracy, "devacc": self.devacc}
        return values if self.f1 is None else values | {"f1": self.f1}


def transfer_task(
    encoder: Encoder,
    task: TransferTask,
    *,
    mode: Mode = "full",
    fit: Callable[..., list[Fitted]] = classifier.fit,
    batch_size: int = 128,
) -> TaskScore:
    """Score an encoder on one transfer task.

    Args:
        encoder: Any object with ``encode``.
        task: A task from :func:`isotrope.data.text.transfer_sets.load_transfer`.
        mode: ``"full"``, as in papers, or ``"prototyping"``, which is faster.
        fit: Function that trains the classifiers, as ``isotrope.evaluation.classifier.fit`` does.
        batch_size: Number of texts in each batch of the encoder.
    """
    check_task(task, mode)
    x = _features(encoder, task, batch_size)
    y = np.concatenate([examples.labels for examples in task.splits.values()])
    protocol = MODES[mode]
    trials = len(classifier.DECAYS)
    runs = {
        ("all",): (_nested, protocol.folds * (protocol.folds * trials + 1)),
        ("train", "test"): (_cross_validated, protocol.folds * trials + 1),
        ("train", "dev", "test"): (_split, trials),
    }
    run, count = runs[tuple(task.splits)]
    with bar(count, task.name, "fits") as done:

        def fitted(sets: Sequence[TrainingSet]) -> list[Fitted]:
            labels = torch.from_numpy(y)
            return fit(x, labels, len(task.labels), sets, protocol, done)

        pairs = any(examples.seconds for examples in task.splits.values())
        return run(_ScoredTask(pairs, x, y, _sorted_rows(task), protocol, fitted))


def check_task(task: TransferTask, mode: str) -> None:
    """Raise an error if a class has too few examples, or if scikit-learn is missing."""
    examples = next(iter(task.splits.values()))
    rarest = int(np.bincount(examples.labels, minlength=len(task.labels)).min())
    # with 13 examples of each class, 5% of the examples outside a fold are at least one
    least = max(13, 2 * MODES[mode].folds)
    if rarest < least:
        raise InputError(
            f"give at least {least} examples of each class of {task.name}, which cross-validation "
            f"needs; the rarest class has {rarest}"
        )
    _folds(2)  # raises an error if scikit-learn is missing


def _folds(count: int) -> "StratifiedKFold":
    with needs_extra("eval"):
        from sklearn.model_selection import StratifiedKFold
    return StratifiedKFold(n_splits=count, shuffle=True, random_state=classifier.SEED)


def _features(encoder: Encoder, task: TransferTask, batch_size: int) -> Tensor:
    """Return the features of all splits, one after the other: n x d, or n x 2d for pairs."""
    parts = task.splits.values()
    texts = [text for examples in parts for text in examples.texts]
    seconds = [text for examples in parts for text in examples.seconds]
    vectors = embed(encoder, texts + seconds, task.name, batch_size=batch_size)
    if seconds:
        a, b = np.split(vectors, 2)
        vectors = np.concatenate([np.abs(a - b), a * b], axis=1)
    return torch.from_numpy(vectors)


def _sorted_rows(task: TransferTask) -> dict[str, Indices]:
    """Return a dict from split to row numbers, sorted by number of words and label for folds."""
    rows, start = {}, 0
    for name, examples in task.splits.items():
        rows[name] = start + _order(examples)
        start += len(examples)
    return rows


def _order(examples: Examples) -> Indices:
    keys = [examples.labels]  # the last key sorts first
    for side in (examples.seconds, examples.texts):
        if side:
            keys.append(np.array([len(text.split()) for text in side]))
    return np.lexsort(keys)


@dataclass(frozen=True)
class _ScoredTask:
    """Features and labels of all splits, the sorted rows of each split, and how to fit."""

    pairs: bool
    x: Tensor
    y: NDArray[np.int64]
    rows: dict[str, Indices]
    protocol: classifier.ClassifierProtocol
    fit: Callable[[Sequence[TrainingSet]], list[Fitted]]

    def folds(self, rows: Indices) -> list[tuple[Indices, Indices]]:
        """Divide ``rows`` into folds; return the training and test rows of each."""
        parts = _folds(self.protocol.folds).split(np.zeros(len(rows)), self.y[rows])
        return [(rows[train], rows[test]) for train, test in parts]

    def classes(self, weights: Tensor, rows: Indices) -> NDArray[np.int64]:
        """Return the classes predicted for ``rows``."""
        return np.asarray(classifier.predict(weights, self.x[rows]))


def _choose(folds: Sequence[Fitted]) -> tuple[float, float]:
    """Return the regularisation with the best accuracy (the weakest in a tie), and the accuracy."""
    by_decay = zip(*(fitted.accuracies for fitted in folds), strict=True)
    scores = [float(round(100 * np.mean(accuracies), 2)) for accuracies in by_decay]
    return classifier.DECAYS[int(np.argmax(scores))], max(scores)


def _percent(correct: NDArray[np.bool_]) -> float:
    return round(100 * (int(correct.sum()) / len(correct)), 2)


def _nested(task: _ScoredTask) -> TaskScore:
    """Choose the regularisation for each outer fold, and test on the fold (MR, CR, SUBJ, MPQA)."""
    outer = task.folds(task.rows["all"])
    inner = [TrainingSet(*fold) for train, _ in outer for fold in task.folds(train)]
    inner_fits, k = task.fit(inner), task.protocol.folds
    chosen = [_choose(inner_fits[i * k : (i + 1) * k]) for i in range(k)]
    whole = zip(outer, chosen, strict=True)
    last = task.fit([TrainingSet(train, None, (decay,)) for (train, _), (decay, _) in whole])
    correct = np.zeros(len(task.y), dtype=np.int8)
    accuracies = []
    for fitted, (_, test) in zip(last, outer, strict=True):
        right = task.classes(fitted.weights[0], test) == task.y[test]
        correct[test] = right
        accuracies.append(_percent(right))
    return TaskScore(
        accuracy=float(round(np.mean(accuracies), 2)),
        devacc=float(round(np.mean([score for _, score in chosen]), 2)),
        correct=correct,
    )


def _cross_validated(task: _ScoredTask) -> TaskScore:
    """Choose the regularisation by cross-validation on the training set (TREC, MRPC)."""
    train = task.rows["train"]
    decay, devacc = _choose(task.fit([TrainingSet(*fold) for fold in task.folds(train)]))
    (fitted,) = task.fit([TrainingSet(train, None, (decay,))])
    return _tested(task, fitted.weights[0], devacc)


def _split(task: _ScoredTask) -> TaskScore:
    """Choose the regularisation on the development set (SST2)."""
    (fitted,) = task.fit([TrainingSet(task.rows["train"], task.rows["dev"])])
    decay, devacc = _choose([fitted])
    # SentEval trains once more with the chosen one; with the same seed, it is the same classifier
    return _tested(task, fitted.weights[classifier.DECAYS.index(decay)], devacc)


def _tested(task: _ScoredTask, weights: Tensor, devacc: float) -> TaskScore:
    test = np.sort(task.rows["test"])  # the order of the file
    predicted, labels = task.classes(weights, test), task.y[test]
    right, both = predicted == labels, int((predicted & labels).sum())
    f1 = round(200 * both / max(1, int(predicted.sum() + labels.sum())), 2) if task.pairs else None
    return TaskScore(_percent(right), devacc, right.astype(np.int8), f1)
