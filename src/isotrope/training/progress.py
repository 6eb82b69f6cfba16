"""Shows the progress of a training on stderr: a bar on a terminal, otherwise lines of text."""

import math
import sys
import time
from collections.abc import Callable
from typing import Any

from tqdm import tqdm

from isotrope.core.distributed import rank

_SILENT = 60.0  # seconds without output after which a step is printed
_SLOW = 5.0  # the same at the third step, from which on the time left is known

tqdm.get_lock()  # creates it: a signal while tqdm.write does so would end in an AttributeError


def warn(line: str) -> None:
    """Print a line on stderr, above the progress bar if a bar is shown.

    If there are several processes, only the first prints the line. No setting turns this line off.
    """
    if rank() == 0:
        tqdm.write(line, file=sys.stderr)


class Progress:
    """A bar on a terminal; otherwise a line for each logged step and for each dev score.

    Attributes:
        shown: Whether the bar is shown.
        until: Function that returns the time at which the last step ends, if ``--minutes`` is set.
    """

    until: Callable[[], float] | None = None

    def __init__(
        self, *, steps: int, bar: bool, lines: bool, twice: bool = False, most: int | None = None
    ) -> None:
        self.steps, self._asked, self._most = steps, twice, most
        self.shown = bar and sys.stderr.isatty() and rank() == 0
        self._lines = (bar or lines) and not self.shown
        self._done, self._first, self._newest, self._scoring = 0, 0, 0, 0.0
        self._began = self._told = time.monotonic()
        self._loss = self._dev = ""
        self._bar: Any = None

    @property
    def _twice(self) -> bool:
        """Whether a second training follows; it does not if ``--minutes`` shortens the first."""
        return self._asked and self._most in (None, self.steps)

    def say(self, message: str) -> None:
        """Print a line of information if the run shows its progress."""
        if self.shown or self._lines:
            warn(message)

    def begin(self, step: int) -> None:
        """Start the bar at ``step``, the first step that this process runs."""
        self._done, self._first = step, step + 1
        self._began = self._told = time.monotonic()
        self._bar = tqdm(
            total=self.steps,
            initial=step,
            desc="train 1 of 2" if self._twice else "train",
            unit="step",
            file=sys.stderr,
            disable=not self.shown,
            dynamic_ncols=True,
        )

    def step(self, step: int) -> None:
        """Advance by one step; the time left is that of steps after the first, which is slow."""
        self._done = step
        if step == self._first:
            self._began = time.monotonic()
        self._bar.update(1)

    def rest(self, seconds: float, scoring: float) -> None:
        """Leave out the seconds of a dev score; the scores to come take ``scoring`` seconds."""
        self._began, self._scoring = self._began + seconds, scoring

    def silence(self, step: int) -> None:
        """Print the time left if no line was printed for a while."""
        wait = _SLOW if step == self._first + 2 else _SILENT
        if self._lines and time.monotonic() - self._told >= wait:
            self._line(step, "")

    def replan(self, steps: int, why: str) -> None:
        """Change the number of steps, and say why."""
        self.steps = self._bar.total = steps
        self.say(why)

    def logged(self, step: int, loss: float) -> None:
        """Show the loss of a logged step."""
        self._loss = f"loss {loss:.4g}"
        if self._lines:
            if step >= self._newest:  # otherwise, the line of a later step has been printed
                self._line(step, self._loss)
        else:
            self._write_state()

    def scored(self, step: int, name: str, value: float, reached: str) -> None:
        """Show a dev score, with the best score or the change since the start."""
        self._dev, line = f"dev {value:.2f}", f"{name} {value:.2f}, {reached}"
        if self._lines:
            self._line(step, line)
        elif self.shown:
            warn(f"step {step}: {line}")
            if self._bar is not None:  # before the first step, there is no bar
                self._write_state()

    def _write_state(self) -> None:
        """Write the newest loss and dev score behind the bar; the name of the score is too long."""
        state = ", ".join(filter(None, (self._loss, self._dev)))
        self._bar.set_postfix_str(state, refresh=False)

    def close(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()

    def _line(self, step: int, state: str) -> None:
        done = self._done - self._first
        each = (time.monotonic() - self._began) / max(done, 1)
        limit = math.inf if self.until is None else max(1.0, self.until() - time.time())
        seconds = self._scoring + (self.steps - self._done) * each
        twice = self._twice and seconds + self.steps * each <= limit
        seconds = min(seconds + twice * self.steps * each, limit)
        both = " for both trainings" if twice else ""
        still = f"{tqdm.format_interval(seconds)} left{both}" if seconds and done > 0 else ""
        self._told, self._newest = time.monotonic(), step
        told = ", ".join(filter(None, (state, still)))
        warn(f"step {step:,} of {self.steps:,}{told and f': {told}'}")
