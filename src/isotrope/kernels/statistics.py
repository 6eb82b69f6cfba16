"""Records the row statistics that a formula uses, and later supplies their computed values.

``record`` calls a formula with invented statistics of four rows, and records which statistics the
formula uses. ``Known`` later supplies the computed statistics of the batch. A formula with an
``if`` on values may then use a statistic that was not recorded. In this case ``Unfused`` is raised,
and the caller computes the loss in another way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.autograd import nodes
from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.mixed_negatives import MixingRule
from isotrope.kernels.pairs import Pairs, check_temperature

Formula = Callable[[Pairs], Tensor]


class Unfused(Exception):
    """Raised if a formula uses more than row statistics, or statistics that no pass computes."""


Kind = Literal["logsumexp", "softplus", "hardest", "mixed"]
Key = tuple[Kind, Against]


@dataclass
class Questions:
    """The row statistics that the formula of a loss uses: its questions.

    Attributes:
        temperatures: A dict from each question to its temperature. A question is a statistic and
            the views to compare with: ``cross`` (the other), ``within`` (the own) or ``both``.
        counts: Views (``cross``, ``within``, ``both``) in which negatives are counted.
        mixing: Rule of the mixture with which the formula compares each anchor; None without one.
        learnt: The temperature of all questions if it is a tensor with a gradient, otherwise None.
        lasting: Whether later calls ask the same questions: no temperature is a tensor, and no
            tensor in the formula requires a gradient.
        several: Whether the formula returns a value for each anchor, not one for the batch.
        gaps: Whether the formula uses positives and log-sum-exps only through ``Pairs.gap``.
    """

    temperatures: dict[Key, float] = field(default_factory=dict)
    counts: set[Against] = field(default_factory=set)
    mixing: MixingRule | None = None
    learnt: Tensor | None = None
    lasting: bool = True
    several: bool = True
    gaps: bool = True

    @property
    def against(self) -> set[Against]:
        """The views whose rows an anchor is compared with: ``cross``, ``within`` or ``both``."""
        return {against for _, against in self.temperatures}

    @property
    def kinds(self) -> set[Kind]:
        """The statistics that the formula uses."""
        return {kind for kind, _ in self.temperatures}


class StatisticsOnly(Pairs):
    """Replaces ``Pairs`` in a formula; a method that is not a statistic raises ``Unfused``.

    Args:
        positive: Similarities of the anchors with their positives, n values.
        answers: Object that supplies all statistics of the negatives.
    """

    backend = "rowblock"

    def __init__(self, positive: Tensor, answers: "Known | _Recorder") -> None:
        self._positive, self._answers = positive, answers

    @property
    def views(self) -> Views:
        raise Unfused("the formula asks for the embeddings")

    @property
    def positive(self) -> Tensor:
        return self._positive

    def mixed(self, mixing: MixingRule, temperature: float | Tensor) -> Tensor:
        return self._answers.mixed(mixing, temperature)

    def of(self, views: Views) -> Pairs:
        raise Unfused("the formula compares other views")

    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self._answers.value("logsumexp", temperature, against)

    def _softplus(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self._answers.value("softplus", temperature, against)

    def hardest(self, against: Against = "cross") -> Tensor:
        return self._answers.value("hardest", 1.0, against)

    def count(self, against: Against = "cross") -> Tensor:
        return self._answers.count(against)

    def similarity(self, against: Against = "cross") -> Tensor:
        raise Unfused("the formula asks for the matrix")

    negative = similarity


class Gaps(StatisticsOnly):
    """Supplies only gaps: an anchor's log-sum-exp over negatives minus positive / temperature."""

    def __init__(self, answers: "Known | _Recorder") -> None:
        self._answers = answers

    @property
    def positive(self) -> Tensor:
        raise Unfused("the formula uses more than gaps, and only gaps were recorded")

    def gap(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        return self._answers.value("logsumexp", temperature, against)

    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self.positive


@dataclass
class Known:
    """Supplies a formula with statistics that have been computed.

    Attributes:
        questions: The statistics that have been computed.
        values: A dict from each question to its statistic, n values.
        counts: A dict from ``cross``, ``within`` or ``both`` to each anchor's number of negatives.
    """

    questions: Questions
    values: dict[Key, Tensor]
    counts: dict[Against, Tensor]

    def value(self, kind: Kind, temperature: float | Tensor, against: Against) -> Tensor:
        if self.questions.temperatures.get((kind, against)) != _plain(temperature):
            raise Unfused("the formula uses a statistic that was not recorded")
        return self.values[kind, against]

    def mixed(self, mixing: MixingRule, temperature: float | Tensor) -> Tensor:
        if mixing != self.questions.mixing:
            raise Unfused("the formula uses a mixture that was not recorded")
        return self.value("mixed", temperature, "cross")

    def count(self, against: Against) -> Tensor:
        if against not in self.counts:
            raise Unfused("the formula uses a number of negatives that was not recorded")
        return self.counts[against]


class _Recorder:
    """Records the questions and returns invented answers."""

    def __init__(self, positive: Tensor, learnt: Tensor | None) -> None:
        self.questions, self.like = Questions(), positive
        self.learnt, self.at_learnt = learnt, set[bool]()
        self.handed = [positive]

    def value(self, kind: Kind, temperature: float | Tensor, against: Against) -> Tensor:
        questions, plain = self.questions, _plain(temperature)
        if isinstance(temperature, Tensor):
            questions.lasting = False
            if temperature.requires_grad and temperature is not self.learnt:
                raise Unfused("the temperature is computed from a tensor that requires a gradient")
        if kind != "hardest":
            self.at_learnt.add(temperature is self.learnt)
            questions.learnt = self.learnt if True in self.at_learnt else None
        recorded = questions.temperatures.setdefault((kind, against), plain)
        if recorded != plain or len(self.at_learnt) > 1:
            raise Unfused("the statistics have two temperatures")
        return self._handed([0.1, 0.2, -0.1, 0.4])

    def _handed(self, made_up: list[float]) -> Tensor:
        self.handed.append(torch.tensor(made_up).to(self.like))
        return self.handed[-1]

    def mixed(self, mixing: MixingRule, temperature: float | Tensor) -> Tensor:
        if self.questions.mixing not in (None, mixing):
            raise Unfused("the formula uses two mixtures")
        self.questions.mixing = mixing
        return self.value("mixed", temperature, "cross")

    def count(self, against: Against) -> Tensor:
        self.questions.counts.add(against)
        return self._handed([7.0, 5.0, 8.0, 6.0])


class _Recorded(StatisticsOnly):
    """Records whether a formula uses more than gaps."""

    _answers: _Recorder

    @property
    def positive(self) -> Tensor:
        self._answers.questions.gaps = False
        return self._positive

    def gap(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        lse = self._answers.value("logsumexp", temperature, against)
        return lse - self._positive / temperature

    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor:
        self._answers.questions.gaps = False
        return super()._logsumexp(temperature, against)


def _plain(temperature: float | Tensor) -> float:
    check_temperature(temperature)
    return float(temperature.detach() if isinstance(temperature, Tensor) else temperature)


def check_values(values: Tensor, rows: int) -> Tensor:
    """Return ``values`` if they are a scalar or ``rows`` numbers; otherwise raise an error."""
    if not isinstance(values, Tensor) or not values.is_floating_point():
        found = f"{values.dtype} numbers" if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"return a tensor of floating-point numbers from the formula; found {found}"
        )
    if values.shape not in ((), (rows,)):
        raise ValueError(
            f"return one number from the formula, or one for each anchor; for {rows} anchors, it "
            f"returned the shape {tuple(values.shape)}"
        )
    return values


# results by formula, because recording costs as much as a batch of 64; a text says why one failed
_REMEMBERED: dict[tuple[Formula, torch.dtype], Questions | str] = {}
_MOST = 64


def record(
    formula: Formula,
    dtype: torch.dtype,
    learnt_of: Callable[[], Tensor | None] = lambda: None,
    *,
    device: torch.device | None = None,
) -> Questions:
    """Find out which row statistics the formula of a loss uses.

    Args:
        formula: Formula of one direction.
        dtype: Dtype of the statistics.
        learnt_of: Function that returns the tensor whose gradient the caller needs, or None.
        device: Device of the invented statistics, which meet the tensors of the formula.

    Raises:
        Unfused: The formula needs more than statistics, or another tensor requires a gradient.
        ValueError: The formula returns neither one number nor one for each anchor.
    """
    if (remembered := _REMEMBERED.get((formula, dtype))) is not None:
        if isinstance(remembered, str):
            raise Unfused(remembered)
        return remembered
    learnt = learnt_of()
    # the record lasts, but an inference tensor has no version and never gets a gradient
    with torch.inference_mode(mode=False):
        positive = torch.tensor([0.3, 0.5, -0.2, 0.1]).to(device=device, dtype=dtype)
    recorder = _Recorder(positive, learnt)
    questions = recorder.questions
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            value = check_values(formula(_Recorded(positive, recorder)), len(positive))
        if any(x._version for x in recorder.handed):
            raise Unfused("the formula overwrites a statistic")
    except Unfused as why_not:
        if questions.lasting:
            _remember(formula, dtype, str(why_not))
        raise
    questions.several = value.ndim > 0
    if value.requires_grad:
        questions.lasting = False
        if _leaves(value, learnt) - {learnt}:
            raise Unfused("the formula has a second tensor that requires a gradient")
    if questions.lasting:
        _remember(formula, dtype, questions)
    return questions


def _remember(formula: Formula, dtype: torch.dtype, recorded: Questions | str) -> None:
    if len(_REMEMBERED) >= _MOST:
        _REMEMBERED.clear()
    _REMEMBERED[formula, dtype] = recorded


def _leaves(value: Tensor, learnt: Tensor | None) -> set[Tensor | None]:
    """The leaf tensors that a gradient of ``value`` would reach other than through ``learnt``."""
    if value.grad_fn is None:
        return {value}
    return {node.variable for node in nodes(value, learnt) if hasattr(node, "variable")}
