"""Fits the linear probe: softmax regression on features of a frozen encoder.

The fit follows papers on images: SGD with momentum 0.9 and without weight decay; the learning rate
falls to 0 along a cosine. The weights start at 0, so the seed changes only the order of the rows.
Features are read in blocks, so an array may be a memory map that is larger than the memory. To
minimise a penalised loss exactly, use scikit-learn's ``LogisticRegression``.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.data.text.labelled import Features
from isotrope.evaluation.labelled import check_finite, classified, index_classes, label_in_top_k

_ROWS = 8192  # number of rows that are read at a time in the order of the file
_MOMENTUM = 0.9


@dataclass(frozen=True, kw_only=True)
class Probe:
    """How a linear probe is fitted.

    Attributes:
        epochs: Number of passes over the training part.
        batch_size: Number of rows in each step.
        learning_rate: The first learning rate, whatever the batch size. Below 7.6, the steps are
            stable: the limit is 2 (1 + 0.9) / c, with momentum 0.9 and a curvature c of at most
            1/2 (the rows have mean 0 and mean squared length 1).
        weight_decay: Factor lambda of lambda/2 ||W||^2, which is added to the mean loss. W are the
            weights without the bias.
        seed: Seed of the order of the rows.
    """

    epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 3.0
    weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch_size) < 1:
            raise InputError(f"give at least one epoch and rows in each batch; found {self}")


@dataclass(frozen=True)
class _Scaled:
    """Features (n x d) that are read as (features - ``shift``) * ``factor``."""

    vectors: np.ndarray
    shift: np.ndarray
    factor: np.ndarray

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        features = np.asarray(self.vectors[index], dtype=np.float64)
        return np.asarray((features - self.shift) * self.factor)


def linear_probe(
    train: Features, test: Features, probe: Probe | None = None, *, name: str = "features"
) -> Result:
    """Fit softmax regression on the training part and score it on the test part.

    Each dimension is standardised to mean 0 and variance 1/d on the training part. It is set to 0
    if its standard deviation is below 1e-6 times the largest root mean square of a dimension.

    Args:
        train: n labelled training rows, as an array or a memory map. They are read once per epoch.
        test: m labelled test rows, as an array or a memory map.
        probe: Settings of the fit; by default ``Probe()``.
        name: Name of the Result.

    Returns:
        A Result of kind ``linear``. ``linear_top1`` is the share of test rows whose class has the
        highest score, and ``linear_top5`` the share whose class has one of the five highest scores.
        ``linear_top5`` is None if there are at most five classes. In a tie, the first class by name
        wins. ``items`` has a boolean array for each score, True for rows counted in the share.
    """
    probe = probe or Probe()
    classes = index_classes(train, test)
    check_finite(test.vectors, "test")
    scale = _scale(train.vectors)
    learn, judge = (_Scaled(part.vectors, *scale) for part in (train, test))
    weights = _by_sgd(learn, classes.train, len(classes.names), probe)
    items = _right(judge, classes.test, weights)
    learnt = float(_right(learn, classes.train, weights)["top1"].mean())
    return classified("linear", name, items, classes, train_top1=learnt, **asdict(probe))


def _scale(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return shift and factor of :class:`_Scaled`, d values each."""
    n = len(vectors)
    with np.errstate(all="ignore"):
        mean = sum(rows.sum(axis=0) for rows in _blocks(vectors)) / n
        std = np.sqrt(sum(((rows - mean) ** 2).sum(axis=0) for rows in _blocks(vectors)) / n)
    check_finite(std[None], "training")
    # a dimension that varies by rounding only would be noise if it were scaled up
    live = std > 1e-6 * np.hypot(mean, std).max()
    return mean, np.where(live, 1 / np.where(live, std, 1), 0) / math.sqrt(len(std))


def _blocks(vectors: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(vectors), _ROWS):
        yield np.asarray(vectors[first : first + _ROWS], dtype=np.float64)


@torch.inference_mode(mode=False)
@torch.enable_grad()
def _by_sgd(learn: _Scaled, labels: np.ndarray, classes: int, probe: Probe) -> np.ndarray:
    """Fit by SGD; return the weights, (d + 1) x C. The last row is the bias."""
    start = np.zeros((learn.vectors.shape[1] + 1, classes), np.float32)
    parts = (start[:-1], start[-1])
    weight, bias = (torch.tensor(x, device="cpu", requires_grad=True) for x in parts)
    decayed = {"params": [weight], "weight_decay": probe.weight_decay}
    groups: list[dict[str, Any]] = [decayed, {"params": [bias]}]
    optimiser = torch.optim.SGD(groups, lr=probe.learning_rate, momentum=_MOMENTUM)
    steps = probe.epochs * math.ceil(len(labels) / probe.batch_size)
    cosine = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: (1 + math.cos(math.pi * step / steps)) / 2
    )
    for index in _batches(len(labels), probe):
        logits = torch.from_numpy(learn.rows(index)).float() @ weight + bias
        truth = torch.from_numpy(labels[index])
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(logits, truth).backward()
        optimiser.step()
        cosine.step()
    fitted = torch.cat([weight, bias[None]]).detach().numpy()
    if not np.isfinite(fitted).all():
        raise InputError(
            f"lower the learning rate of the linear probe: at {probe.learning_rate}, it diverges"
        )
    return fitted.astype(np.float64)


def _batches(n: int, probe: Probe) -> Iterator[np.ndarray]:
    """Yield the rows of each step. They are sorted, so that a memory map is read forwards."""
    for epoch in range(probe.epochs):
        order = np.random.default_rng((probe.seed, epoch)).permutation(n)
        for first in range(0, n, probe.batch_size):
            yield np.sort(order[first : first + probe.batch_size])


def _right(judge: _Scaled, labels: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Return, for each row, whether its class is first, and whether it is among the first five."""
    correct: dict[str, list[np.ndarray]] = {"top1": [], "top5": []}
    for first in range(0, len(labels), _ROWS):
        block = slice(first, first + _ROWS)
        logits = judge.rows(block) @ weights[:-1] + weights[-1]
        correct["top1"].append(label_in_top_k(logits, labels[block], 1))
        correct["top5"].append(label_in_top_k(logits, labels[block], 5))
    return {key: np.concatenate(right) for key, right in correct.items()}
