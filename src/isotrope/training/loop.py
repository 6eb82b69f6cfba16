"""The loop over the steps of a run, for text and images: Lightning's Trainer with our callbacks.

What differs between the two is a ``TrainingTask``: what is trained, its batches, its dev score,
what it says before the first step, and how it saves the model and completes the result at the end.
"""

import logging
import signal
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import lightning as L
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader

from isotrope.core.distributed import launched_processes, rank, world_size
from isotrope.core.errors import CannotResume, Diverged, InputError, LostProcess
from isotrope.core.lock import ensure_not_replaced
from isotrope.core.result import Result, provenance
from isotrope.core.run_folder import RunFolder
from isotrope.training.callbacks import (
    Checkpoints,
    DataFingerprintCheck,
    Dev,
    DirectCheckpointIO,
    ImmediateInterrupt,
    Metrics,
    ProvenanceWriter,
    Stop,
    Timer,
    worker_gone,
)
from isotrope.training.images.method import ImageMethod
from isotrope.training.launch import REQUEUE
from isotrope.training.nan_guard import NonFiniteGuard
from isotrope.training.progress import Progress, warn
from isotrope.training.run import (
    Outcome,
    backend_of,
    checkpoint,
    empty_result,
    remove_intermediates,
)
from isotrope.training.settings import RunSettings
from isotrope.training.simcse import SimCSE

__all__ = ["TrainingTask", "make_steps"]

_PRECISION: Mapping[str, Literal["32-true", "bf16-mixed", "16-mixed"]] = {
    "32": "32-true",
    "bf16": "bf16-mixed",
    "16": "16-mixed",
}
"""What Lightning calls a precision."""


@dataclass(frozen=True, kw_only=True)
class TrainingTask(ABC):
    """A training on text or on images, checked and prepared.

    A subclass says what differs between the two: ``loader``, ``introduce``, ``finish``, ``details``
    and, where the best step is saved, ``keep``.

    Attributes:
        kind: the result's kind.
        logged: numbers of a logged step that go into the result.
        settings: the run's settings.
        module: what is trained, as it is before the first step.
        columns: the columns of metrics.csv; the last is the rows of data a second.
        objective_name: the name of the objective.
        batch_size: rows of data in a step.
        steps_per_epoch: steps of one pass over the data, if that is known.
        fingerprint: the data's fingerprint.
        clip: the largest norm of the gradient, or None.
        dev: the score that is watched.
    """

    kind: ClassVar[str]
    logged: ClassVar[Sequence[str]]

    settings: RunSettings
    module: SimCSE | ImageMethod
    columns: Sequence[str]
    objective_name: str
    batch_size: int
    steps_per_epoch: int | None
    fingerprint: str
    clip: float | None
    dev: Dev

    # what differs between text and images

    @abstractmethod
    def loader(self, start: int) -> DataLoader[Any]:
        """Return a loader of the batches from step ``start`` on."""

    @abstractmethod
    def introduce(self, say: Callable[[str], None]) -> None:
        """Print a summary of the run before its first step."""

    def keep(self, step: int) -> str:
        """Save the model of a step that is the best so far; return its fingerprint.

        Only a task whose ``dev`` chooses the step is asked to, and has its own.

        Raises:
            TypeError: this one does not.
        """
        raise TypeError(f"{type(self).__name__} does not choose a step: it saves the last")

    @abstractmethod
    def finish(self) -> Result:
        """Save the model at the end, where it is not saved yet, and return the result."""

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """Return the details that this kind of training adds to the result."""

    # what is the same

    @property
    def parameters(self) -> dict[str, object]:
        """The hyperparameters of the objective."""
        return dict(self.module.objective.hyperparameters())

    @property
    def output(self) -> Path:
        """The run folder."""
        return Path(self.settings.output)

    def run(self, *, lines: bool) -> Outcome:
        """Make the remaining steps, and write the files of a finished run.

        Args:
            lines: say how far it is without a bar, too; warnings are always printed.

        Raises:
            InputError: a checkpoint that does not fit, a diverged training, a full disk.
            LostProcess: one of several processes has gone.
        """
        output, module, first = self.output, self.module, rank() == 0
        module.train()  # loading left the encoder in evaluation mode, and Lightning keeps modes
        progress = Progress(steps=module.steps, bar=self.settings.progress, lines=lines)
        callbacks = self._callbacks(progress)
        self.introduce(progress.say)
        resumed, start = checkpoint(RunFolder(output).checkpoints, warn)
        began = time.perf_counter()
        loader = self.loader(start)
        code = make_steps(
            self.settings, module, loader, resumed=resumed, callbacks=callbacks, clip=self.clip
        )
        if code:
            return Outcome(self.result(), output, code, module.encoder, first=first)
        if not first:
            return Outcome(empty_result(output), output, encoder=module.encoder, first=False)
        result = self.finish()
        result.metrics["wall_seconds"] = round(time.perf_counter() - began, 3)
        ensure_not_replaced(output)
        result.save(RunFolder(output).result)
        remove_intermediates(output)
        return Outcome(result, output, encoder=module.encoder)

    def _callbacks(self, progress: Progress) -> list[L.Callback]:
        """Return the callbacks of a run, in their order."""
        settings, output, timer = self.settings, self.output, Timer()
        metrics = Metrics(
            output,
            batch_size=self.batch_size,
            steps_per_epoch=self.steps_per_epoch,
            timer=timer,
            columns=self.columns,
            loggers=settings.logger,
            progress=progress,
        )
        checkpoints = Checkpoints(
            RunFolder(output).checkpoints,
            every=settings.checkpoint_every,
            keep=settings.keep_every,
            last=self.module.steps,
            timer=timer,
        )
        self.dev.attach(metrics, timer, progress, self.keep)
        origin = ProvenanceWriter(output, seed=settings.seed, data=self.fingerprint)
        return [
            timer,
            # the first process alone tells, scores and writes
            *([progress, origin, metrics, self.dev] if rank() == 0 else []),
            *(DataFingerprintCheck(self.fingerprint), Stop(checkpoints, self.dev), checkpoints),
        ]

    def result(self) -> Result:
        """Return the numbers of a run as far as it has come."""
        settings, module, dev = self.settings, self.module, self.dev
        column, scores, best = dev.column, dev.scores, dev.best
        timer, newest, judgement = dev.timer, dev.metrics.last(), dev.judgement()
        return Result(
            kind=self.kind,
            name=self.output.name,
            metrics={
                f"{column}_start": scores[min(scores)] if scores else None,
                f"{column}_best": None if best is None else best[1],
                f"{column}_best_step": None if best is None else best[0],
                f"{column}_final": scores[max(scores)] if scores else None,
                "steps": module.global_step,
                **module.guard.counted,
                "seconds": round(timer.seconds, 3),
                self.columns[-1]: round(
                    timer.steps * self.batch_size / max(timer.seconds, 1e-9), 2
                ),
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


def make_steps(
    settings: RunSettings,
    module: SimCSE | ImageMethod,
    loader: DataLoader[Any],
    *,
    resumed: Path | None,
    callbacks: Sequence[L.Callback],
    clip: float | None,
) -> int:
    """Train to the last step or to a request to stop; return the exit code.

    Args:
        settings: the run's settings.
        module: what is trained; its ``global_step`` says afterwards how far it came.
        loader: gives the batch of each step that is left.
        resumed: checkpoint to resume from.
        callbacks: a ``Timer`` first, a ``Stop`` among them; in the first process a ``Progress`` and
            ``Metrics``, too.
        clip: largest norm of the gradient, or None.
    """
    together = world_size() > 1
    here = launched_processes()[1] if together else 1
    module.guard = NonFiniteGuard(settings, clip)
    (stop,) = (c for c in callbacks if isinstance(c, Stop))
    timer, *others = callbacks
    with _quiet(), _closing(callbacks):
        trainer = L.Trainer(
            accelerator={"auto": "auto", "cuda": "gpu"}.get(settings.device, settings.device),
            devices=here,
            num_nodes=world_size() // here,
            # buffers are the same everywhere: no step needs them sent around
            strategy=DDPStrategy(broadcast_buffers=False) if together else "auto",
            plugins=[DirectCheckpointIO(), *([TorchElasticEnvironment()] if together else [])],
            precision=_PRECISION[settings.precision],
            max_steps=module.steps,
            max_epochs=-1,
            # what is not finite is neither logged nor scored nor saved
            callbacks=[timer, module.guard, *others],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
        try:
            trainer.fit(module, loader, ckpt_path=resumed, weights_only=True)
        except ImmediateInterrupt:
            raise KeyboardInterrupt from None
        except (CannotResume, Diverged):
            raise
        except InputError as error:
            # a worker of the loader sends its traceback along
            raise InputError(str(error).rpartition("InputError: ")[2].strip()) from None
        except (RuntimeError, ConnectionError, EOFError) as error:
            if not worker_gone(error):
                raise
            why = str(error).strip().rstrip(".") or type(error).__name__
            if not isinstance(error, RuntimeError):
                why = f"DataLoader worker: {why}"
            raise LostProcess(
                f"a process that reads data has gone ({why}; often for want of memory: fewer "
                "`--workers` need less)"
            ) from error
        finally:
            stop.restore()
    if stop.signal is not None and trainer.global_step < module.steps:
        return 128 + signal.SIGINT if stop.signal == signal.SIGINT else REQUEUE
    return 0


@contextmanager
def _closing(callbacks: Sequence[L.Callback]) -> Iterator[None]:
    """Close bar and log at the end; where there was an error, that is the one to tell."""
    last = [callback for callback in callbacks if isinstance(callback, (Progress, Metrics))]
    try:
        yield
    except BaseException:
        for callback in last:
            with suppress(InputError):
                callback.close()
        raise
    for callback in last:
        callback.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning's advertising and its advice about our own loader off the screen."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning.*")
            yield
    finally:
        logger.setLevel(level)
