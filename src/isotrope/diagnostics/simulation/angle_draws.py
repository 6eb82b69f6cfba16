"""Draws batches of angles from normal distributions, and averages a measure over the batches.

A batch is one anchor with a positive and k negatives. Only the cosines of the angles are used, so
an angle below 0 or above pi counts like the angle from 0 to pi with the same cosine.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.errors import InputError
from isotrope.diagnostics.simulation.angle_pairs import AnglePairs
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.objective import Objective

_MOST = 10_000_000  # negatives or batches; with more, a simulation takes days

# similarities that a thread holds at once, few enough for the second-level cache (1,000 x 127)
_CHUNK = 2**17
# anchors at once; an objective may return as many columns
_ANCHORS = 4096

Floats = NDArray[np.float64]
# n values, one for each anchor of a batch, and n booleans: whether each value counts
Measure = Callable[[Objective, Pairs], tuple[Tensor, Tensor]]
# called with the number of pairs of means that were done since the last call
Progress = Callable[[float], object]


@dataclass(frozen=True)
class Angles:
    """The distributions of the angles, in radians; the defaults are those of Li et al. (2024).

    Attributes:
        positive: Mean angles mu_pos to the positive, p values; by default 100 from pi/20 to pi/2.
        negative: Mean angles mu_neg to the negatives, q values; by default 100 from pi/20 to pi.
        spread_positive: Standard deviation of the angle to the positive.
        spread_negative: Standard deviation of the angles to the negatives.
        negatives: Number of negatives in a batch.
        batches: Number of batches drawn for every pair (mu_pos, mu_neg).
    """

    positive: Floats = field(default_factory=lambda: np.linspace(0.05, 0.5, 100) * np.pi)
    negative: Floats = field(default_factory=lambda: np.linspace(0.05, 1, 100) * np.pi)
    spread_positive: float = 0.05
    spread_negative: float = 0.10
    negatives: int = 127
    batches: int = 1000

    def __post_init__(self) -> None:
        """Turn the means into arrays and check the numbers.

        Raises:
            InputError: The means are not a list of finite numbers, a spread is negative, or there
                are too few or too many negatives or batches.
        """
        for name in ("positive", "negative"):
            means = np.asarray(getattr(self, name), dtype=np.float64)
            if means.ndim != 1 or not means.size or not np.isfinite(means).all():
                raise InputError(
                    f"give '{name}' as a list of finite angles; found {means.tolist()}"
                )
            object.__setattr__(self, name, means)
        if not (self.spread_positive >= 0 and self.spread_negative >= 0):
            raise InputError(
                "give standard deviations of 0 or more radians; found spread_positive="
                f"{self.spread_positive:g} and spread_negative={self.spread_negative:g}"
            )
        if self.negatives < 1 or self.batches < 2:
            raise InputError(
                "give at least 1 negative and 2 batches; found "
                f"negatives={self.negatives} and batches={self.batches}"
            )
        for name in ("negatives", "batches"):
            if getattr(self, name) > _MOST:
                raise InputError(f"give at most {_MOST:,} {name}; found {getattr(self, name):,}")


class _Sums:
    """For every pair of means: count, sum and sum of squares of the values so far."""

    def __init__(self, *shape: int) -> None:
        self.count, self.first, self.second = (np.zeros(shape) for _ in range(3))

    def add(self, where: tuple[int | slice, ...], value: Tensor, defined: Tensor) -> None:
        """Add the values of batches (the last axis of ``value``) to the cells at ``where``."""
        value = value.double().where(defined, 0.0)
        self.count[where] += defined.sum(dim=-1).numpy()
        self.first[where] += value.sum(dim=-1).numpy()
        self.second[where] += value.square().sum(dim=-1).numpy()

    def mean_and_error(self) -> tuple[Floats, Floats]:
        """Return mean and standard error of every cell; a cell without values has 1 and 0."""
        mean = np.where(self.count > 0, self.first / np.maximum(self.count, 1), 1.0)
        variance = np.maximum(self.second / np.maximum(self.count, 1) - mean**2, 0)
        error = np.sqrt(variance / np.maximum(self.count - 1, 1))
        return mean, np.where(self.count > 0, error, 0.0)


@dataclass(frozen=True)
class Draws:
    """How the batches of a simulation are drawn.

    Attributes:
        seed: Seed of the draws. The result does not depend on the number of threads.
        common: Whether to draw the angles once, and shift them to each pair (mu_pos, mu_neg) of
            mean angles. This is faster, but the errors of neighbouring values are similar, so a
            picture looks smooth. If False, each pair has its own draws, as in Li et al. (2024).
        progress: Function that is called with the number of pairs computed since the last call.

    Raises:
        InputError: The seed is negative.
    """

    seed: int = 0
    common: bool = True
    progress: Progress = lambda _: None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"give a seed of 0 or more; found {self.seed}")


USUAL = Draws()


def means(
    measure: Measure,
    objectives: Sequence[Objective],
    of_rows: Sequence[bool],
    angles: Angles,
    draws: Draws,
) -> tuple[Floats, Floats]:
    """Return the means and the standard errors of a measure: two arrays, objectives x p x q.

    Args:
        measure: Function that is averaged over the drawn batches.
        objectives: Objectives to measure. All objectives see the same draws.
        of_rows: One boolean for each objective. True: the measure needs only statistics of the
            negatives' similarities, such as the largest, and no weights. With ``draws.common``,
            these statistics are then computed only once for each mu_neg.
        angles: Distributions of the angles.
        draws: How the batches are drawn.
    """
    sums, p = _Sums(len(objectives), *map(len, (angles.positive, angles.negative))), angles.positive

    def shared() -> None:
        """Shift one set of batches to every pair of means."""
        for to_positive, others in _draws(angles, draws.seed):
            positive = torch.stack([_cosines(mu, angles.spread_positive, to_positive) for mu in p])
            for j, mu_neg in enumerate(angles.negative):
                negative = _cosines(mu_neg, angles.spread_negative, others)
                rows = AnglePairs(positive, negative, whole=False)
                for o, objective in enumerate(objectives):
                    if of_rows[o]:
                        of_means = (x.view(len(p), -1) for x in measure(objective, rows))
                        sums.add((o, slice(None), j), *of_means)
                        continue
                    for i, own in enumerate(positive):
                        sums.add((o, i, j), *measure(objective, AnglePairs(own, negative)))
                draws.progress(len(p) * len(to_positive) / angles.batches)

    def of_row(i: int) -> None:
        """Draw batches for every pair of means with the same mu_pos."""
        for j, mu_neg in enumerate(angles.negative):
            for to_positive, others in _draws(angles, draws.seed, i, j):
                positive = _cosines(p[i], angles.spread_positive, to_positive)
                negative = _cosines(mu_neg, angles.spread_negative, others)
                whole, rows = (AnglePairs(positive, negative, whole=x) for x in (True, False))
                for o, objective in enumerate(objectives):
                    sums.add((o, i, j), *measure(objective, rows if of_rows[o] else whole))

    if draws.common:
        shared()
        return sums.mean_and_error()
    threads = torch.get_num_threads()
    # each thread computes rows of the grid: one cell is too little work for torch's threads
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(of_row, range(len(p))):
                draws.progress(len(angles.negative))
    finally:
        torch.set_num_threads(threads)
    return sums.mean_and_error()


def _draws(angles: Angles, *seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield standard normal numbers in chunks: b for the positives, b x k for the negatives."""
    # in float32, whose rounding (1e-7) is far below the error of a mean over draws
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    random = torch.Generator().manual_seed(int(state))
    most = min(_ANCHORS, max(1, _CHUNK // angles.negatives))
    for start in range(0, angles.batches, most):
        b = min(most, angles.batches - start)
        yield torch.randn(b, generator=random), torch.randn(b, angles.negatives, generator=random)


def _cosines(mean: float, spread: float, normal: Tensor) -> Tensor:
    return (normal * spread).add_(mean).cos_()
