"""Numbers of a training that the rules of several verdicts share."""

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from isotrope.diagnostics.evidence import Row, RunEvidence
from isotrope.diagnostics.findings import Evidence
from isotrope.diagnostics.metrics import MEASURED
from isotrope.diagnostics.verdict import crosses, final_value
from isotrope.paradigm.compose import Paradigm, pushes
from isotrope.paradigm.forms import Derived
from isotrope.paradigm.graph import number_of
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Component, Margin, Softmax

_IDEAL = 64  # anchors of the ideal batch: each equals its positive and is orthogonal to all others
_FALLS = 0.9  # the loss falls if it ends below this share of its start
_USUAL = 62  # negatives of an anchor in the batches of 32 pairs from which thresholds were chosen

UNREAD = {"unseen", "targets", "broken"}
"""Kinds of losses for which the pairs, or their pull and push, are unknown."""


def further_evidence(
    case: RunEvidence, *columns: str, **numbers: float | None
) -> tuple[Evidence, ...]:
    """Return ``numbers`` and the final values of ``columns`` as evidence that decides nothing."""
    own = [Evidence(name, number) for name, number in numbers.items() if number is not None]
    return (*own, *filter(None, (final_value(case, column) for column in columns)))


def measured_steps(case: RunEvidence) -> int:
    """Return the number of logged steps with a measurement of the embeddings or the gradient."""
    return sum(any(row.get(name) is not None for name in MEASURED) for row in case.rows)


def gain_in_score(case: RunEvidence) -> float | None:
    """Return the highest dev score minus the first; None without two scores."""
    if len(case.scores) < 2:
        return None
    (step, first), highest = case.scores[0], max(score for _, score in case.scores)
    # a model that was not scored before training may have gained before its first score
    return None if step > 0 and crosses("gain", highest - first) else highest - first


def loss_falls(case: RunEvidence) -> bool:
    """Return whether the loss at the end is clearly below the first; both may be negative."""
    first, end = case.first("loss"), case.end("loss")
    return first is not None and end is not None and end < first - (1 - _FALLS) * abs(first)


def dead_share_after_start(case: RunEvidence) -> float | None:
    """Return the median share of dead anchors after the first fifth of the log; None if unknown."""
    dead = case.series("dead")
    return statistics.median(dead[len(dead) // 5 :]) if dead else None


def collapsed_at_start(case: RunEvidence) -> bool:
    """Return whether all embeddings were equal before the first update."""
    by_uniformity = crosses("collapse_uniformity", case.first("uniformity"))
    return by_uniformity or crosses("collapse_std", case.first("std"))


def has_copies(*times: Callable[[str], float | None]) -> bool:
    """Return whether most anchors have a negative that looks like a positive at all ``times``.

    Each of ``times`` is a method that returns a column's value, such as ``RunEvidence.end``.
    """
    return all(crosses("copies_apart", time("false_negatives")) for time in times)


def separation(row: Row | None) -> float | None:
    """Return how much nearer positives are than negatives; None if unknown.

    This is how much larger the mean angle to negatives is than that to positives, in units of the
    larger standard deviation. For a loss of labelled pairs, the result is ``label_gap``.
    """
    if row is None:
        return None
    if row.get("label_gap") is not None:
        return row["label_gap"]
    near, far = row.get("positive_mean"), row.get("negative_mean")
    deviation = max(row.get("positive_std") or 0.0, row.get("negative_std") or 0.0)
    return None if near is None or far is None or deviation == 0 else (far - near) / deviation


def usual_change(values: Sequence[float]) -> float:
    """Return the median difference of two successive values; 0 without one."""
    return statistics.median([abs(b - a) for a, b in itertools.pairwise(values)] or [0.0])


def negative_count(case: RunEvidence) -> int | None:
    """Return the mean number of negatives of an anchor; None if it is unknown.

    With a queue, the result is the length of the queue. Otherwise it is the number in the log, at
    steps with a push, because a trainer may alternate losses. If the log has no number, the result
    is the number of other rows in a batch.
    """
    queue = _method_option(case, "queue")
    if queue is not None:
        return int(queue)
    size, objective = case.batch_size, case.objective
    if objective is not None and not objective.has_terms:
        return None
    pushing_rows = [row for row in case.rows if row.get("hardest_share") is not None]
    if counted := replace(case, rows=pushing_rows).end("negatives"):
        return round(counted)
    both = objective is not None and objective.terms(*_ideal(4)).against == "both"
    return None if size is None else (1 + both) * (size - 1)


def hardest_over_even(case: RunEvidence) -> float | None:
    """Return the hardest negative's share of the push, divided by an even share 1/k.

    Here k is the number of negatives. If k is 1 or unknown, the result is None. The hardest of few
    negatives is less hard than the hardest of many. If k < 62, the quotient is therefore raised to
    the power E(62) / E(k), where E(k) is the expected maximum of k standard normal numbers.
    """
    share, count = case.end("hardest_share"), negative_count(case)
    if share is None or count is None or count < 2 or share <= 0:
        return None
    return float((share * count) ** _power(count))


def as_measured(case: RunEvidence, even: Evidence) -> Evidence:
    """Return the result of ``hardest_over_even``, and its limit, for k negatives instead of 62."""
    count = negative_count(case) or _USUAL
    root, unit = 1 / _power(count), f"{even.unit} among {count:,} negatives"
    limit = None if even.threshold is None else float(f"{even.threshold**root:.3g}")
    return replace(even, number=even.number**root, threshold=limit, unit=unit)


def _power(count: int) -> float:
    return max(1.0, _largest(_USUAL) / _largest(count))


def _largest(count: int) -> float:
    """Return the expected largest of ``count`` standard normal numbers (Blom's approximation)."""
    return statistics.NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def rank_limit(case: RunEvidence) -> int | None:
    """Return the largest effective rank that n rows in d dimensions can have, min(n - 1, d).

    If the Doctor measured a sample of the batch, the limit is that of the sample.
    """
    rows = None if case.batch_size is None else case.batch_size - 1
    dimension = _method_option(case, "dimension")
    if dimension is None:
        dimension = (case.probe or {}).get("dimension")
    limits = (rows, dimension, case.settings.get("rank-limit"))
    return min((int(limit) for limit in limits if limit is not None), default=None)


def _method_option(case: RunEvidence, name: str) -> float | None:
    """Return an option of a training's method on images; None for other trainings."""
    value: float | None = (case.details.get("method") or {}).get("options", {}).get(name)
    return value


def planned(case: RunEvidence, setting: str) -> float | None:
    """Return a number among the settings, set by the user or chosen by ``isotrope train``."""
    value = case.settings.get(setting)
    if value is None:
        value = (case.details.get("plan") or {}).get(setting.replace("-", "_"))
    return None if value is None else float(value)


def cosines_per_score(case: RunEvidence) -> float:
    """Return the number of cosines that a score adds up: 1, or more with late interaction."""
    return float(case.settings.get("summed") or 1)


def compares_cosines(case: RunEvidence) -> bool:
    """Return whether a loss compares cosines, and not dot products or distances."""
    radial = case.end("radial")  # None for distances, 0 if all rows have the same length
    return radial == 0 or (radial is None and not case.losses) or cosines_per_score(case) > 1


def is_contrastive(case: RunEvidence) -> bool:
    """Return whether the first loss of the training is a contrastive loss of the user's trainer."""
    name = next((str(loss["name"]) for loss in case.losses if loss.get("name")), "")
    return bool(case.words.contrastive_name) and case.words.contrastive_name in name


def loss_temperature(case: RunEvidence) -> float | None:
    """Return the temperature of the training's loss; None if it is unknown.

    This is the temperature of the objective, else the first one in ``case.losses``, else the
    measured one.
    """
    if (tau := objective_temperature(case)) is not None:
        return tau
    temperatures = [loss["temperature"] for loss in case.losses if loss.get("temperature")]
    return float(temperatures[0]) if temperatures else case.end("temperature")


def objective_temperature(case: RunEvidence) -> float | None:
    """Return the temperature of the objective's weights; None if the weights are not a softmax."""
    weight = deciding_part(case, "weight")
    known = isinstance(weight, Softmax | Objective)
    return number_of(getattr(weight, "temperature", None)) if known else None


def objective_margin(case: RunEvidence) -> float | None:
    """Return the margin at which the objective's gradient stops; None if it has no margin."""
    stop = deciding_part(case, "dissipation")
    return getattr(stop, "margin", None) if isinstance(stop, Margin | Objective) else None


def default_margin(case: RunEvidence) -> float:
    """Return the default of :func:`objective_margin`."""
    return float(getattr(type(deciding_part(case, "dissipation")), "margin", Margin.margin))


def deciding_part(case: RunEvidence, part: str) -> Component | Objective | None:
    """Return the component that replaces ``part`` of the gradient, or else the objective."""
    objective = case.objective
    while isinstance(objective, Derived):
        objective = objective.objective
    if not isinstance(objective, Paradigm):
        return objective
    component: Component | None = getattr(objective, part)
    return component or objective.parent


def pushes_apart(objective: Objective) -> bool:
    """Return whether an objective pushes embeddings apart; True if its components are unknown."""
    return not objective.has_terms or pushes(objective)


def dissipation_on_ideal(objective: Objective) -> float:
    """Return the mean GD if anchors equal their positives and all other pairs are orthogonal."""
    return float(objective.terms(*_ideal(_IDEAL)).dissipation.mean())


def _ideal(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return n anchors and their positives: equal pairs, orthogonal to all others."""
    return torch.eye(n), torch.eye(n)
