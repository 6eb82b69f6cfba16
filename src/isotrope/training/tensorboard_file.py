"""Writes the numbers of a run to a file that TensorBoard reads."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from isotrope.core.files import open_own, os_errors_as_input_errors


class Board(TrainerCallback):
    """Writes TensorBoard's file of a run, one event for each row of metrics.csv.

    It replaces torch's own writer, which writes in a thread and reports errors late.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"

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
        event = Event(wall_time=time.time(), step=state.global_step, summary=Summary(value=tagged))
        with os_errors_as_input_errors(self._file):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with open_own(self._file, "ab") as handle:
                if handle.tell() == 0:
                    version = Event(wall_time=event.wall_time, file_version="brain.Event:2")
                    RecordWriter(handle).write(version.SerializeToString())
                RecordWriter(handle).write(event.SerializeToString())
