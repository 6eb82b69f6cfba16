"""Creates the loggers of ``--logger``, which a run writes to in addition to metrics.csv."""

import contextlib
import importlib.util
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger, WandbLogger
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from isotrope.core.errors import InputError, SettingError
from isotrope.core.files import open_own, os_errors_as_input_errors
from isotrope.core.run_folder import RunFolder
from isotrope.training.settings import read_yaml

__all__ = ["Loggers", "check_loggers"]


class _Trackio:
    """A run of trackio, for which Lightning has no logger: as much of one as is used here.

    Trackio finds the run that it resumes by its name alone, so the name is unlike any other.
    """

    def __init__(self, folder: Path, run: str | None) -> None:
        import trackio

        self.version = run or f"{folder.name}-{uuid.uuid4().hex[:6]}"
        with contextlib.redirect_stdout(sys.stderr):  # where its numbers can be seen
            self.experiment: Any = trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", "isotrope"),
                name=self.version,
                resume="must" if run else "never",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        self.experiment.config.update(params)

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        self.experiment.log(dict(metrics), step=step)

    def finalize(self, status: str) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self.experiment.finish()


Service = WandbLogger | MLFlowLogger | _Trackio


def check_loggers(names: Sequence[str]) -> None:
    """See to it that the packages of the loggers are installed; TensorBoard comes with isotrope.

    Raises:
        InputError: one of them is not.
    """
    for name in names:
        if name != "tensorboard" and importlib.util.find_spec(name) is None:
            raise SettingError(
                f"needs the package {name}, which is not installed",
                setting="logger",
                value=name,
                remedy=f"pip install {name}",
            )


def _wandb(folder: Path, run: str | None) -> WandbLogger:
    project = os.environ.get("WANDB_PROJECT", "isotrope")
    return WandbLogger(name=folder.name, project=project, save_dir=folder, id=run)


def _mlflow(folder: Path, run: str | None) -> MLFlowLogger:
    return MLFlowLogger(
        os.environ.get("MLFLOW_EXPERIMENT_NAME", "isotrope"),
        run_name=folder.name,
        tracking_uri=os.environ.get("MLFLOW_TRACKING_URI"),
        save_dir=str(folder / "mlruns"),
        run_id=run,
    )


_SERVICES: dict[str, tuple[Callable[[Path, str | None], Service], str]] = {
    "wandb": (_wandb, "`wandb login`, or set WANDB_MODE=offline"),
    "trackio": (_Trackio, "unset TRACKIO_SPACE_ID and TRACKIO_SERVER_URL to log on this machine"),
    "mlflow": (_mlflow, "set MLFLOW_TRACKING_URI to a server that answers, or unset it"),
}
"""What opens a run of a service, and the remedy where it cannot."""


class _Board:
    """TensorBoard's file of one run: an event for each row, written when it is given.

    The writers of torch and Lightning write from a thread, each number as an event of its own; an
    error of theirs comes late, with a traceback.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Path | None = None

    def log(self, values: Mapping[str, float], step: int) -> None:
        tagged = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(Event(step=step, summary=Summary(value=tagged)))

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


class Loggers:
    """The loggers of one run.

    Args:
        folder: the run folder. TensorBoard writes into it, and so do wandb and mlflow unless their
            own environment variables say otherwise (WANDB_MODE, MLFLOW_TRACKING_URI); trackio
            writes where TRACKIO_DIR says.
        names: ``tensorboard``, ``trackio``, ``wandb`` or ``mlflow``.

    Attributes:
        run_ids: the ids of the services' runs, by name; set before the first number to
            go on with earlier ones.
    """

    def __init__(self, folder: Path, names: Sequence[str] = ("tensorboard",)) -> None:
        self.folder, self.names = folder, tuple(names)
        self.run_ids: dict[str, str] = {}
        self._board = _Board(folder / "tensorboard") if "tensorboard" in names else None
        self._services: list[Service] = []

    def start(self) -> None:
        """Begin or continue the runs of the services.

        Raises:
            InputError: a service refuses: nobody is logged in, say.
        """
        for name in self.names:
            if name not in _SERVICES:
                continue
            opened, remedy = _SERVICES[name]
            try:
                service = opened(self.folder, self.run_ids.get(name))
                _ = service.experiment  # begins it
                self.run_ids[name] = str(service.version)
                service.log_hyperparams(dict(read_yaml(RunFolder(self.folder).config)))
            # whatever the package raises where it cannot begin
            except Exception as error:
                reason = " ".join(str(error).split())
                raise InputError(
                    f"{name} cannot begin a run ({reason}); {remedy}, or leave {name} out of "
                    "`--logger`"
                ) from error
            self._services.append(service)

    def log(self, values: Mapping[str, float | None], step: int) -> None:
        """Log the measured numbers."""
        measured = {name: value for name, value in values.items() if value is not None}
        if self._board is not None:
            self._board.log(measured, step)
        for service in self._services:
            service.log_metrics(measured, step=step)

    def close(self) -> None:
        """Write buffered numbers."""
        for service in self._services:
            service.finalize("success")
            if isinstance(service, WandbLogger):
                service.experiment.finish()
