"""Measures the dev score during a run, and saves the best model."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from isotrope.core.run_folder import RunFolder
from isotrope.measures.judgement import SHARED, DevEvaluation, DevHistory, Judgement, Saved, judge
from isotrope.training.checkpoints import check_unchanged
from isotrope.training.nan_guard import Trained, check_finite_weights
from isotrope.training.run_log import RunLog


@dataclass(kw_only=True, eq=False)
class DevScorer:
    """Measures the dev score at step 0, every ``every`` steps and at the end.

    The best model is saved, unless ``history.saved`` is "last". Losses of held-out records are
    measured at the same steps, and written to the same rows of metrics.csv. Call :meth:`attach`
    before the first step.

    Attributes:
        history: History of the evaluations. It also has the name of the score and determines which
            model is saved.
        module: Module in training, whose encoder is scored.
        score: Function that evaluates the current encoder; None if no data are scored.
        advice: Advice on how to score, printed in place of the verdict if no data are scored.
        column: Column of the score in metrics.csv, and prefix of the scores in result.json.
        every: Number of steps between scores. With 0, only the start and the end are scored.
        patience: Number of scores without a new best after which the run ends. None: all steps run.
        curves: Function that returns a dict from columns to losses of held-out records, or None.
        data: Fingerprint of the scored data, which must not change when a run is resumed. None if
            nothing is scored, or if the scored data are a part of the training data.
        as_saved: Context in which the module has the weights that are scored and saved.
        weights: Fingerprints of the saved models, by step.
        seconds: Seconds that the newest evaluation took, with saving its model.
    """

    history: DevHistory
    module: Trained
    score: Callable[[], DevEvaluation] | None
    advice: str
    column: str
    every: int
    patience: int | None = None
    curves: Callable[[], Mapping[str, float]] | None = None
    data: str | None = None
    as_saved: Callable[[], AbstractContextManager[None]] = nullcontext
    weights: dict[int, str] = field(default_factory=dict, init=False)
    seconds: float = field(default=0.0, init=False)
    log: RunLog = field(init=False)
    _save: Callable[[int], str] = field(init=False)

    def attach(self, log: RunLog, save: Callable[[int], str]) -> None:
        """Set the log, and the function that saves a model and returns its fingerprint."""
        self.log, self._save = log, save

    @property
    def scores(self) -> dict[int, float]:
        """All scores, by step."""
        return self.history.scores

    @property
    def best_step(self) -> int | None:
        """Step of the evaluation that ``history`` chooses; None if nothing was scored."""
        return self.history.chosen_step() if self.scores else None

    @property
    def is_exhausted(self) -> bool:
        """Whether the last ``patience`` evaluations gave no new best score."""
        if self.patience is None or not self.scores:
            return False
        return sum(step > self.history.highest_step for step in self.scores) >= self.patience

    def replan(self, every: int, saved: Saved) -> None:
        """Change the number of steps between scores, and which model is saved."""
        self.every, self.history.saved = every, saved

    def save(self, step: int) -> None:
        """Save the model after ``step`` updates, and record its fingerprint."""
        self.weights[step] = self._save(step)

    def judgement(self) -> Judgement:
        """Return whether the training raised the score."""
        if not self.scores:
            return Judgement("not known", self.advice)
        return judge(self.history)

    def begin(self, step: int) -> None:
        """Score the model before training; in a resumed run, only plan the scores to come."""
        if step == 0 and 0 not in self.scores:
            self._evaluate(0)
        else:
            self._show_time(step)

    def after_step(self, step: int) -> None:
        """Score every ``every`` steps and after the last step."""
        if step == self.module.steps or (self.every and step % self.every == 0):
            check_finite_weights(self.module, step)
            self._evaluate(step)

    def _evaluate(self, step: int) -> None:
        """Measure curves and score after ``step`` updates, outside the time of the steps."""
        start = time.perf_counter()
        # at step 0, a blend of the weights with themselves would change -0.0 to 0.0
        with self.as_saved() if step else nullcontext():
            if self.curves is not None:
                self.log.add(step, {**self.curves()})
            if self.score is not None:
                self._add(step, self.score())
        self.seconds = time.perf_counter() - start
        self.log.timer.rest(self.seconds)
        self._show_time(step, just_spent=self.seconds)
        if step in self.scores:
            self._show_score(step, self.scores[step])

    def _show_time(self, step: int, *, just_spent: float = 0.0) -> None:
        """Leave the score of ``step`` out of the shown time, and add the time of later scores."""
        steps, every = self.module.steps, self.every or self.module.steps
        later = math.ceil(steps / every) - step // every if step < steps else 0
        self.log.progress.rest(just_spent, later * self.seconds)

    def _add(self, step: int, evaluation: DevEvaluation) -> None:
        """Log an evaluation, and save the model if its score is the best."""
        self.history.add(step, evaluation)
        self._mark_end()
        self.log.add(step, {self.column: evaluation.value})
        if self.history.saved != "last" and self.history.chosen_step() == step:
            self.save(step)
        self.history.save(RunFolder(self.log.path.parent).dev)

    def _show_score(self, step: int, value: float) -> None:
        """Show a score and, if it is so, that the run ends early."""
        change, highest = "start", self.history.highest_step
        if step > 0:
            change = f"{value - self.scores[min(self.scores)]:+.2f} from the start"
        best = f"best {self.scores[highest]:.2f} at step {highest:,}"
        reached = change if self.history.saved == "trained" else best
        self.log.progress.scored(step, self.history.name, value, reached)
        if self.is_exhausted and step != self.module.steps:
            since = f"in the last {self.patience} evaluations, no score was above the {best}"
            self.log.progress.say(f"early stopping at step {step:,}: {since}")

    def _mark_end(self) -> None:
        """Record whether the newest evaluation is the last."""
        newest = max(self.scores, default=0)
        self.history.ended = newest == self.module.steps or self.is_exhausted

    def state_dict(self) -> dict[str, Any]:
        """Return the scores so far for a checkpoint."""
        evaluations = self.history.evaluations
        shared = next((evaluation.shared for evaluation in evaluations.values()), {})
        return {
            "scores": self.scores,
            # as tensors, because safe loading of a checkpoint refuses numpy arrays
            "items": {step: torch.from_numpy(e.items) for step, e in evaluations.items()},
            **{name: torch.from_numpy(array) for name, array in shared.items()},
            "weights": self.weights,
            "data": self.data,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the scores of a checkpoint; refuse to continue if the data have changed."""
        check_unchanged(f"data of the {self.history.name}", state_dict["data"], self.data)
        self.history.scores = {int(k): float(v) for k, v in state_dict["scores"].items()}
        self.weights = dict(state_dict.get("weights", {}))
        self.seconds = state_dict.get("seconds", 0.0)
        known = {name: state_dict.get(name) for name in SHARED}
        shared = {name: array.numpy() for name, array in known.items() if array is not None}
        self.history.evaluations = {
            int(step): DevEvaluation(self.scores[int(step)], items.numpy(), **shared)
            for step, items in state_dict["items"].items()
        }
        self._mark_end()
