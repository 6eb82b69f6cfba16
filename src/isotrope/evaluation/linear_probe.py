"""Fits the linear probe: softmax regression on frozen features.

Two ways to fit it. ``sgd`` is the protocol of image papers (momentum 0.9, cosine schedule to 0, no
weight decay), from a start at 0, so that only the order of the rows depends on the seed. ``exact``
minimises the loss with an l2 penalty by L-BFGS: no learning rate, no seed. Both read the features
in blocks, so that an array may be a memory map larger than the memory.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from isotrope.core.errors import InputError, nearest
from isotrope.core.result import Result, provenance
from isotrope.data.text.labelled import Features, LabelledSplit
from isotrope.encoders.device import find_device
from isotrope.evaluation.embed import Encoder, encoder_name
from isotrope.evaluation.labelled import check_finite, index_classes, label_in_top_k, text_features

_ROWS = 8192  # read at a time, where their order is that of the file
_MOMENTUM = 0.9

Solver = Literal["sgd", "exact"]
Scaling = Literal["standard", "unit", "none"]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """How a linear probe is fitted.

    Attributes:
        solver: ``sgd`` or ``exact``; see the module.
        scaling: ``standard`` gives every dimension mean 0 and one variance, 1/d, by the training
            part (one that varies a million times less than another becomes 0); ``unit`` divides
            each row by its norm; ``none``. With the first two, rows have length 1 on average, so
            that one learning rate suits all.
        epochs: passes over the training part (``sgd``).
        batch_size: rows a step (``sgd``).
        learning_rate: the rate at the start (``sgd``), not scaled by the batch size. For features
            of length 1 steps are stable below 7.6: softmax curves at most by 1/2.
        weight_decay: lambda of lambda/2 ||W||^2, added to the mean loss; the bias has none. None
            is 0 for ``sgd`` and 1/n for ``exact`` (C = 1 of scikit-learn), which needs some.
        seed: the seed of the order of the rows (``sgd``).
    """

    solver: Solver = "sgd"
    scaling: Scaling = "standard"
    epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 3.0
    weight_decay: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: one of them is out of its range.
        """
        for what, value, choices in (
            ("solver", self.solver, get_args(Solver)),
            ("scaling", self.scaling, get_args(Scaling)),
        ):
            if value not in choices:
                raise InputError(
                    f"there is no {what} {value!r}{nearest(value, choices)}; "
                    f"use {', '.join(choices)}"
                )
        if min(self.epochs, self.batch_size) < 1 or not 0 < self.learning_rate < math.inf:
            raise InputError(
                "a linear probe needs at least 1 epoch, 1 row a batch and a learning rate above "
                f"0; found {self.epochs}, {self.batch_size} and {self.learning_rate}"
            )
        decay, exact = self.weight_decay, self.solver == "exact"
        if decay is not None and not (0 < decay < math.inf or (decay == 0 and not exact)):
            least = "above 0, or there may be no minimum" if exact else "of 0 or more"
            raise InputError(f"{self.solver} needs a weight decay {least}; found {decay}")


@dataclass(frozen=True)
class _Scaled:
    """Features as the probe sees them: shifted, divided, and perhaps of length 1; float64.

    Attributes:
        vectors: n x d, as they are.
        shift: subtracted from each row, d.
        factor: multiplies each dimension then, d.
        unit: whether rows are divided by their norm instead.
    """

    vectors: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    unit: bool

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        features = np.asarray(self.vectors[index], dtype=np.float64)
        if self.unit:
            features = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
        scaled: np.ndarray = (features - self.shift) * self.factor
        return scaled

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        for first in range(0, len(self.vectors), _ROWS):
            block = slice(first, min(first + _ROWS, len(self.vectors)))
            yield block, self.rows(block)


def linear_probe(
    train: Features,
    test: Features,
    probe: Probe | None = None,
    *,
    device: str = "cpu",
    name: str = "features",
) -> Result:
    """Fit softmax regression on the training part and score it on the test part.

    Args:
        train: n rows, an array or memory map: they are read once an epoch.
        test: m rows, likewise.
        probe: how it is fitted; by default the protocol of the module.
        device: where ``sgd`` computes: ``auto``, ``cpu``, ``cuda``, ...
        name: the name of the Result.

    Returns:
        A Result of kind ``linear``: ``linear_top1`` and ``linear_top5`` (the share of test rows
        whose class scores highest, or among the first five; among equal scores the first class
        by name wins; None where there are no more than five classes), in [0, 1]; ``items`` hold,
        under the same names, whether each row was right.

    Raises:
        InputError: labels and features that do not fit, features that are not finite, or a
            learning rate at which the loss diverges.
    """
    probe = probe or Probe()
    classes = index_classes(train, test)
    check_finite(test.vectors, "test")
    shift, factor = _scale(train.vectors, probe.scaling)
    learn, judge = (
        _Scaled(part.vectors, shift, factor, probe.scaling == "unit") for part in (train, test)
    )
    shape = (learn.vectors.shape[1], len(classes.names))
    if probe.solver == "sgd":
        weight, bias = _by_sgd(learn, classes.train, shape, probe, find_device(device))
    else:
        weight, bias = _exactly(learn, classes.train, shape, probe)
    items = _right(judge, classes.test, weight, bias)
    values: dict[str, float | None] = {key: float(right.mean()) for key, right in items.items()}
    if len(classes.names) <= 5:
        values["top5"] = None
    return Result(
        kind="linear",
        name=name,
        metrics={f"linear_{key}": value for key, value in values.items()},
        details={
            "linear": {
                **values,
                "train_top1": float(_right(learn, classes.train, weight, bias)["top1"].mean()),
                **_used_settings(probe, len(classes.train)),
                "train": len(classes.train),
                "test": len(classes.test),
                "classes": len(classes.names),
                "unseen": classes.unseen,
                "repeated": classes.repeated,
            }
        },
        provenance=provenance(seed=probe.seed),
        items={f"linear_{key}": right for key, right in items.items()},
    )


def linear_text(
    encoder: Encoder,
    data: LabelledSplit,
    probe: Probe | None = None,
    *,
    batch_size: int = 128,
    device: str = "cpu",
    progress: bool = False,
) -> Result:
    """Probe the encoder's embeddings of texts; see :func:`linear_probe`."""
    train, test = text_features(encoder, data, batch_size=batch_size, progress=progress)
    return linear_probe(train, test, probe, device=device, name=encoder_name(encoder))


def _used_settings(probe: Probe, n: int) -> dict[str, Any]:
    """Return the settings of a probe that took part in the fit."""
    settings = {**asdict(probe), "weight_decay": _decay(probe, n)}
    unused = ("epochs", "batch_size", "learning_rate", "seed") if probe.solver == "exact" else ()
    return {key: value for key, value in settings.items() if key not in unused}


def _decay(probe: Probe, n: int) -> float:
    if probe.weight_decay is not None:
        return probe.weight_decay
    return 0.0 if probe.solver == "sgd" else 1 / n


def _scale(vectors: np.ndarray, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
    """Return what is subtracted from the rows and what multiplies them then, both of length d."""
    d = vectors.shape[1]
    mean, std = _moments(vectors)
    if not np.isfinite(std).all():
        raise InputError(
            "the training features hold numbers that are not finite (NaN, infinite or nearly so)"
        )
    if scaling != "standard":
        return np.zeros(d), np.ones(d)
    # encoders have dimensions that vary by rounding only; blown up they would be noise
    live = std > 1e-6 * np.hypot(mean, std).max()
    return mean, np.where(live, 1 / np.where(live, std, 1), 0) / math.sqrt(d)


@np.errstate(all="ignore")
def _moments(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each dimension, of blocks of rows."""
    mean, scatter, count = np.zeros(vectors.shape[1]), np.zeros(vectors.shape[1]), 0
    for first in range(0, len(vectors), _ROWS):
        rows = np.asarray(vectors[first : first + _ROWS], dtype=np.float64)
        share = len(rows) / (count + len(rows))
        # the update of Chan, Golub and LeVeque 1983: no difference of large numbers
        step = rows.mean(axis=0) - mean
        scatter += ((rows - rows.mean(axis=0)) ** 2).sum(axis=0) + count * share * step**2
        mean += share * step
        count += len(rows)
    return mean, np.sqrt(scatter / count)


def _by_sgd(
    learn: _Scaled, labels: np.ndarray, shape: tuple[int, int], probe: Probe, device: torch.device
) -> tuple[np.ndarray, np.ndarray]:
    """Return W (d x C) and b (C)."""
    weight = torch.zeros(shape, device=device, requires_grad=True)
    bias = torch.zeros(shape[1], device=device, requires_grad=True)
    groups: list[dict[str, Any]] = [
        {"params": [weight], "weight_decay": _decay(probe, len(labels))},
        {"params": [bias]},
    ]
    optimiser = torch.optim.SGD(groups, lr=probe.learning_rate, momentum=_MOMENTUM)
    steps = probe.epochs * math.ceil(len(labels) / probe.batch_size)
    cosine = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: (1 + math.cos(math.pi * step / steps)) / 2
    )
    for index in _batches(len(labels), probe):
        rows = torch.from_numpy(learn.rows(index)).float().to(device)
        logits = rows @ weight + bias
        truth = torch.from_numpy(labels[index]).to(device)
        loss: Tensor = torch.nn.functional.cross_entropy(logits, truth)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        cosine.step()
    fitted = [part.detach().cpu().double().numpy() for part in (weight, bias)]
    if not all(np.isfinite(part).all() for part in fitted):
        raise InputError(
            f"the linear probe diverges at a learning rate of {probe.learning_rate}; lower it, or "
            "scale the features"
        )
    return fitted[0], fitted[1]


def _batches(n: int, probe: Probe) -> Iterator[np.ndarray]:
    """Yield the rows of each step; sorted, so that a memory map is read forwards."""
    for epoch in range(probe.epochs):
        order = np.random.default_rng((probe.seed, epoch)).permutation(n)
        for first in range(0, n, probe.batch_size):
            yield np.sort(order[first : first + probe.batch_size])


def _exactly(
    learn: _Scaled, labels: np.ndarray, shape: tuple[int, int], probe: Probe
) -> tuple[np.ndarray, np.ndarray]:
    """Return W (d x C) and b (C) at the minimum of the penalised loss."""
    from scipy.optimize import minimize

    n, split, decay = len(labels), shape[0] * shape[1], _decay(probe, len(labels))

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = parameters[:split].reshape(shape), parameters[split:]
        total, by_weight, by_bias = 0.0, decay * weight, np.zeros(shape[1])
        for block, rows in learn.blocks():
            logits = rows @ weight + bias
            logits -= logits.max(axis=1, keepdims=True)
            of_label = np.arange(len(rows)), labels[block]
            mass = np.exp(logits).sum(axis=1, keepdims=True)
            total += float(np.log(mass).sum() - logits[of_label].sum()) / n
            error = np.exp(logits) / mass
            error[of_label] -= 1
            by_weight = by_weight + rows.T @ error / n
            by_bias += error.sum(axis=0) / n
        total += decay / 2 * float((weight**2).sum())
        return total, np.concatenate([by_weight.ravel(), by_bias])

    minimum = minimize(
        loss,
        np.zeros(split + shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "maxfun": 3000, "ftol": 1e-13, "gtol": 1e-7},
    )
    if not minimum.success:
        raise InputError(
            f"the exact linear probe does not come to an end ({minimum.message}); raise the weight "
            f"decay, which is {decay}, or scale the features"
        )
    return minimum.x[:split].reshape(shape), minimum.x[split:]


def _right(
    judge: _Scaled, labels: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> dict[str, np.ndarray]:
    """Return for each row whether its class is first, and among the first five."""
    correct: dict[str, list[np.ndarray]] = {"top1": [], "top5": []}
    for block, rows in judge.blocks():
        logits = rows @ weight + bias
        correct["top1"].append(label_in_top_k(logits, labels[block], 1))
        correct["top5"].append(label_in_top_k(logits, labels[block], 5))
    return {key: np.concatenate(right) for key, right in correct.items()}
