"""Trains the linear classifiers of the transfer tasks as SentEval does (Conneau and Kiela, 2018).

After every few passes over the training set, a classifier is scored on the development set, and the
weights with the best score are kept. Training ends after 200 passes, or when more than ``tenacity``
scores have not exceeded the best earlier score. Every fit starts from the same seed. Therefore
layers of equal size have equal initial weights, and training sets of equal size have the same order
of examples. Tests compare the results with SentEval's own loop (``benchmarks/sequential.py``).

Many classifiers take their steps together: those of F training sets of equal size, with R strengths
of regularisation for each set. With C classes, D features and batches of 64, one batched product
(F x RC x D by F x D x 64) computes all scores of a step, and another computes all gradients.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.autograd import seeded

Indices = NDArray[np.int64]

_TOGETHER = 10
"""Largest number of training sets that take steps together; more do not fit in a CPU's caches."""

SEED = 1111
DECAYS = (1e-5, 1e-4, 1e-3, 1e-2)
"""Strengths of the L2 regularisation to choose from."""


@dataclass(frozen=True)
class ClassifierProtocol:
    """How a classifier is trained.

    Attributes:
        folds: Number of folds of each cross-validation.
        optimiser: ``"adam"`` (learning rate 0.001) or ``"rmsprop"`` (0.01).
        batch: Number of examples in each step.
        tenacity: Number of scores without improvement that are allowed. One more ends training.
        passes: Number of passes over the training set between two scorings on the development set.
        most: Number of passes after which training stops.
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
    """Examples on which one classifier is trained for each strength of regularisation.

    Attributes:
        train: Numbers of the rows to train on.
        dev: Numbers of the rows for early stopping. If None, 5% of ``train`` are held out for it.
        decays: Strengths of the L2 regularisation to try.
    """

    train: Indices
    dev: Indices | None = None
    decays: tuple[float, ...] = DECAYS


@dataclass(frozen=True)
class Fitted:
    """The classifiers of a training set, one for each strength of regularisation (decay).

    Attributes:
        weights: Weights, decays x classes x (dimension + 1); the last column is the bias.
        accuracies: Accuracy on the development set for each decay, in [0, 1].
    """

    weights: Tensor
    accuracies: list[float]


def predict(weights: Tensor, x: Tensor) -> Tensor:
    """Return the predicted class of each row of ``x`` (n x d); ``weights``: classes x (d + 1)."""
    return torch.addmm(weights[:, -1], x, weights[:, :-1].T).argmax(dim=1)


def initial(dimension: int, classes: int, dtype: torch.dtype) -> torch.nn.Linear:
    """Return the linear layer from which every fit starts; torch's random state does not change."""
    with seeded(SEED):
        return torch.nn.Linear(dimension, classes, device="cpu", dtype=dtype)


def held_out(training_set: TrainingSet, draws: np.random.RandomState) -> tuple[Indices, Indices]:
    """Return rows to train on, and rows for early stopping: ``dev`` or a random 5% of ``train``."""
    if training_set.dev is not None:
        return training_set.train, training_set.dev
    order = draws.permutation(len(training_set.train))
    cut = int(0.05 * len(order))
    return training_set.train[order[cut:]], training_set.train[order[:cut]]


def fit(
    x: Tensor,
    y: Tensor,
    classes: int,
    sets: Sequence[TrainingSet],
    protocol: ClassifierProtocol,
    done: Callable[[int], object] = lambda count: None,
) -> list[Fitted]:
    """Fit classifiers on each training set; return one :class:`Fitted` per set, in order.

    Args:
        x: Features, n x d.
        y: Class of each row, n integers.
        classes: The number of classes.
        sets: The training sets.
        protocol: How a classifier is trained.
        done: Function that is called with the number of fits that ended since the last call.
    """
    start = initial(x.shape[1], classes, x.dtype)
    first = torch.cat([start.weight, start.bias[:, None]], dim=1).detach()
    ones = torch.cat([x, x.new_ones(len(x), 1)], dim=1)  # the bias is one more weight
    targets = torch.nn.functional.one_hot(y, classes).to(x)
    fitted: dict[int, Fitted] = {}
    for places in _stacks(sets):
        stack = _Stack(ones, targets, first, [sets[i] for i in places], protocol)
        fitted.update(zip(places, stack.fit(x, y, done), strict=True))
    return [fitted[i] for i in range(len(sets))]


def _stacks(sets: Sequence[TrainingSet]) -> Iterator[list[int]]:
    """Yield the positions of sets that can be fitted together: equal size and number of decays."""
    alike: dict[tuple[int, bool, int], list[int]] = {}
    for i, training_set in enumerate(sets):
        key = (len(training_set.train), training_set.dev is None, len(training_set.decays))
        alike.setdefault(key, []).append(i)
    for places in alike.values():
        for start in range(0, len(places), _TOGETHER):
            yield places[start : start + _TOGETHER]


class _Stack:
    """F training sets of n examples with R regularisations each, without sets that have ended."""

    def __init__(
        self,
        x: Tensor,
        targets: Tensor,
        first: Tensor,
        sets: Sequence[TrainingSet],
        protocol: ClassifierProtocol,
    ) -> None:
        self.x, self.targets, self.protocol = x, targets, protocol
        self.classes = len(first)
        pairs: list[tuple[Indices, Indices]] = []
        for training_set in sets:
            # equal sizes give equal draws, so any one of the generators can draw for all
            self.draws = np.random.RandomState(SEED)
            pairs.append(held_out(training_set, self.draws))
        self.rows = torch.from_numpy(np.stack([train for train, _ in pairs]))  # F x n
        self.dev = [dev for _, dev in pairs]
        decays = x.new_tensor([each.decays for each in sets])  # F x R
        self.decays = decays.repeat_interleave(self.classes, dim=1)[:, :, None]  # F x RC x 1
        self.weights = first.repeat(len(sets), decays.shape[1], 1)  # F x RC x D
        self.mean, self.square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.steps = 0
        self.active = list(range(len(sets)))  # positions of the sets that are still in the stack
        self.best = self._by_fit(self.weights).clone()  # F x R x C x D; keeps ended sets
        self.accuracies = torch.full_like(decays, -1.0, dtype=torch.float64)
        self.failures = torch.zeros_like(decays, dtype=torch.int64)

    def _by_fit(self, weights: Tensor) -> Tensor:
        return weights.view(len(weights), -1, self.classes, weights.shape[-1])

    def fit(self, x: Tensor, y: Tensor, done: Callable[[int], object]) -> list[Fitted]:
        """Train until every fit has ended; ``x`` has the features without the column of ones."""
        passes = 0
        while passes <= self.protocol.most and self.active:
            for _ in range(self.protocol.passes):
                order = torch.from_numpy(self.draws.permutation(self.rows.shape[1]))
                for rows in torch.split(self.rows[:, order], self.protocol.batch, dim=1):
                    self._step(rows)
            passes += self.protocol.passes
            done(self._validate(x, y))
        done(int((self.failures <= self.protocol.tenacity).sum()))
        return [
            Fitted(weights, accuracies.tolist())
            for weights, accuracies in zip(self.best, self.accuracies, strict=True)
        ]

    def _step(self, rows: Tensor) -> None:
        """Take one step with the examples ``rows`` (F x batch)."""
        count, size = rows.shape
        x = self.x.index_select(0, rows.flatten()).view(count, size, -1)
        targets = self.targets.index_select(0, rows.flatten()).view(count, 1, size, -1)
        logits = torch.bmm(self.weights, x.transpose(1, 2)).view(count, -1, self.classes, size)
        error = logits.softmax(2).sub_(targets.transpose(2, 3)).div_(size)
        grad = torch.bmm(error.view(count, -1, size), x).addcmul_(self.weights, self.decays)
        self.steps += 1
        if self.protocol.optimiser == "adam":
            _adam(self.weights, grad, self.mean, self.square, self.steps)
        else:
            _rmsprop(self.weights, grad, self.square)

    def _validate(self, x: Tensor, y: Tensor) -> int:
        """Score all fits on their development sets; return how many ended. Drop ended sets."""
        running = self.failures <= self.protocol.tenacity
        now = self._by_fit(self.weights)
        for i, place in enumerate(self.active):
            dev = self.dev[place]
            features, labels = x[dev], y[dev]
            for j in running[place].nonzero().flatten().tolist():
                right = predict(now[i, j], features) == labels
                accuracy = right.double().mean()
                if accuracy > self.accuracies[place, j]:
                    self.accuracies[place, j] = accuracy
                    self.best[place, j] = now[i, j]
                else:
                    self.failures[place, j] += 1
        still = self.failures <= self.protocol.tenacity
        self._keep([i for i, place in enumerate(self.active) if still[place].any()])
        return int((running & ~still).sum())

    def _keep(self, places: list[int]) -> None:
        if len(places) < len(self.active):
            self.active = [self.active[i] for i in places]
            self.rows, self.decays = self.rows[places], self.decays[places]
            self.weights, self.mean = self.weights[places], self.mean[places]
            self.square = self.square[places]


def _adam(weights: Tensor, grad: Tensor, mean: Tensor, square: Tensor, step: int) -> None:
    """Take the step that ``torch.optim.Adam`` takes with its defaults."""
    mean.lerp_(grad, 0.1)
    square.mul_(0.999).addcmul_(grad, grad, value=0.001)
    spread = square.sqrt().div_(math.sqrt(1 - 0.999**step)).add_(1e-8)
    weights.addcdiv_(mean, spread, value=-0.001 / (1 - 0.9**step))


def _rmsprop(weights: Tensor, grad: Tensor, square: Tensor) -> None:
    """Take the step that ``torch.optim.RMSprop`` takes with its defaults."""
    square.mul_(0.99).addcmul_(grad, grad, value=0.01)
    weights.addcdiv_(grad, square.sqrt().add_(1e-8), value=-0.01)
