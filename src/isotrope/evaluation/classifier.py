"""Trains the classifier of the transfer tasks: one linear layer, fitted as SentEval does.

After every few passes over the training set the weights are scored on the development set, and the
best are kept. Training ends when more than ``tenacity`` scores in all were no improvement (an
improvement does not reset the count), or after 200 passes. Every fit
starts from the same seed: equal dimensions give equal initial weights, training sets of equal size
equal orders. :func:`fit_sequential` is that loop as it is written in SentEval (Conneau and Kiela
2018) and what ``classifier_batched`` must agree with.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "DECAYS",
    "FULL",
    "PROTOTYPING",
    "SEED",
    "ClassifierProtocol",
    "Fitted",
    "TrainingSet",
    "fit_sequential",
    "held_out",
    "initial",
    "predict",
]

Indices = NDArray[np.int64]

SEED = 1111
DECAYS = (1e-5, 1e-4, 1e-3, 1e-2)
"""Strengths of the L2 regularisation to choose from."""


@dataclass(frozen=True)
class ClassifierProtocol:
    """How a classifier is trained.

    Attributes:
        folds: the number of folds of each cross-validation.
        optimiser: ``"adam"`` (learning rate 0.001) or ``"rmsprop"`` (0.01).
        batch: examples a step.
        tenacity: the number of scores without improvement that training survives.
        passes: passes over the training set between two scores on the development set.
        most: the passes after which no further score follows.
    """

    folds: int
    optimiser: str
    batch: int
    tenacity: int
    passes: int
    most: int = 200


FULL = ClassifierProtocol(folds=10, optimiser="adam", batch=64, tenacity=5, passes=4)
PROTOTYPING = ClassifierProtocol(folds=5, optimiser="rmsprop", batch=128, tenacity=3, passes=2)


@dataclass(frozen=True)
class TrainingSet:
    """Examples to train on, once for each strength of regularisation.

    Attributes:
        train: rows of the features.
        dev: rows for early stopping; None holds out 5% of ``train``.
        decays: strengths of the L2 regularisation.
    """

    train: Indices
    dev: Indices | None = None
    decays: tuple[float, ...] = DECAYS


@dataclass(frozen=True)
class Fitted:
    """The best classifiers of a training set.

    Attributes:
        weights: decays x classes x (dimension + 1), the bias last.
        accuracies: on the development set, one for each decay, in [0, 1].
    """

    weights: Tensor
    accuracies: list[float]


def predict(weights: Tensor, x: Tensor) -> Tensor:
    """Return the classes (n) that weights (classes x (d + 1)) give to features (n x d)."""
    return torch.addmm(weights[:, -1], x, weights[:, :-1].T).argmax(dim=1)


def initial(dimension: int, classes: int, dtype: torch.dtype) -> torch.nn.Linear:
    """Return the layer every fit starts from; the state of torch's generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return torch.nn.Linear(dimension, classes, dtype=dtype)


def held_out(training_set: TrainingSet, draws: np.random.RandomState) -> tuple[Indices, Indices]:
    """Return the rows to train on and those for early stopping, drawn where none are given."""
    if training_set.dev is not None:
        return training_set.train, training_set.dev
    order = draws.permutation(len(training_set.train))
    cut = int(0.05 * len(order))
    return training_set.train[order[cut:]], training_set.train[order[:cut]]


def fit_sequential(
    x: Tensor,
    y: Tensor,
    classes: int,
    sets: Sequence[TrainingSet],
    protocol: ClassifierProtocol,
    done: Callable[[int], object] = lambda count: None,
) -> list[Fitted]:
    """Train one classifier after the other with ``torch.nn`` and ``torch.optim``.

    Args:
        x: features, n x d.
        y: classes, n.
        classes: the number of classes.
        sets: the training sets.
        protocol: how a classifier is trained.
        done: called with the number of fits that have ended since the last call.
    """
    fitted = []
    for training_set in sets:
        fits = []
        for decay in training_set.decays:
            draws = np.random.RandomState(SEED)  # draws what numpy.random.seed(SEED) leads to
            train, dev = held_out(training_set, draws)
            fits.append(
                _fit((x[train], y[train]), (x[dev], y[dev]), classes, decay, protocol, draws)
            )
            done(1)
        weights, accuracies = zip(*fits, strict=True)
        fitted.append(Fitted(torch.stack(weights), list(accuracies)))
    return fitted


def _fit(
    train: tuple[Tensor, Tensor],
    dev: tuple[Tensor, Tensor],
    classes: int,
    decay: float,
    protocol: ClassifierProtocol,
    draws: np.random.RandomState,
) -> tuple[Tensor, float]:
    """Return the best weights (classes x (d + 1)) and their accuracy on ``dev``."""
    model = initial(train[0].shape[1], classes, train[0].dtype)
    kind = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[protocol.optimiser]
    optimiser = kind(model.parameters(), weight_decay=decay)
    best, weights, failures, passes = -1.0, torch.empty(0), 0, 0
    while passes <= protocol.most:
        for _ in range(protocol.passes):
            _pass(model, optimiser, *train, _batches(len(train[1]), protocol.batch, draws))
        passes += protocol.passes
        now = torch.cat([model.weight, model.bias[:, None]], dim=1).detach()
        accuracy = (predict(now, dev[0]) == dev[1]).double().mean().item()
        if accuracy > best:
            best, weights = accuracy, now
        elif failures >= protocol.tenacity:
            break
        else:
            failures += 1
    return weights, best


def _batches(n: int, size: int, draws: np.random.RandomState) -> Iterator[Tensor]:
    """Yield the places of one pass in a fresh order, ``size`` at a time."""
    yield from torch.split(torch.from_numpy(draws.permutation(n)), size)


def _pass(
    model: torch.nn.Linear,
    optimiser: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    batches: Iterator[Tensor],
) -> None:
    for batch in batches:
        optimiser.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(model(x[batch]), y[batch]))
        optimiser.step()
