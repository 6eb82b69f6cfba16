"""Judges whether training helped, in a sentence for the run's output, the Doctor and the report.

The judgement compares the scores of single examples of the dev set: cosines of pairs, reciprocal
ranks of queries, or 1 and 0 for pictures that are classified right and wrong. A training stores
these scores of the model before training, of the best step and of the last step in ``dev.npz``.
"""

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from isotrope.core.documents import open_arrays
from isotrope.core.errors import InputError, place
from isotrope.core.files import atomic_replace
from isotrope.core.run_folder import RunFolder
from isotrope.measures.bootstrap import (
    LEVEL,
    RESAMPLES,
    bootstrap_mean,
    bootstrap_spearman,
    holm,
    interval,
    p_value,
    resampled,
    shown_p,
)

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error, zipfile.BadZipFile)

_FOR_ERRORS = 400  # resamples for a standard error that is right to 4%

Outcome = Literal["improved", "within noise", "worse", "not known"]
Saved = Literal["best", "trained", "original", "last"]


@dataclass(frozen=True)
class DevEvaluation:
    """One evaluation on the dev set.

    Attributes:
        value: The score, out of 100.
        items: Score of each of the n examples.
        gold: Human scores of the n pairs, or None. With human scores, ``value`` is 100 times their
            Spearman correlation with ``items``; without, 100 times the mean of ``items``.
    """

    value: float
    items: np.ndarray
    gold: np.ndarray | None = None


@dataclass
class DevHistory:
    """The stored evaluations of a run: the first, the best and the newest.

    Attributes:
        saved: Step whose model is saved. ``best``: the step with the best score. ``last``: the last
            step. ``trained``: the best step. If this is the first step, the last step is saved,
            unless its score is lower by over two standard errors. ``original``: the first step,
            unless the score of another step is higher by over two standard errors.
        scores: A dict from step to score, for all evaluations.
        evaluations: A dict from step to evaluation: the first, the best and the newest.
        ended: Whether the newest evaluation is the last of the run. Until then, ``trained`` chooses
            the best step, because a later model may be worse.
    """

    name: str
    saved: Saved = "best"
    scores: dict[int, float] = field(default_factory=dict)
    evaluations: dict[int, DevEvaluation] = field(default_factory=dict)
    ended: bool = True

    def add(self, step: int, evaluation: DevEvaluation) -> None:
        """Store an evaluation; the first, the best and the newest of all evaluations are kept."""
        self.scores[step] = evaluation.value
        self.evaluations = {**self.evaluations, step: evaluation}
        wanted = {min(self.scores), self.highest, self.best, step}
        self.evaluations = {s: e for s, e in self.evaluations.items() if s in wanted}

    @property
    def highest(self) -> int:
        """The earliest step with the best score."""
        return max(self.scores, key=lambda step: (self.scores[step], -step))

    @property
    def best(self) -> int:
        """The step with the best score, or the step that ``trained`` or ``original`` chooses."""
        best, first, last = self.highest, min(self.scores), max(self.scores)
        if self.saved == "original" and first in self.evaluations:
            return max(sorted(self.evaluations), key=lambda step: self._gain(step, -2))
        rule = self.saved == "trained" and self.ended and {first, last} <= {*self.evaluations}
        return last if rule and best == first and self._gain(last, 2) >= 0 else best

    def _gain(self, step: int, errors: int) -> float:
        """Return how much a score is higher than the first, plus so many standard errors."""
        used = [self.evaluations[min(self.scores)], self.evaluations[step]]
        before, after = _draws(used, _FOR_ERRORS)
        return float(used[1].value - used[0].value + errors * (after - before).std())

    def save(self, path: Path) -> None:
        """Write the file of a run folder atomically."""
        steps = sorted(self.evaluations)
        evaluations = [self.evaluations[step] for step in steps]
        arrays: dict[str, Any] = {
            "name": np.array(self.name),
            "saved": np.array(self.saved),
            "ended": np.array(self.ended),
            "steps": np.array(steps),
            "values": np.array([evaluation.value for evaluation in evaluations]),
            "scores": np.array([[*self.scores], [*self.scores.values()]], dtype=np.float64),
            "items": np.stack([evaluation.items for evaluation in evaluations]),
        }
        if evaluations[0].gold is not None:
            arrays["gold"] = evaluations[0].gold
        with atomic_replace(path) as temporary, temporary.open("wb") as handle:
            np.savez_compressed(handle, **arrays)

    @classmethod
    def load(cls, path: Path) -> "DevHistory":
        """Read what :meth:`save` wrote."""
        try:
            with open_arrays(path) as archive:
                arrays = {key: archive[key] for key in archive}
            gold, items = arrays.get("gold"), arrays["items"]
            if (
                items.ndim != 2
                or not items.size
                or (gold is not None and len(gold) != len(items.T))
            ):
                raise ValueError("its arrays do not fit")
            rows = zip(arrays["steps"], arrays["values"], items, strict=True)
            evaluations = {int(step): DevEvaluation(float(v), row, gold) for step, v, row in rows}
            known = {step: evaluation.value for step, evaluation in evaluations.items()}
            if "scores" in arrays:
                known = {int(step): float(value) for step, value in arrays["scores"].T}
        except _UNREADABLE as error:
            raise InputError(
                f"remove {path}: it cannot be read ({type(error).__name__}: {error})"
            ) from error
        stored = str(arrays.get("saved"))
        saved: Saved = next((kind for kind in get_args(Saved) if kind == stored), "best")
        name = str(arrays.get("name"))
        return cls(name, saved, known, evaluations, bool(arrays.get("ended", True)))


EASY = 90.0
"""A score before training from which few held-out texts show no gain."""


@dataclass(frozen=True)
class Judgement:
    """Whether training helped.

    Attributes:
        outcome: ``improved``: the saved model is better than the start, by more than noise.
            ``worse``: the saved model is no better, and the last step is worse, by more than
            noise. ``not known``: only the start was scored. ``within noise``: all other cases.
        sentence: The judgement with its numbers, as a sentence.
        numbers: A dict from ``start``, ``saved`` and ``last`` to dicts of ``step`` and ``score``.
            ``saved`` and ``last`` also have the ``difference`` to ``start``, its bounds ``low`` and
            ``high``, its p-value ``p``, and the number ``changed`` of examples with another score.
    """

    outcome: Outcome
    sentence: str
    numbers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def read(cls, record: object) -> "Judgement":
        """Return the judgement in ``record``, which ``dataclasses.asdict`` has written."""
        fields = record if isinstance(record, Mapping) else {}
        sentence, numbers = fields.get("sentence"), fields.get("numbers")
        stated = fields.get("outcome")
        outcome: Outcome | None = next((word for word in get_args(Outcome) if word == stated), None)
        if outcome is None or not isinstance(sentence, str) or not isinstance(numbers, Mapping):
            raise InputError(
                "restore this file from a backup: its judgement lacks the outcome, the sentence or "
                "the numbers"
            )
        return cls(outcome, sentence, numbers)


def judge(history: DevHistory) -> Judgement:
    """Judge by the paired bootstrap over the examples of the dev set.

    The saved model and the last step are compared with the model before training. A difference is
    more than noise if its p-value is at most 0.05. Holm's method corrects both p-values.

    The best step was chosen on the same dev set, so its score is slightly too high. The interval
    includes the effect of the choice of examples, but not of the step or the seed. To compare on
    other data, use ``isotrope evaluate --compare``.
    """
    steps = sorted(history.evaluations)
    start, last = steps[0], steps[-1]
    saved = last if history.saved == "last" else history.best
    numbers = {"start": {"step": start, "score": history.evaluations[start].value}}
    if last == start:
        words = f"{history.name} was {history.evaluations[start].value:.2f} at step {start}"
        return Judgement("not known", f"{words}, and no later step has been scored yet", numbers)
    others = sorted({saved, last} - {start})
    differences = _differences(history, start, others)
    for what, step in (("saved", saved), ("last", last)):
        score = history.evaluations[step].value
        numbers[what] = {"step": step, "score": score, **differences.get(step, {})}
    return _in_words(history, numbers)


def judgement_of(folder: Path, details: Mapping[str, Any] | None) -> Judgement | None:
    """Return the judgement of a run folder; None if it has neither a judgement nor dev.npz.

    Args:
        folder: The folder of the run.
        details: ``details`` of the run's Result. None: judge by the evaluations so far.
    """
    if details is not None and details.get("judgement") is not None:
        try:
            return Judgement.read(details["judgement"])
        except InputError as error:
            raise InputError(f"{place(RunFolder(folder).result)}: {error.problem}") from error
    path = RunFolder(folder).dev
    return judge(DevHistory.load(path)) if path.is_file() else None


def _differences(history: DevHistory, start: int, others: list[int]) -> dict[int, dict[str, float]]:
    """Return for each step of ``others`` the difference of its score from the start's score."""
    used = [history.evaluations[step] for step in (start, *others)]
    rows, draws = [evaluation.items for evaluation in used], _draws(used, RESAMPLES)
    differences = {
        step: {"difference": evaluation.value - used[0].value, **interval(row - draws[0])}
        for step, evaluation, row in zip(others, used[1:], draws[1:], strict=True)
    }
    changed = [int((scores != rows[0]).sum()) for scores in rows[1:]]
    values = [p_value(row - draws[0], n) for row, n in zip(draws[1:], changed, strict=True)]
    for step, p, n in zip(others, holm(values), changed, strict=True):
        differences[step] |= {"p": p, "changed": n}
    return differences


def _draws(evaluations: list[DevEvaluation], resamples: int) -> np.ndarray:
    """Return the scores of m evaluations of the same examples in b resamples, m x b."""
    gold, rows = evaluations[0].gold, [np.asarray(e.items, np.float64) for e in evaluations]
    blocks = resampled(np.random.default_rng(zlib.crc32(b"dev")), len(rows[0]), resamples)
    if gold is None:
        return 100 * bootstrap_mean(np.stack(rows), blocks)
    return 100 * bootstrap_spearman(rows, gold, blocks)


def _measurable(number: Mapping[str, float], sign: int) -> bool:
    """Whether a difference is more than noise and has this sign."""
    return number.get("p", 1.0) <= 1 - LEVEL and sign * number["difference"] > 0


def _in_words(history: DevHistory, numbers: dict[str, dict[str, float]]) -> Judgement:
    """Return the outcome with a sentence that has its numbers."""
    start, saved, last = (numbers[what] for what in ("start", "saved", "last"))
    began, fell = f"{start['score']:.2f}", _measurable(last, -1)
    chosen = history.saved != "last" and len(history.scores) > 2
    how = "this step was saved" + (", and the same dev set chose it" if chosen else "")
    if history.saved == "trained" and saved["step"] == last["step"]:  # a second model may follow
        how = "the last step"
    saved_score = _score_text(saved, how)
    last_score = _score_text(last, "the last step, which was not saved")
    if _measurable(saved, 1):
        rest = _unsaved_best(history, saved)
        if fell:
            rest = f"; the end was worse than the start: {last_score}"
        sentence = (
            f"training improved the model: {history.name} rose from {began} to {saved_score}{rest}"
        )
        return Judgement("improved", sentence, numbers)
    outcome: Outcome = "worse" if fell else "within noise"
    judged_score, rest = saved_score, _unsaved_best(history, saved)
    if saved["step"] == start["step"]:
        judged_score, rest = last_score, "; the saved model is the one before training"
    elif fell and saved["step"] != last["step"]:
        judged_score, rest = last_score, f"; the saved model is another: {saved_score}"
    lead = "training made the model worse" if fell else outcome
    if outcome == "within noise" and start["score"] >= EASY and history.name.startswith("held-out"):
        rest += "; so high a score can hardly rise, so score both models on all your texts, too"
    sentence = f"{lead}: {history.name} was {began} at the start and {judged_score}{rest}"
    return Judgement(outcome, sentence, numbers)


def _score_text(number: Mapping[str, float], how: str) -> str:
    """Return a score with its step, and its difference to the start with the interval."""
    change = ""
    if "difference" in number:
        low, high = number["low"], number["high"]
        change = f"{number['difference']:+.2f}, {LEVEL:.0%} interval {low:+.2f} to {high:+.2f}"
        if low * high > 0 and number["p"] > 1 - LEVEL:  # the interval is not corrected
            few = f": only {number['changed']:.0f} scores changed"
            why = few if number["changed"] < 10 else " after Holm's correction"
            change += f", but p is {shown_p(number['p'])}{why}"
        change += "; "
    return f"{number['score']:.2f} at step {number['step']:,.0f} ({change}{how})"


def _unsaved_best(history: DevHistory, saved: Mapping[str, float]) -> str:
    """Return a sentence on a better step that is not the saved one."""
    best = history.best
    if history.saved != "last" or best == saved["step"]:
        return ""
    return f"; the highest was {history.scores[best]:.2f} at step {best:,}, not saved"
