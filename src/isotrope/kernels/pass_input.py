"""Defines ``PassInput``: what ``one_pass`` and ``two_passes`` need to compute a loss."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.negative_mask import NegativeMask
from isotrope.kernels.statistics import Formula, Key, Known, Questions, StatisticsOnly, Unfused
from isotrope.kernels.tiles import Vectors

Gradients = list[Tensor | None]
"""The gradients of anchors, positives, additional negatives and the learnt tensor, in order."""

COPIED = 1 << 25  # largest size in bytes of columns that are copied once with unit length

# on processors other than Intel's, torch's exp2 takes a third of the time of exp. Rows are divided
# by tau and ln 2 separately: float32 stores ln 2 to 3e-9, but would round the product more
LN2 = math.log(2)
UNSHIFTED = 30.0  # largest 1 / tau with which e^{s/tau} needs no shift: e^30 N fits float32


class Evaluated(NamedTuple):
    """A formula's value and its derivatives."""

    value: Tensor  # one summand for each anchor, or one number
    by_positive: Tensor  # derivatives by the similarities of the positives, n values
    by: dict[Key, Tensor]  # derivatives by the statistic of each question, n values each
    by_learnt: Tensor | None  # derivative by ``PassInput.learnt``; None without ``learnt``


@dataclass(frozen=True)
class PassInput:
    """The input of a pass over the similarities that computes a loss and its gradients.

    Attributes:
        views: Embeddings that are not normalised.
        formula: Function that returns the loss from the statistics of one direction.
        questions: The statistics that the formula uses.
        coupling: How anchors depend on each other, as the objective declares it.
        mean: Whether the losses of the anchors are averaged instead of summed.
        learnt: Tensor in the formula that requires a gradient; None without one. If it is the
            temperature of the statistics, ``questions.learnt`` is the same tensor.
        half: Whether dot products are computed in bfloat16. ``half`` has no effect if the formula
            uses the hardest negative or mixed negatives.
    """

    views: Views
    formula: Formula
    questions: Questions
    coupling: Coupling
    mean: bool
    learnt: Tensor | None
    half: bool = False

    def columns(self, *raw: Tensor) -> list[Vectors]:
        """Return a :class:`Vectors` for each tensor; small tensors are copied with unit length."""
        copied = sum(x.numel() * x.element_size() for x in raw) <= COPIED
        half = self.half and not {"hardest", "mixed"} & self.questions.kinds
        return [Vectors(x, half=half, copied=copied) for x in raw]

    @property
    def temperature(self) -> float:
        """The temperature of all exponentials.

        Raises:
            Unfused: The statistics have more than one temperature.
        """
        asked = self.questions.temperatures.items()
        temperatures = {t for (kind, _), t in asked if kind != "hardest"}
        if len(temperatures) > 1:
            raise Unfused("the statistics have two temperatures")
        return temperatures.pop() if temperatures else 1.0

    @property
    def learns_temperature(self) -> bool:
        """Whether the temperature of the statistics requires a gradient."""
        return self.questions.learnt is not None

    def counts(self) -> dict[Against, Tensor]:
        """A dict from ``cross``, ``within`` or ``both`` to the anchors' numbers of negatives."""
        return {x: NegativeMask(self.views, x).counts() for x in self.questions.counts}

    @property
    def base(self) -> float:
        """The number ln 2 if exponentials are computed as powers of 2; otherwise 1."""
        return LN2 if {"logsumexp", "softplus"} & self.questions.kinds else 1.0

    def exponents(self, unit: Tensor) -> Tensor:
        """Divide unit rows by tau and ``base``; their products with columns are the exponents."""
        scaled = unit / self.temperature
        return scaled if self.base == 1 else scaled.div_(self.base)

    def evaluate(
        self, positive: Tensor, values: dict[Key, Tensor], counts: dict[Against, Tensor], rows: int
    ) -> Evaluated:
        """Evaluate and differentiate the formula for some anchors of a batch of ``rows`` anchors.

        Args:
            positive: Similarities of these anchors with their positives.
            values: A dict from each question to the statistic of these anchors.
            counts: Result of :meth:`counts`, for these anchors.
            rows: Number of anchors of the whole batch, over which a mean is taken.

        Raises:
            Unfused: The formula has no derivative, or uses statistics that were not recorded.
        """
        leaves = [x.detach().requires_grad_() for x in (positive, *values.values())]
        statistics = dict(zip(values, leaves[1:], strict=True))
        wanted = leaves if self.learnt is None else [*leaves, self.learnt]
        with torch.enable_grad():
            value = self.formula(
                StatisticsOnly(leaves[0], Known(self.questions, statistics, counts))
            )
        if not value.requires_grad:
            raise Unfused("the formula has no derivative")
        shared = rows if self.mean and value.ndim else 1
        each = torch.full_like(value, 1 / shared)
        by = torch.autograd.grad(value, wanted, each, allow_unused=True)
        filled = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, by, strict=True)]
        by_learnt = None if self.learnt is None else filled.pop()
        by_positive, *by_values = filled
        by_statistic = dict(zip(values, by_values, strict=True))
        return Evaluated(value.detach() / shared, by_positive, by_statistic, by_learnt)
