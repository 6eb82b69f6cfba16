"""The record of a verdict: its meaning, the thresholds that decide it, and the change to make.

:mod:`isotrope.diagnostics.verdicts` has one record for each verdict. Diagnoses, messages, model
cards and the pages in docs/diagnoses are written from these records. A simple verdict is given if
its thresholds are crossed. Any other verdict has a function ``when``, which decides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Evidence, Finding
from isotrope.diagnostics.metric import LOOP
from isotrope.diagnostics.metrics import METRICS

Text = str | Callable[[RunEvidence], str]
"""A text, or a function that writes it for a given training."""

Number = Callable[[RunEvidence], float | None]

THRESHOLDS: "dict[str, Threshold]" = {}
"""Every threshold by its name. The verdicts declare the thresholds, and so fill this record."""

_METRICS = {metric.column: metric for metric in METRICS}
_ROUNDING = 1e-3  # share of a limit; float32 measures a temperature to about 4 digits


@dataclass(frozen=True)
class Threshold:
    """A limit that decides whether a verdict is given.

    A number that is equal to the limit, except for rounding (0.1%), is healthy.

    Attributes:
        label: What is measured, in the few words that a diagnosis prints.
        measured: What is measured, in full, for the documentation.
        source: Origin of the limit: a figure of a paper, or how the limit was chosen.
        above: Largest healthy number; None if large numbers are no fault.
        below: Smallest healthy number; None if small numbers are no fault.
        measure: Function that returns the number; needed if the verdict has no ``when``.
        optional: Whether the verdict can be given if the number was not measured.
    """

    name: str
    label: str
    measured: str
    source: str
    above: float | None = None
    below: float | None = None
    unit: str = ""
    measure: Number | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        assert (self.above is None) != (self.below is None), self.name
        assert self.name not in THRESHOLDS, f"two thresholds are called {self.name}"
        THRESHOLDS[self.name] = self

    @property
    def side(self) -> Literal["above", "below"]:
        """The side of the value on which a measured number is a fault."""
        return "below" if self.above is None else "above"

    @property
    def value(self) -> float:
        """The limit itself, ``above`` or ``below``."""
        value = self.below if self.above is None else self.above
        assert value is not None
        return value

    def crossed_by(self, number: float | None) -> bool:
        """Return whether a number is beyond the limit; False for None (not measured)."""
        if number is None:
            return False
        beyond = number - self.value if self.side == "above" else self.value - number
        return beyond > _ROUNDING * abs(self.value)


def crosses(name: str, number: float | None) -> bool:
    """Return whether a number is beyond the limit of the threshold ``name``; False for None."""
    return THRESHOLDS[name].crossed_by(number)


def compared(name: str, number: float) -> Evidence:
    """Return a number as ``Evidence``, with the limit of the threshold ``name``."""
    threshold = THRESHOLDS[name]
    return Evidence(name, number, threshold.value, threshold.unit, threshold.side, threshold.label)


def final_value(case: RunEvidence, column: str) -> Evidence | None:
    """Return the final value of a column in the words of its metric; None if it is unknown."""
    metric, value = _METRICS[column], case.end(column)
    words = "" if metric.measured_in == LOOP else metric.definition.partition(";")[0]
    return None if value is None else Evidence(column, value, unit=metric.unit, label=words)


@dataclass(frozen=True)
class Change:
    """The change of a setting that a verdict proposes.

    Attributes:
        train: Flags of ``isotrope train``. ``Found.change`` replaces them, unless it is empty.
        loop: The same change in the words of another trainer. If None, ``train`` is shown.
    """

    train: Text = ""
    loop: Text | None = None

    def worded(self, case: RunEvidence, train: Text = "") -> str:
        """Return the change in the words of the trainer that was used."""
        text: Text = train or self.train
        if case.settings.get("trainer") is not None and self.loop is not None:
            text = self.loop
        return text if isinstance(text, str) else text(case)


@dataclass(frozen=True)
class Found:
    """The value that a verdict's function ``when`` returns if the verdict applies.

    Attributes:
        evidence: Numbers that a finding shows. The numbers that decide the verdict are first.
        detail: One or two sentences on the fault; if empty, the detail of the verdict is shown.
        change: Flags of ``isotrope train``; if empty, the change of the verdict is shown.
        decided_by: Name of the threshold whose source is cited; if empty, that of ``evidence[0]``.
    """

    evidence: tuple[Evidence, ...]
    detail: str = ""
    change: str = ""
    decided_by: str = ""


When = Callable[[RunEvidence], Found | None]


@dataclass(frozen=True)
class Verdict:
    """One verdict of the Doctor.

    Attributes:
        slug: Name that is printed, for example ``collapsed``.
        title: The verdict in one line.
        meaning: The fault in a sentence or two, without a formula.
        thresholds: Thresholds that decide whether the verdict is given.
        detail: Sentences on the fault for a finding; if empty, the finding shows ``meaning``.
        explains: Verdicts that follow from this verdict; they are not reported beside it.
        texts_only: Whether trainings on images never get the verdict.
        any_of: Whether one crossed threshold is enough; otherwise all must be crossed.
        unless: Functions of a ``RunEvidence``. If one returns true, the verdict is not given.
        shows: More numbers in a finding: columns (their final values are shown) or functions.
        when: Function that decides instead of ``Threshold.measure``, ``any_of`` and ``unless``.
        before_all: A second function like ``when``, called before all other verdicts are tried.
        only_if_healthy: Whether this verdict is tried only if no other verdict is given.
        is_fault: Whether the verdict is a fault; False for a property of a healthy training.
    """

    slug: str
    title: str
    meaning: str = ""
    thresholds: tuple[Threshold, ...] = ()
    change: Change = Change()
    detail: Text = ""
    explains: tuple[str, ...] = ()
    texts_only: bool = False
    any_of: bool = False
    unless: tuple[Callable[[RunEvidence], bool], ...] = ()
    shows: tuple[str | Callable[[RunEvidence], Evidence | None], ...] = ()
    when: When | None = None
    before_all: When | None = None
    only_if_healthy: bool = False
    is_fault: bool = True

    def finding(self, case: RunEvidence, when: When | None = None) -> Finding | None:
        """Return the finding of this verdict, or None if the verdict is not given."""
        found = (when or self.when or self._by_thresholds)(case)
        if found is None:
            return None
        detail = found.detail or self.detail or self.meaning
        return Finding(
            self.slug,
            found.evidence,
            THRESHOLDS[found.decided_by or found.evidence[0].name].source,
            self.change.worded(case, found.change),
            detail if isinstance(detail, str) else detail(case),
            self.title,
        )

    def _by_thresholds(self, case: RunEvidence) -> Found | None:
        """Return the result of a verdict without ``when``."""
        if self.texts_only and case.kind == "images":
            return None
        numbers = [(t, t.measure(case)) for t in self.thresholds if t.measure is not None]
        needed = [(t, n) for t, n in numbers if n is not None or not t.optional]
        evidence = [compared(t.name, n) for t, n in needed if n is not None and t.crossed_by(n)]
        enough = 1 if self.any_of else max(1, len(needed))
        if len(evidence) < enough or any(acquits(case) for acquits in self.unless):
            return None
        more = (final_value(case, s) if isinstance(s, str) else s(case) for s in self.shows)
        return Found((*evidence, *filter(None, more)))
