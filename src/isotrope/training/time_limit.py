"""Corrects the number of steps of a run with ``--minutes`` by the time that its steps take."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from isotrope.core.documents import read_text
from isotrope.core.errors import InputError
from isotrope.core.files import write_text
from isotrope.training.refit import SECOND
from isotrope.training.settings import TrainSettings

PLANNED = 0.9
"""Share of ``--minutes`` for reading, steps and scores; the rest: imports and saving."""
SHORTEST = 64
"""Tokens to which ``--minutes`` may shorten texts, so that an epoch is possible."""
FEW = 10
"""Steps; after fewer, the trained model must be better to be saved."""

_OFTEN = {"log_every": 5, "eval_every": 20}  # fewest rows to log, and scores for --patience
_NEARLY = 0.8  # share of the steps from which a longer training would hardly differ
_CHANGE = 0.1  # share of the planned steps; a smaller correction is not made
_RISE = (0.25, 2)  # share and number of steps; a rise up to the smaller is made only to all steps


def of_steps(steps: int) -> dict[str, int | str]:
    """Return the settings that ``--recipe auto`` derives from the number of steps."""
    usual = {name: TrainSettings.model_fields[name].default for name in _OFTEN}
    every = {name: min(usual[name], max(1, steps // times)) for name, times in _OFTEN.items()}
    return {**every, "prefer": "best" if steps < FEW else "trained"}


@dataclass
class TimeLimit:
    """The plan of ``--recipe auto`` for a run with ``--minutes``; a file keeps it for ``--resume``.

    Attributes:
        minutes: Value of ``--minutes``.
        whole: The epochs or steps to train if time suffices, as a setting.
        derived: Names of the settings that change with the number of steps (:func:`of_steps`).
        second: Whether a second training follows if time suffices.
        longer: Time of a step with whole texts, as a multiple of its time with texts cut for time.
        shorter: The same for texts that are cut after :data:`SHORTEST` tokens.
        began: When the command began (``time.time``); a resumed run counts its earlier parts.
    """

    minutes: float
    whole: dict[str, float]
    derived: frozenset[str] = frozenset()
    second: bool = False
    longer: float = 1.0
    shorter: float = 1.0
    began: float = field(default_factory=time.time)

    @classmethod
    def read(cls, path: Path) -> "TimeLimit | None":
        """Return the plan of a run that is resumed now; None if it has none.

        Raises:
            InputError: The file is damaged.
        """
        if not path.is_file():
            return None
        try:
            plan = TypeAdapter(cls).validate_json(read_text(path))
        except ValueError as error:
            raise InputError(f"restore {path}, or train in another folder: {error}") from error
        plan.began = time.time()
        return plan

    def write(self, path: Path) -> None:
        """Write the plan without the time at which it began."""
        plan = TypeAdapter(type(self)).dump_json(self, exclude={"began"})
        write_text(path, plan.decode())

    def changes(self, steps: int, most: int, steps_per_epoch: int) -> dict[str, float | str]:
        """Return the settings to change for a run of ``steps`` of at most ``most`` steps."""
        derived = {name: value for name, value in of_steps(steps).items() if name in self.derived}
        if steps == most:
            return {**self.whole, **derived}
        if "max_steps" in self.whole:
            return {"max_steps": steps, **derived}
        # the fewest digits from which the number of steps, which is rounded up, is the same
        tried = (math.floor((steps - 0.01) / steps_per_epoch * 10**k) / 10**k for k in range(1, 12))
        epochs = next(x for x in tried if math.ceil(x * steps_per_epoch) == steps)
        return {"epochs": epochs, **derived}

    def spent(self, steps: int, most: int, seconds: float, scores: float) -> dict[str, Any]:
        """Return ``minutes``, the seconds of ``scores`` and of all ``else``, and ``enough``.

        ``enough`` is the ``--minutes`` that suffice for ``most`` steps, and for a second training.
        It is None if ``steps``, which took so many ``seconds``, are nearly ``most``.
        """
        rest, enough = time.time() - self.began - seconds, None
        if steps < _NEARLY * most:
            needed = self.longer * most * seconds / steps
            enough = math.ceil(max((needed + rest) / PLANNED, self.second * needed / SECOND) / 60)
        rounded = {"scores": round(scores, 3), "else": round(rest - scores, 3)}
        return {"minutes": self.minutes, **rounded, "enough": enough}

    def advice(self, steps: int, most: int, enough: int) -> str:
        """Return the advice to take ``enough`` minutes after a run of so many steps."""
        twice = ", twice (`--refit`)" * self.second
        cut = f"; with `--max-length {SHORTEST}`, a step takes {self.shorter:.0%} of the time"
        return (
            f"train longer: --minutes {self.minutes:g} has time for {steps:,} of {most:,} steps; "
            f"about `--minutes {enough}` has time for all{twice}, at the speed of this run, which "
            "other programs may have slowed" + cut * (self.shorter < _NEARLY)
        )


class Pace:
    """Estimates how many steps a run has time for.

    Args:
        limit: Plan of the run.
        most: Number of steps if time suffices.
        replan: Function that changes the number of steps, and returns the settings that change.
    """

    def __init__(self, limit: TimeLimit, most: int, replan: Callable[[int], list[str]]) -> None:
        self.limit, self.most, self.replan = limit, most, replan
        self._since, self._times = time.time(), list[float]()

    def until(self) -> float:
        """The time at which the last step has to be finished and scored."""
        return self.limit.began + 60 * self.limit.minutes * PLANNED

    def state_dict(self) -> float:
        """Return the seconds since the command began, for a checkpoint."""
        return time.time() - self.limit.began

    def load_state_dict(self, spent: float) -> None:
        """Count the seconds of the command that a resumed run continues."""
        self.limit.began -= spent

    def begin(self) -> None:
        """Start the clock of a step."""
        self._since = time.time()

    def fitting(self, step: int, steps: int, scoring: float, every: int = 0) -> int:
        """Return the number of steps for which there is time, after ``step`` of ``steps``.

        The number is corrected after 1, 2, 4, ... steps in the first half of the run, by the mean
        time of a step, without the slowest. The first step, which is slow, lowers it only to two or
        fewer. Later, the learning rate falls by plan, so the run ends early only if its time is
        over.

        Args:
            step: Number of finished steps. The last of them has just ended.
            steps: Number of steps of the run as planned so far.
            scoring: Seconds of a dev score.
            every: Number of steps between scores; with 0, only the end is scored.
        """
        now = time.time()
        self._times.append(now - self._since)
        left = self.until() - now - scoring
        if left <= 0:
            return min(steps, step + 1)
        if step & (step - 1) or step > max(2, steps // 2):
            return steps
        times = sorted(self._times[1:]) or self._times  # another program may disturb one step
        each = fmean(times[:-1] or times) + (scoring / every if every else 0)
        found = min(self.most, step + max(1, int(left / max(each, 1e-9))))
        small = _CHANGE * steps
        if found > steps:
            share, number = _RISE
            small = 0 if found == self.most else max(small, min(share * steps, number))
        elif step == 1 and found > 2:
            small = steps
        return found if abs(found - steps) > small else steps

    def correct(self, steps: int) -> str:
        """Change the number of steps; return the line that says why."""
        changed = self.replan(steps)
        now = f"; now {' '.join(changed)}" if changed else ""
        fits = f"all {steps:,}" if steps == self.most else f"{steps:,} of {self.most:,}"
        return f"--minutes {self.limit.minutes:g} has time for {fits} steps{now}"
