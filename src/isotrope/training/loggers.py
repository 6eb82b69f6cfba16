"""Where the numbers of a run go besides metrics.csv: TensorBoard, and Weights & Biases if asked."""

import importlib.util
import os
import time
from collections.abc import Mapping
from pathlib import Path

from lightning.pytorch.loggers import WandbLogger
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from isotrope.core.errors import InputError
from isotrope.core.files import os_errors_as_input_errors
from isotrope.training.settings import read_yaml

__all__ = ["Loggers", "check_wandb"]


def check_wandb(project: str | None) -> None:
    """See to it that wandb is there if it is asked for.

    Raises:
        InputError: it is not.
    """
    if project is not None and importlib.util.find_spec("wandb") is None:
        raise InputError(
            f"--wandb {project} needs the package wandb, which is not installed: pip install wandb"
        )


class _Board:
    """TensorBoard's file of one run: an event for each row, written when it is given.

    The writers of torch and Lightning write from a thread, each number as an event of its own; an
    error of theirs comes late, with a traceback.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Path | None = None

    def log(self, values: Mapping[str, float], step: int) -> None:
        named = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(Event(step=step, summary=Summary(value=named)))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        if self._file is None:
            name = f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
            self._file = self._folder / name
            with os_errors_as_input_errors(self._file):
                self._folder.mkdir(parents=True, exist_ok=True)
            self._write(Event(file_version="brain.Event:2"))
        with os_errors_as_input_errors(self._file), self._file.open("ab") as handle:
            RecordWriter(handle).write(event.SerializeToString())


class Loggers:
    """The loggers of one run.

    Args:
        folder: of the run; both write into it.
        project: of Weights & Biases; None is TensorBoard alone. Where it sends what it is told,
            and whether at all, are its own settings (WANDB_MODE=offline keeps all in the folder).

    Attributes:
        run_id: of Weights & Biases; set before the first number to go on with an earlier run.
    """

    def __init__(self, folder: Path, project: str | None = None) -> None:
        self.folder, self.project = folder, project
        self.run_id: str | None = None
        self._board = _Board(folder / "tensorboard")
        self._wandb: WandbLogger | None = None

    def start(self) -> None:
        """Begin, or go on with, the run of Weights & Biases.

        Raises:
            InputError: it refuses: nobody is logged in, say.
        """
        if self.project is None:
            return
        logger = WandbLogger(
            name=self.folder.name, project=self.project, save_dir=self.folder, id=self.run_id
        )
        try:
            self.run_id = str(logger.experiment.id)
            logger.log_hyperparams(dict(read_yaml(self.folder / "config.yaml")))
        # whatever the package raises where it cannot begin
        except Exception as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"Weights & Biases cannot begin a run ({reason}); `wandb login`, set "
                "WANDB_MODE=offline, or leave out --wandb"
            ) from error
        self._wandb = logger

    def log(self, values: Mapping[str, float | None], step: int) -> None:
        """Pass on what was measured."""
        found = {name: value for name, value in values.items() if value is not None}
        self._board.log(found, step)
        if self._wandb is not None:
            self._wandb.log_metrics(found, step)

    def close(self) -> None:
        """Write what is left."""
        if self._wandb is not None:
            self._wandb.experiment.finish()
