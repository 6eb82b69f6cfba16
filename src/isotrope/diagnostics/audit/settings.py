"""Measures the first step of a training for several settings, and recommends values.

Batches are drawn as in training. Four numbers are averaged over the batches: the gradient
dissipation (GD); the share of anchors with nothing left to learn (GD < 0.01); the hardest
negative's share of the push; and, among anchors with GD >= 0.01, the share that a small step
brings nearer to their positives (Li et al., 2024, Lemma 1). One setting is changed at a time.

- The recommended temperature or margin is the smallest value at which at most 30% of the anchors
  have nothing left to learn. Smaller values push hard negatives more, but fewer anchors learn.
- The recommended ratio is the smallest value at which a small step brings at least 95% of the
  anchors with GD >= 0.01 nearer to their positives.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from isotrope.core.hyper import hypers
from isotrope.data.text.batches import Batches
from isotrope.diagnostics.audit.rows import Embedded
from isotrope.diagnostics.observe import above_bound
from isotrope.paradigm.anatomy import MOST, summary
from isotrope.paradigm.forms import Symmetric
from isotrope.paradigm.objective import Objective

GRID: Mapping[str, Sequence[float]] = {
    "temperature": (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2),
    "margin": (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8),
    "ratio": (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0),
}
"""The values to measure, by setting."""

_DONE = 0.3  # largest share with nothing left to learn, as the threshold done_by_temperature
_ABOVE = 0.95
_ANCHORS = 4096  # anchors measured for each setting; a share is then known to 1 or 2 percent


@dataclass(frozen=True)
class Setting:
    """The numbers that an audit measures at the first training step, with one value of a setting.

    Attributes:
        name: Name of the setting, or ``batch size``.
        dissipation: Mean gradient dissipation (GD); None if no anchor has negatives.
        solved: Share of the anchors with GD < 0.01; they have nothing left to learn.
        hardest_share: Share of the push on an anchor that its hardest negative causes.
        above_bound: Share of the anchors with GD >= 0.01 that a small step brings nearer to their
            positives.
        own: Whether the audited objective has this value of the setting.
    """

    name: str
    value: float
    batch_size: int
    dissipation: float | None
    solved: float | None
    hardest_share: float | None
    above_bound: float | None
    own: bool


@dataclass(frozen=True)
class Recommendation:
    """A recommended value of a setting, with the reason in words and numbers."""

    name: str
    value: float
    reason: str


def settings_table(
    embedded: Embedded, objective: Objective, *, batch_size: int, seed: int = 0
) -> list[Setting]:
    """Measure the first step with up to four batch sizes, then with each value in ``GRID``."""
    most = min(len(embedded), MOST)
    size = min(batch_size, most)
    sizes = sorted({max(2, min(size * factor // 4, most)) for factor in (1, 4, 16, 64)})
    table = [
        Setting("batch size", s, s, own=s == size, **_first_step(embedded, objective, s, seed))
        for s in sizes
    ]
    base = objective.objective if isinstance(objective, Symmetric) else objective
    fields = hypers(type(base))
    for name, grid in GRID.items():
        own = base.hyperparameters().get(name)
        if name not in fields or not isinstance(own, (int, float)):
            continue
        for value in sorted({own, *(v for v in grid if fields[name].allows(v))}):
            changed: Objective = dataclasses.replace(base, **{name: value})
            if base is not objective:
                changed = Symmetric(objective=changed)
            numbers = _first_step(embedded, changed, size, seed)
            table.append(Setting(name, value, size, own=value == own, **numbers))
    return table


def recommend(table: Sequence[Setting]) -> list[Recommendation]:
    """Return a list of recommended values (see the module), with reasons.

    No temperature is recommended if the gradient dissipation does not depend on the temperature.
    """
    rules = {"temperature": _smallest_live, "margin": _smallest_live, "ratio": _ratio}
    found = []
    for name, rule in rules.items():
        rows = [row for row in table if row.name == name and row.solved is not None]
        if rows and (name != "temperature" or len({row.dissipation for row in rows}) > 1):
            found.append(rule(rows))
    return found


@torch.no_grad()
def _first_step(
    embedded: Embedded, objective: Objective, size: int, seed: int
) -> dict[str, float | None]:
    """Return the numbers of a :class:`Setting`, as means over batches of ``size`` rows."""
    drawn, measured = Batches(range(len(embedded)), size, seed), []
    for step in range(min(drawn.steps_per_epoch, max(1, _ANCHORS // size))):
        pairs = objective.compare(embedded.batch(torch.from_numpy(drawn.at(step))))
        terms = objective.components(pairs)
        numbers = {**summary(terms, pairs), "above_bound": above_bound(terms, pairs)}
        measured.append({**numbers, "solved": numbers["dead"]})
    numbers = {}
    for key in ("dissipation", "solved", "hardest_share", "above_bound"):
        values = [number for row in measured if (number := row[key]) is not None]
        numbers[key] = sum(values) / len(values) if values else None
    return numbers


def _smallest_live(rows: Sequence[Setting]) -> Recommendation:
    """Return the smallest value at which enough anchors learn."""
    live = [row for row in rows if _or_zero(row.solved) <= _DONE]
    best = live[0] if live else min(rows, key=lambda row: _or_zero(row.solved))
    reason = (
        f"{'smallest value at which at most' if live else 'at every value, more than'} {_DONE:.0%} "
        f"of the anchors have nothing left to learn at first (at {best.value:g}: "
        f"{_or_zero(best.solved):.0%})"
    )
    return Recommendation(best.name, best.value, reason)


def _ratio(rows: Sequence[Setting]) -> Recommendation:
    known = [row for row in rows if row.above_bound is not None] or list(rows)
    above = [row for row in known if _or_zero(row.above_bound) >= _ABOVE]
    best = above[0] if above else max(known, key=lambda row: _or_zero(row.above_bound))
    reason = (
        f"{'smallest value at which at least' if above else 'at every value, less than'} "
        f"{_ABOVE:.0%} of the anchors that learn come closer to their positives in a small step "
        f"(at {best.value:g}: {_or_zero(best.above_bound):.0%})"
    )
    return Recommendation("ratio", best.value, reason)


def _or_zero(number: float | None) -> float:
    return 0.0 if number is None else number
