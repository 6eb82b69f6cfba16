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
from isotrope.measures import bootstrap
from isotrope.measures.bootstrap import LEVEL

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error, zipfile.BadZipFile)
_FOR_ERRORS = 400  # resamples for a standard error that is right to 4%
_START_SAVED = "the saved model is the one before training"
_Numbers = dict[str, dict[str, float]]

Outcome = Literal["improved", "undecided", "worse", "not known"]
Saved = Literal["best", "trained", "original", "last"]

SHARED = ("gold", "groups")
"""Fields of :class:`DevEvaluation` that describe the examples, not the scores."""

EASY = 80.0
"""A score before training from which few held-out texts show little of a gain."""


@dataclass(frozen=True)
class DevEvaluation:
    """One evaluation on the dev set.

    Attributes:
        value: The score, out of 100.
        items: Score of each of the n examples.
        gold: Human scores of the n pairs, or None. With human scores, ``value`` is 100 times their
            Spearman correlation with ``items``; without, 100 times the mean of ``items``.
        groups: A number for each of the n examples, or None. Examples with the same number, such as
            paraphrases of one question, are drawn together in the bootstrap.
    """

    value: float
    items: np.ndarray
    gold: np.ndarray | None = None
    groups: np.ndarray | None = None

    @property
    def shared(self) -> dict[str, np.ndarray]:
        """A dict of the arrays that are equal in all evaluations of a run, those of ``SHARED``."""
        return {name: own for name in SHARED if (own := getattr(self, name)) is not None}


@dataclass
class DevHistory:
    """The stored evaluations of a run: the first, the best and the newest.

    Attributes:
        name: Name of the score, with which a judgement's sentence begins.
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
        wanted = {min(self.scores), self.highest_step, self.chosen_step(), step}
        self.evaluations = {s: e for s, e in self.evaluations.items() if s in wanted}

    @property
    def is_search(self) -> bool:
        """Whether the score ranks texts, so that more texts would make it lower."""
        return " among " in self.name

    @property
    def highest_step(self) -> int:
        """The earliest step with the best score."""
        return max(self.scores, key=lambda step: (self.scores[step], -step))

    def chosen_step(self) -> int:
        """Return the step with the best score, or that which ``trained`` or ``original`` chooses.

        Both rules need the standard errors of score differences, from a bootstrap.
        """
        highest, first, last = self.highest_step, min(self.scores), max(self.scores)
        if self.saved == "original" and first in self.evaluations:
            # the first step has a gain of 0, so another step needs a gain above two errors
            return max(sorted(self.evaluations), key=lambda step: self._gain(step, -2))
        if self.saved != "trained" or not self.ended or highest != first:
            return highest
        known = first in self.evaluations and last in self.evaluations
        return last if known and self._gain(last, 2) >= 0 else highest

    def _gain(self, step: int, errors: int) -> float:
        """Return how much a score is higher than the first, plus so many standard errors."""
        compared = [self.evaluations[min(self.scores)], self.evaluations[step]]
        before, after = _draws(compared, _FOR_ERRORS)
        return float(compared[1].value - compared[0].value + errors * (after - before).std())

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
            **evaluations[0].shared,
        }
        with atomic_replace(path) as temporary, temporary.open("wb") as handle:
            np.savez_compressed(handle, **arrays)

    @classmethod
    def load(cls, path: Path) -> "DevHistory":
        """Read what :meth:`save` wrote."""
        try:
            with open_arrays(path) as archive:
                arrays = {key: archive[key] for key in archive}
            items, shared = arrays["items"], {k: arrays[k] for k in SHARED if k in arrays}
            fits = all(len(array) == len(items.T) for array in shared.values())
            if items.ndim != 2 or not items.size or not fits:
                raise ValueError("its arrays do not fit")
            rows = zip(arrays["steps"], arrays["values"], items, strict=True)
            evaluations = {int(k): DevEvaluation(float(v), row, **shared) for k, v, row in rows}
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


@dataclass(frozen=True)
class Judgement:
    """Whether training helped.

    Attributes:
        outcome: ``improved``: the saved model is better than the start, by more than noise.
            ``worse``: the saved model is no better, and the last step is worse, by more than
            noise. ``not known``: only the start was scored. ``undecided``: all other cases.
        sentence: The judgement with its numbers, as a sentence.
        numbers: A dict from ``start``, ``saved`` and ``last`` to dicts of ``step`` and ``score``.
            ``saved`` and ``last`` also have the ``difference`` to ``start``, its bounds ``low`` and
            ``high``, its p-value ``p``, and the number ``changed`` of examples with another score
            (of groups, if the examples have groups).
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
        stated = "undecided" if stated == "within noise" else stated  # of earlier versions
        outcome: Outcome | None = next((word for word in get_args(Outcome) if word == stated), None)
        if outcome is None or not isinstance(sentence, str) or not isinstance(numbers, Mapping):
            raise InputError(
                "restore this file from a backup: its judgement lacks the outcome, the sentence or "
                "the numbers"
            )
        return cls(outcome, sentence, numbers)


def judge(history: DevHistory) -> Judgement:
    """Judge by the paired bootstrap over the examples of the dev set, or over their groups.

    The saved model and the last step are compared with the model before training. A difference is
    more than noise if its p-value is at most 0.05. Holm's method corrects both p-values.

    The best step was chosen on the same dev set, so its score is slightly too high. The interval
    includes the effect of the choice of examples, but not of the step or the seed. To compare on
    other data, use ``isotrope evaluate --compare``.
    """
    start, last = min(history.evaluations), max(history.evaluations)
    scores = {step: evaluation.value for step, evaluation in history.evaluations.items()}
    numbers: _Numbers = {"start": {"step": start, "score": scores[start]}}
    if last == start:
        words = f"{history.name} was {scores[start]:.2f} at step {start}"
        return Judgement("not known", f"{words}, and no later step has been scored yet", numbers)
    saved = last if history.saved == "last" else history.chosen_step()
    differences = _differences(history, start, sorted({saved, last} - {start}))
    numbers["saved"] = {"step": saved, "score": scores[saved], **differences.get(saved, {})}
    numbers["last"] = {"step": last, "score": scores[last], **differences[last]}
    if _rose(numbers["saved"]):
        return Judgement("improved", _improved(history, numbers), numbers)
    if _fell(numbers["last"]):
        return Judgement("worse", _worse(history, numbers), numbers)
    return Judgement("undecided", _undecided(history, numbers), numbers)


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
    evaluations = [history.evaluations[step] for step in (start, *others)]
    before, *after = evaluations
    draws_before, *draws_after = _draws(evaluations, bootstrap.RESAMPLES)
    groups = np.arange(len(before.items)) if before.groups is None else before.groups
    changed = [len(np.unique(groups[other.items != before.items])) for other in after]
    shifts = [draws - draws_before for draws in draws_after]
    p_values = bootstrap.holm(list(map(bootstrap.p_value, shifts, changed)))
    differences = {}
    for i, (step, evaluation) in enumerate(zip(others, after, strict=True)):
        change = {"difference": evaluation.value - before.value, **bootstrap.interval(shifts[i])}
        differences[step] = {**change, "p": p_values[i], "changed": changed[i]}
    return differences


def _draws(evaluations: list[DevEvaluation], resamples: int) -> np.ndarray:
    """Return the scores of m evaluations of the same examples in b resamples, m x b."""
    first, rows = evaluations[0], [np.asarray(e.items, np.float64) for e in evaluations]
    rng = np.random.default_rng(zlib.crc32(b"dev"))
    blocks = bootstrap.resampled(rng, len(rows[0]), resamples, first.groups)
    if first.gold is None:
        return 100 * bootstrap.means(np.stack(rows), blocks)
    return 100 * bootstrap.spearman(rows, first.gold, blocks)


def _rose(number: Mapping[str, float]) -> bool:
    """Whether a score is higher than the start's, by more than noise."""
    return number.get("p", 1.0) <= 1 - LEVEL and number["difference"] > 0


def _fell(number: Mapping[str, float]) -> bool:
    """Whether a score is lower than the start's, by more than noise."""
    return number.get("p", 1.0) <= 1 - LEVEL and number["difference"] < 0


def _improved(history: DevHistory, numbers: _Numbers) -> str:
    start, saved = numbers["start"]["score"], _saved_score(history, numbers)
    sentence = f"training improved the model: {history.name} rose from {start:.2f} to {saved}"
    if _fell(numbers["last"]):
        sentence += f"; the end was worse than the start: {_last_score(numbers)}"
    return sentence


def _worse(history: DevHistory, numbers: _Numbers) -> str:
    start, saved, last = (numbers[which]["step"] for which in ("start", "saved", "last"))
    if saved == last:
        end = _saved_score(history, numbers)
    elif saved == start:
        end = f"{_last_score(numbers)}; {_START_SAVED}"
    else:
        other = _saved_score(history, numbers)
        end = f"{_last_score(numbers)}; the saved model is another: {other}"
    was = f"{history.name} was {numbers['start']['score']:.2f} at the start"
    return f"training made the model worse: {was} and {end}"


def _undecided(history: DevHistory, numbers: _Numbers) -> str:
    start = numbers["start"]
    if numbers["saved"]["step"] == start["step"]:
        end = f"{_last_score(numbers)}; {_START_SAVED}"
    else:
        end = _saved_score(history, numbers)
    if start["score"] >= EASY and history.name.startswith("held-out") and history.is_search:
        end += "; so easy a search can hide a gain: score both models on all your texts, too"
    return f"undecided: {history.name} was {start['score']:.2f} at the start and {end}"


def _saved_score(history: DevHistory, numbers: _Numbers) -> str:
    """Return the score of the saved step, with the rule that chose the step."""
    saved, highest = numbers["saved"], history.highest_step
    if history.saved == "trained" and saved["step"] == numbers["last"]["step"]:
        return _score_text(saved, "the last step")  # its mean with a second model may be saved
    if history.saved != "last":
        chosen = ", and the same dev set chose it" if len(history.scores) > 2 else ""
        return _score_text(saved, f"this step was saved{chosen}")
    text = _score_text(saved, "this step was saved")
    if highest != saved["step"]:
        text += f"; the highest was {history.scores[highest]:.2f} at step {highest:,}, not saved"
    return text


def _last_score(numbers: _Numbers) -> str:
    return _score_text(numbers["last"], "the last step, which was not saved")


def _score_text(number: Mapping[str, float], remark: str) -> str:
    """Return a score with its step, its difference to the start with the interval, and a remark."""
    return f"{number['score']:.2f} at step {number['step']:,.0f} ({_change(number)}{remark})"


def _change(number: Mapping[str, float]) -> str:
    """Return the difference to the start with its interval; "" for the start itself."""
    if "difference" not in number:
        return ""
    low, high = number["low"], number["high"]
    change = f"{number['difference']:+.2f}, {LEVEL:.0%} interval {low:+.2f} to {high:+.2f}"
    if low * high > 0 and number["p"] > 1 - LEVEL:  # the interval is not corrected
        few = f": only {number['changed']:.0f} independent scores changed"
        why = few if number["changed"] < 10 else " after Holm's correction"
        change += f", but p is {bootstrap.shown_p(number['p'])}{why}"
    return f"{change}; "
