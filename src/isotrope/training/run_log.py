"""The log of a run: rows of metrics.csv, which loggers also receive, and the time of the steps."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isotrope.core.files import open_own, os_errors_as_input_errors, sync, write_text
from isotrope.core.lock import ensure_not_replaced
from isotrope.training.nan_guard import Trained
from isotrope.training.progress import Progress, warn


class Timer:
    """Counts the seconds of the steps, including the reading of data, and those between them."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.seconds = 0.0
        self.steps = 0
        self.rested = self._since = self._resting = 0.0

    @property
    def rate(self) -> float:
        """Rows of data per second."""
        return self.steps * self.batch_size / max(self.seconds, 1e-9)

    def rest(self, seconds: float) -> None:
        """Exclude seconds of other work from the time of the steps."""
        self._resting += seconds
        self.rested += seconds

    def begin(self) -> None:
        """Start the clock before the first step."""
        self._since, self._resting = time.perf_counter(), 0.0

    def end_step(self) -> None:
        """Add the time of the step that has just ended, including the reading of its data."""
        now = time.perf_counter()
        self.seconds += now - self._since - self._resting
        self.steps += 1
        self._since, self._resting = now, 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds so far for a checkpoint."""
        return {"seconds": self.seconds, "steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the seconds in a checkpoint."""
        self.seconds, self.steps = state_dict["seconds"], state_dict["steps"]


@dataclass(kw_only=True, eq=False)
class RunLog:
    """Writes metrics.csv, with a row for each logged step and no text for unmeasured numbers.

    Steps count from 0. Row N has the dev score after N steps, and the loss of the next step. As
    these numbers are added one after the other, the newest row is written when the next one begins.

    Attributes:
        path: Path of metrics.csv.
        columns: Columns of metrics.csv; the first is ``step``.
        rate_column: Column of the rows of data per second.
        steps_per_epoch: Number of steps of an epoch, or None if epochs are not counted.
        module: Module whose measured numbers are logged.
        send: Function that passes numbers and their step to the loggers.
        newest: Newest row with a loss; empty before the first loss is logged.
    """

    path: Path
    columns: Sequence[str]
    rate_column: str
    steps_per_epoch: int | None
    timer: Timer
    module: Trained
    progress: Progress
    send: Callable[[dict[str, float], int], None]
    newest: dict[str, float | None] = field(default_factory=dict, init=False)
    _pending: int | None = field(default=None, init=False)  # step of the row not yet in the file
    _row: dict[str, float | None] = field(default_factory=dict, init=False)  # this row

    def begin(self, step: int) -> None:
        """Write the header of metrics.csv; a resumed run keeps only the rows before ``step``."""
        rows = self._read() if self.path.is_file() and step > 0 else {}
        if self._pending is not None and self._pending < step:
            rows.setdefault(self._pending, self._row)
            self._pending = None
        earlier = {at: rows[at] for at in sorted(rows) if at < step}
        measured = [row for row in earlier.values() if row.get("loss") is not None]
        self.newest = measured[-1] if measured else {}
        lines = [self._line(at, row) for at, row in earlier.items()]
        write_text(self.path, "".join([",".join(self.columns) + "\n", *lines]))

    def _read(self) -> dict[int, dict[str, float | None]]:
        """Return the rows of the file; skip lines that a power failure cut short."""
        *lines, unfinished = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        names = lines.pop(0).split(",") if lines else []
        broken = int(unfinished != "")
        rows: dict[int, dict[str, float | None]] = {}
        for line in lines:
            try:
                cells = dict(zip(names, line.split(","), strict=True))
                row: dict[str, float | None] = {}
                for column in self.columns[1:]:
                    cell = cells.get(column)  # None: an earlier version did not write this column
                    row[column] = float(cell) if cell else None
                rows[int(cells["step"])] = row
            except (KeyError, ValueError):
                broken += 1
        if broken:
            warn(f"warning: skipped rows of {self.path} that cannot be read: {broken}")
        return rows

    def add(self, step: int, values: dict[str, float | None]) -> None:
        """Add values to the row of ``step``; metrics.csv gets this row when the next row begins."""
        ensure_not_replaced(self.path.parent)
        if step != self._pending:
            self.close()
            self._pending, self._row = step, {}
        for column, value in values.items():
            # rounded as in the file, so that a resumed run has the same numbers
            self._row[column] = None if value is None else float(f"{value:.10g}")
        if self._row.get("loss") is not None:
            self.newest = self._row
        self.send({name: value for name, value in values.items() if value is not None}, step)

    def add_measured(self, step: int) -> None:
        """Add the numbers that the module measured in a step, if it measured any."""
        module = self.module
        if not module.measured:
            return
        self.add(
            step,
            {
                **module.measured,
                "epoch": None if self.steps_per_epoch is None else step / self.steps_per_epoch,
                "learning_rate": module.learning_rate_at(step),
                "gradient_norm": module.gradient_norm,
                self.rate_column: self.timer.rate,
            },
        )
        loss = module.measured.get("loss")
        if loss is not None:
            self.progress.logged(step, loss)

    def state_dict(self) -> dict[str, Any]:
        """Return a dict with the row that is not yet in metrics.csv, for a checkpoint."""
        with os_errors_as_input_errors(self.path):
            sync(self.path)
        return {"pending": None if self._pending is None else (self._pending, self._row)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the unwritten row of a checkpoint."""
        if state_dict["pending"] is not None:
            self._pending, self._row = state_dict["pending"]

    def close(self) -> None:
        """Write the unfinished row."""
        if self._pending is None:
            return
        ensure_not_replaced(self.path.parent)
        line = self._line(self._pending, self._row)
        with os_errors_as_input_errors(self.path), open_own(self.path, "a", encoding="utf-8") as f:
            f.write(line)
        self._pending = None

    def _line(self, step: int, values: dict[str, float | None]) -> str:
        row = {"step": step, **values}
        cells = ("" if row.get(k) is None else f"{row[k]:.10g}" for k in self.columns)
        return ",".join(cells) + "\n"
