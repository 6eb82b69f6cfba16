"""Measures the dev score during a run, and keeps the best model."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from isotrope.core.run_folder import RunFolder
from isotrope.measures.judgement import DevEvaluation, DevHistory, Judgement, judge
from isotrope.training.checkpoints import check_unchanged
from isotrope.training.nan_guard import check_finite_weights
from isotrope.training.run_log import Metrics


class Dev:
    """Measures the dev score at step 0, every ``every`` steps and at the end.

    The best model is saved, unless ``history.saved`` is "last". Losses of held-out records are
    measured at the same steps, and written to the same rows of metrics.csv.

    Args:
        history: History of the evaluations. It also has the name of the score and determines which
            model is saved.
        score: Function that evaluates the current encoder. Or a string, if no data are scored: the
            string is printed at the end of the run in place of the verdict.
        column: Column of the score in metrics.csv, and prefix of the scores in result.json.
        every: Number of steps between scores. With 0, only the start and the end are scored.
        patience: Number of scores without a new best after which the run ends. None: all steps run.
        curves: Function that returns a dict from columns to losses of held-out records, or None.
        data: Fingerprint of the scored data, which must not change when a run is resumed. None if
            nothing is scored, or if the scored data are a part of the training data.
    """

    metrics: Metrics  # receives the scores
    keep: Callable[[int], str]  # saves the best model
    saved: Callable[[], AbstractContextManager[None]] = nullcontext  # has the weights to save

    def __init__(
        self,
        history: DevHistory,
        score: Callable[[], DevEvaluation] | str,
        *,
        column: str,
        every: int,
        patience: int | None = None,
        curves: Callable[[], Mapping[str, float]] | None = None,
        data: str | None = None,
    ) -> None:
        self.curves, self.data = curves, data
        self.history, self.score, self.column = history, score, column
        self.every, self.patience = every, patience
        self.keeps_best = history.saved != "last"
        self.weights: dict[int, str] = {}  # fingerprints of the kept models, by step
        self.seconds = 0.0  # of the newest evaluation

    @property
    def scores(self) -> dict[int, float]:
        """All scores, by step."""
        return self.history.scores

    @property
    def best(self) -> tuple[int, float] | None:
        """Step and score of the best evaluation, the earliest at ties."""
        if not self.scores:
            return None
        step = self.history.chosen_step()
        return step, self.scores[step]

    @property
    def exhausted(self) -> bool:
        """Whether the last ``patience`` evaluations gave no new best score."""
        if self.patience is None or not self.scores:
            return False
        return sum(step > self.history.highest_step for step in self.scores) >= self.patience

    def judgement(self) -> Judgement:
        """Return whether the training raised the score."""
        if not self.scores:
            return Judgement("not known", str(self.score))
        return judge(self.history)

    def evaluate(self, step: int) -> None:
        """Score the encoder after ``step`` updates; save the encoder if its score is the best."""
        start = time.perf_counter()
        with self.saved() if step else nullcontext():  # a blend with itself changes -0.0 to 0.0
            self._evaluate(step)
        self.seconds = time.perf_counter() - start
        self.metrics.timer.rest(self.seconds)

    def _evaluate(self, step: int) -> None:
        if self.curves is not None:
            self.metrics.add(step, {**self.curves()})
        if isinstance(self.score, str):
            return
        evaluation = self.score()
        value = evaluation.value
        self.history.add(step, evaluation)
        self._mark_end()
        self.metrics.add(step, {self.column: value})
        if self.keeps_best and self.history.chosen_step() == step:
            self.weights[step] = self.keep(step)
        self.history.save(RunFolder(self.metrics.path.parent).dev)
        first = self.scores[min(self.scores)]
        change = "start" if step == 0 else f"{value - first:+.2f} from the start"
        at = self.history.highest_step
        best = f"best {self.scores[at]:.2f} at step {at:,}"
        shown = change if self.history.saved == "trained" else best
        self.metrics.progress.scored(step, f"{self.history.name} {value:.2f}", change, shown)
        if self.exhausted and step != self.metrics.module.steps:
            since = f"in the last {self.patience} evaluations, no score was above the {best}"
            self.metrics.progress.say(f"early stopping at step {step:,}: {since}")

    def _mark_end(self) -> None:
        """Record whether the newest evaluation is the last."""
        last = max(self.scores, default=0) == self.metrics.module.steps
        self.history.ended = last or self.exhausted

    def begin(self, step: int) -> None:
        """Score the model before training."""
        if step == 0 and 0 not in self.scores:
            self.evaluate(0)

    def step(self, step: int) -> None:
        """Score every ``every`` steps and after the last step."""
        if step == self.metrics.module.steps or (self.every and step % self.every == 0):
            check_finite_weights(self.metrics.module, step)
            self.evaluate(step)

    def state_dict(self) -> dict[str, Any]:
        """Return the scores so far for a checkpoint."""
        evaluations = self.history.evaluations
        gold = next((evaluation.gold for evaluation in evaluations.values()), None)
        return {
            "scores": self.scores,
            # as tensors, because safe loading of a checkpoint refuses numpy arrays
            "items": {step: torch.from_numpy(e.items) for step, e in evaluations.items()},
            "gold": None if gold is None else torch.from_numpy(gold),
            "weights": self.weights,
            "data": self.data,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the scores of a checkpoint."""
        before = state_dict["data"]
        check_unchanged(f"data of the {self.history.name}", before, self.data)
        self.history.scores = {int(k): float(v) for k, v in state_dict["scores"].items()}
        self.weights = dict(state_dict.get("weights", {}))
        gold = state_dict.get("gold")
        self.history.evaluations = {
            int(step): DevEvaluation(
                self.scores[int(step)], items.numpy(), None if gold is None else gold.numpy()
            )
            for step, items in state_dict["items"].items()
        }
        self._mark_end()
