"""SentEval's training of a classifier as it is written there: one fit after the other.

``isotrope.evaluation.classifier`` must agree with it; ``benchmarks/transfer.py`` compares the two.
Source: Conneau and Kiela 2018, "SentEval", tools/classifier.py.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from isotrope.evaluation.classifier import (
    SEED,
    ClassifierProtocol,
    Fitted,
    TrainingSet,
    held_out,
    initial,
    predict,
)


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
