"""Writes TensorBoard's file; transformers writes to the other loggers of ``--logger``."""

import importlib.util
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from isotrope.core.errors import SettingError
from isotrope.core.files import open_own, os_errors_as_input_errors


def check_loggers(names: Sequence[str]) -> None:
    """Refuse loggers whose packages are not installed; TensorBoard's comes with isotrope."""
    for name in names:
        if name != "tensorboard" and importlib.util.find_spec(name) is None:
            raise SettingError(
                f"needs the package {name}, which is not installed",
                setting="logger",
                value=name,
                remedy=f"pip install {name}",
            )


class Board(TrainerCallback):
    """Writes TensorBoard's file of a run, one event for each row of metrics.csv.

    The writer of torch is not used, because it writes in a thread: errors come late and as
    tracebacks.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Path | None = None

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **_: object,
    ) -> None:
        """Write the numbers of a step."""
        tagged = [Summary.Value(tag=k, simple_value=v) for k, v in (logs or {}).items()]
        self._write(Event(step=state.global_step, summary=Summary(value=tagged)))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        if self._file is None:
            name = f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
            self._file = self._folder / name
            with os_errors_as_input_errors(self._file):
                self._folder.mkdir(parents=True, exist_ok=True)
            self._write(Event(file_version="brain.Event:2"))
        with os_errors_as_input_errors(self._file), open_own(self._file, "ab") as handle:
            RecordWriter(handle).write(event.SerializeToString())
