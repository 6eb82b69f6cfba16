"""Performs the steps of a run on text or images, with trainers of Hugging Face and callbacks."""

import logging
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from sentence_transformers import SentenceTransformerTrainingArguments
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import TrainerCallback

from isotrope.core.distributed import rank, world_size
from isotrope.core.errors import CannotResume, Diverged, InputError, LostProcess
from isotrope.core.files import remove
from isotrope.core.lock import ensure_not_replaced
from isotrope.core.result import Result, provenance
from isotrope.core.run_folder import RunFolder
from isotrope.encoders.device import find_device
from isotrope.training.checkpoints import Checkpoints, discard_incomplete, newest, step_of
from isotrope.training.dev_scorer import DevScorer
from isotrope.training.launch import CODES, handling
from isotrope.training.nan_guard import NonFiniteGuard, Trained
from isotrope.training.progress import Progress, warn
from isotrope.training.run import (
    Outcome,
    awaits_second,
    backend_of,
    empty_result,
    remove_intermediates,
)
from isotrope.training.run_callback import RunCallback
from isotrope.training.run_log import RunLog, Timer
from isotrope.training.run_settings import RunSettings
from isotrope.training.tensorboard_file import Board
from isotrope.training.time_limit import Pace
from isotrope.training.trainers import RunTrainer

Item = TypeVar("Item")


class Steps(IterableDataset[Item]):
    """The batches ``at(step)`` of the steps from ``start`` to ``stop`` - 1 of a run, in order.

    The batches and their order do not depend on the number of worker processes of the loader.
    """

    def __init__(self, at: Callable[[int], Item], start: int, stop: int) -> None:
        self.at, self.start, self.stop = at, start, stop

    # There is no __len__, because a trainer counts batches from the start of the run: with the
    # number of remaining steps as the length, a resumed run would end too early.

    def __iter__(self) -> Iterator[Item]:
        """Yield the batches of this worker."""
        worker = get_worker_info()
        first, apart = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for step in range(self.start + first, self.stop, apart):
            yield self.at(step)


@dataclass(kw_only=True)
class TrainingTask(ABC):
    """A training on text or images whose settings are checked and whose data are read.

    A subclass defines ``loader``, ``introduce``, ``finish`` and ``details``. If the model of the
    best step is saved, the subclass also defines ``keep``.

    Attributes:
        kind: Kind of the result: the name of the command that runs such trainings.
        logged: Names of the numbers that are copied from the last logged step to the result.
        rate_column: Column of metrics.csv with the number of records per second.
        trainer_class: Class of the trainer, which takes the module and its arguments.
        settings: Settings of the run.
        module: Module to train, in its state before the first step.
        columns: Columns of metrics.csv.
        objective_name: Name of the objective, or of the loss that replaces it, for the result.
        batch_size: Number of records in each step, in all processes together.
        steps_per_epoch: Number of steps in one pass over the data; None if it is not known.
        fingerprint: Hash of the training data; a run resumes only with the same data.
        clip: Norm above which gradients are clipped; None if gradients are never clipped.
        dev: Object that measures the dev score during the run.
        twice: Whether a second training follows this one.
    """

    kind: ClassVar[str]
    logged: ClassVar[Sequence[str]]
    rate_column: ClassVar[str]
    trainer_class: ClassVar[type[RunTrainer]]

    settings: RunSettings
    module: Trained
    columns: Sequence[str]
    objective_name: str
    batch_size: int
    steps_per_epoch: int | None
    fingerprint: str
    clip: float | None
    dev: DevScorer
    twice: bool = False

    # differs between text and images

    @abstractmethod
    def loader(self, start: int) -> DataLoader[Any]:
        """Return a loader of the batches from step ``start`` on."""

    @abstractmethod
    def introduce(self, say: Callable[[str], None]) -> None:
        """Print a summary of the run before its first step."""

    def keep(self, step: int) -> str:
        """Save the model of the best step so far; return the fingerprint of the model.

        A task must define this if the dev score chooses the step to save.
        """
        raise TypeError(f"define keep() in {type(self).__name__}: the dev score chooses the model")

    @abstractmethod
    def finish(self) -> Result:
        """Save the final model, unless it is already saved, and return the result."""

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """Return a dict of details that this kind of training adds to the result."""

    # shared by text and images

    @property
    def most(self) -> int:
        """The largest number of steps to which the run can be corrected."""
        return self.module.steps

    def pace(self) -> Pace | None:
        """Return an object that corrects the number of steps, or None."""
        return None

    @property
    def parameters(self) -> dict[str, object]:
        """The hyperparameters of the objective."""
        return dict(self.module.objective.hyperparameters())

    @property
    def output(self) -> Path:
        """The run folder."""
        return Path(self.settings.output)

    def run(self, *, lines: bool, callbacks: Sequence[TrainerCallback] = ()) -> Outcome:
        """Run the remaining steps, write the files of the run, and return the outcome."""
        output, module, first = self.output, self.module, rank() == 0
        module.train()  # the encoder is in evaluation mode, and the trainer does not change it
        bar, most = self.settings.progress, self.most
        progress = Progress(steps=module.steps, most=most, bar=bar, lines=lines, twice=self.twice)
        trainer = trainer_of(self.trainer_class, self.settings, module, self.clip, most)
        run_callback = self._make_run_callback(progress, trainer)
        if first and "tensorboard" in self.settings.logger:
            callbacks = [Board(output / "tensorboard"), *callbacks]
        self.introduce(progress.say)
        resumed = newest(RunFolder(output).checkpoints, warn)
        if resumed is not None:
            progress.say(f"continues after step {step_of(resumed):,}")
        if first:
            discard_incomplete(RunFolder(output).checkpoints)
        began = time.perf_counter()
        loader = self.loader(0 if resumed is None else step_of(resumed))
        guard = NonFiniteGuard(module, self.settings)
        trainer.attach(run_callback, guard, loader, callbacks)
        stop_code = make_steps(trainer, resumed)
        if stop_code:
            return Outcome(self.result(), output, stop_code, module.encoder, first=first)
        module.blend()
        if not first:
            return Outcome(empty_result(output), output, encoder=module.encoder, first=False)
        run_callback.checkpoints.rotate()  # a killed process may have left too many
        result = self.finish()
        result.metrics["wall_seconds"] = round(time.perf_counter() - began, 3)
        ensure_not_replaced(output)
        remove(RunFolder(output).diagnosis)  # of an unfinished run, so it is outdated
        result.save(RunFolder(output).result)
        remove_intermediates(output)
        if awaits_second(self.settings, result):
            # a request to stop that came with the last step keeps a second training from beginning
            stop_code = CODES[run_callback.stop_signal]
        return Outcome(result, output, stop_code, encoder=module.encoder)

    def _make_run_callback(self, progress: Progress, trainer: RunTrainer) -> RunCallback:
        """Return the callback that does all work between the steps."""
        settings, folder, module = self.settings, RunFolder(self.output), self.module
        timer = Timer(self.batch_size)
        log = RunLog(
            path=folder.metrics,
            columns=self.columns,
            rate_column=self.rate_column,
            steps_per_epoch=self.steps_per_epoch,
            timer=timer,
            module=module,
            progress=progress,
            send=trainer.log_row,
        )
        every, keep = settings.checkpoint_every, settings.keep_every
        checkpoints = Checkpoints(folder.checkpoints, every=every, keep=keep, last=module.steps)
        self.dev.attach(log, self.keep)
        return RunCallback(
            module=module,
            timer=timer,
            checkpoints=checkpoints,
            save=trainer.save_now,
            dev=self.dev,
            fingerprint=self.fingerprint,
            log=log if rank() == 0 else None,
            pace=self.pace(),
        )

    def result(self) -> Result:
        """Return the result of the run so far."""
        settings, dev = self.settings, self.dev
        column, scores, best = dev.column, dev.scores, dev.best_step
        timer, newest, judgement = dev.log.timer, dev.log.newest, dev.judgement()
        return Result(
            kind=self.kind,
            name=self.output.name,
            metrics={
                f"{column}_start": scores[min(scores)] if scores else None,
                f"{column}_best": None if best is None else scores[best],
                f"{column}_best_step": best,
                f"{column}_final": scores[max(scores)] if scores else None,
                "steps": timer.steps,
                "seconds": round(timer.seconds, 3),
                self.rate_column: round(timer.rate, 2),
                **{name: newest.get(name) for name in ("loss", *self.logged)},
            },
            details={
                "objective": {
                    "name": self.objective_name,
                    "parameters": {name: _plain(value) for name, value in self.parameters.items()},
                },
                "backend": dict(zip(("name", "reason"), backend_of(settings), strict=True)),
                "cut": {"c": settings.cut, "what": settings.cut_what},
                **self.details(),
                "verdict": judgement.sentence,
                "judgement": asdict(judgement),
            },
            provenance=provenance(seed=settings.seed, data=self.fingerprint),
        )


def _plain(value: object) -> object:
    return value if isinstance(value, (int, float, str)) or value is None else str(value)


def trainer_of(
    trainer_class: type[RunTrainer],
    settings: RunSettings,
    module: Trained,
    clip: float | None,
    most: int,
) -> RunTrainer:
    """Return the trainer of a run of at most ``most`` steps, without batches and callbacks."""
    device, output = find_device(settings.device), Path(settings.output)
    arguments: dict[str, Any] = {
        "output_dir": str(RunFolder(output).checkpoints),
        "run_name": output.name,
        "max_steps": most,
        "max_grad_norm": clip or 0.0,
        "per_device_train_batch_size": max(1, settings.batch_size // world_size()),
        "seed": settings.seed,
        "use_cpu": device.type == "cpu",
        "bf16": settings.precision == "bf16",
        "fp16": settings.precision == "16",
        # our callbacks log, score and decide when to save
        "logging_strategy": "no",
        "save_strategy": "no",
        "logging_nan_inf_filter": False,
        "report_to": [name for name in settings.logger if name != "tensorboard"] or "none",
        "disable_tqdm": True,
        "ignore_data_skip": True,  # the batches start at the step of the checkpoint
        # buffers are equal in all processes and need not be sent
        "ddp_broadcast_buffers": False,
        "ddp_find_unused_parameters": False,
        "dataloader_drop_last": True,  # all batches have the same size
    }
    with _quiet():
        args = SentenceTransformerTrainingArguments(**arguments)
        args._n_gpu = min(1, args.n_gpu)  # otherwise torch's DataParallel uses all GPUs
        if settings.precision == "32":
            args.mixed_precision = "no"  # accelerate's environment may ask for another
        return trainer_class(model=module, args=args)


def make_steps(trainer: RunTrainer, resumed: Path | None) -> int:
    """Train until the last step, or until a request to stop; return the exit code."""
    run_callback = trainer.run_callback
    with _quiet(), _closing(run_callback), handling(run_callback.on_signal):
        try:
            trainer.train(resume_from_checkpoint=None if resumed is None else str(resumed))
        except (CannotResume, Diverged):
            raise  # both are InputErrors, but callers distinguish them by their class
        except InputError as error:
            # without the traceback that a worker of the loader adds
            raise InputError(str(error).rpartition("InputError: ")[2].strip()) from None
        except (RuntimeError, ConnectionError, EOFError) as error:
            if not is_lost_worker(error):
                raise
            lead = "" if isinstance(error, RuntimeError) else "DataLoader worker: "
            why = lead + (str(error).strip().rstrip(".") or type(error).__name__)
            raise LostProcess(
                f"use fewer `--workers` if memory is short: a process that reads data died ({why})"
            ) from error
    return CODES[run_callback.stop_signal] if run_callback.interrupted else 0


def is_lost_worker(error: BaseException) -> bool:
    """Return whether an error reports that a process of the data loader has died."""
    if isinstance(error, RuntimeError):
        return str(error).startswith("DataLoader worker")
    # _try_get_data is the method with which torch's loader reads a batch
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, (ConnectionError, EOFError)) and "_try_get_data" in frames


@contextmanager
def _closing(run_callback: RunCallback) -> Iterator[None]:
    """Close the bar and the log at the end, also after an error, which is raised again."""
    try:
        yield
    except BaseException:
        with suppress(InputError):
            run_callback.close()
        raise
    run_callback.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Mute the libraries' messages on the training; the run prints its own."""
    names = ("transformers", "sentence_transformers", "accelerate")
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="(transformers|accelerate|torch.utils).*")
            yield
    finally:
        for logger, before in levels.items():
            logger.setLevel(before)
