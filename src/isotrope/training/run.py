"""Runs a training on text or images: its folder, processes, checkpoints and outcome.

:func:`run` locks the run folder and calls a function that checks the settings, prepares the data
and trains. If the settings demand several processes, each process calls this function.
"""

import importlib
import importlib.util
import os
import random
import shlex
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from isotrope.core.distributed import (
    all_reduce_max,
    is_peer_failure,
    launched_processes,
    process_group,
    rank,
    world_size,
)
from isotrope.core.documents import read_json, read_yaml
from isotrope.core.errors import (
    CannotResume,
    InputError,
    LostProcess,
    NoTerms,
    SettingError,
    needs_extra,
)
from isotrope.core.files import remove, tidy, write_text
from isotrope.core.legible import counted
from isotrope.core.lock import Role, exclusive_lock
from isotrope.core.metrics_log import read_log
from isotrope.core.progress import showing
from isotrope.core.result import Result, json_text, provenance
from isotrope.core.run_folder import LOCK, RunFolder
from isotrope.core.spelling import named, spell_all
from isotrope.core.views import Views
from isotrope.encoders.device import find_device
from isotrope.kernels.choose import choose
from isotrope.paradigm.objective import Objective
from isotrope.training.checkpoints import exists
from isotrope.training.early_checks import check_folder
from isotrope.training.launch import REQUEUE, Terminated, handling, interrupt, launch, launched
from isotrope.training.progress import warn
from isotrope.training.run_settings import RunSettings
from isotrope.training.settings import TrainSettings

if TYPE_CHECKING:
    from pandas import DataFrame

    from isotrope.diagnostics.findings import Diagnosis
    from isotrope.reports.pictures import Drawing

Settings = TypeVar("Settings", bound=RunSettings)
Work = Callable[[Settings, bool], "Outcome"]  # called with settings and whether to print lines


@dataclass(frozen=True, repr=False)
class Outcome:
    """The outcome of a training; it may be passed in place of the path of the run folder.

    Attributes:
        result: Numbers and provenance of the run; after an interruption, of the steps so far.
        output: The run folder.
        exit_code: 0 if the run finished, 130 after Ctrl-C, 75 after SIGTERM.
        encoder: The encoder after the last step. The saved model may be from an earlier step with a
            better score. None if no step was run in this process.
        first: Whether this is the first or only process. Other processes have no numbers.
    """

    result: Result
    output: Path
    exit_code: int = 0
    encoder: Any = None
    first: bool = True

    def __fspath__(self) -> str:
        return str(self.output)

    @property
    def history(self) -> "DataFrame":
        """The log of the run as a DataFrame: a row for each logged step, a column for each number.

        Raises:
            InputError: Nothing was logged, or the log is damaged.
        """
        from pandas import DataFrame

        names, rows = read_log(RunFolder(self.output).metrics, complete=False)
        table = DataFrame.from_dict(rows, orient="index", columns=names)
        table = table[sorted(names, key=("dev", "dissipation").count)]  # last: print shows them
        return table.rename_axis("step").reset_index().dropna(axis=1, how="all")

    def diagnose(self, *, plugins: Sequence[str | Path] = (), progress: bool = True) -> "Diagnosis":
        """Return the diagnosis of the run: faults, and what to change; see ``isotrope.diagnose``.

        Raises:
            InputError: The run folder is damaged.
        """
        from isotrope.diagnostics.target import diagnose

        return diagnose(self, plugins=plugins, progress=progress)

    def plot(self, *quantities: str) -> "Drawing":
        """Draw columns of :attr:`history` over the steps; by default loss, score and components.

        Raises:
            InputError: A column cannot be drawn, or the run folder is damaged.
            MissingExtra: matplotlib is not installed.
        """
        with needs_extra("report"):
            from isotrope.reports.pictures import figure_of
        return figure_of(self.output, quantities)

    def __repr__(self) -> str:
        return f"Outcome({str(self.output)!r}: {self._sentence()})"

    def __str__(self) -> str:
        """Return the outcome, what the training changed, and what to do next."""
        from isotrope.reports.run_summary import lines_on_changes

        details = {} if self.exit_code else self.result.details  # advice is for finished runs
        return "\n".join([repr(self), *lines_on_changes(details, shlex.quote(str(self.output)))])

    def _sentence(self) -> str:
        steps = int(self.result.metrics.get("steps") or 0)
        if self.exit_code:
            return f"stopped at step {steps}"
        verdict = spell_all(str(self.result.details.get("verdict", "no result is known")))
        return "; ".join(filter(None, (counted(steps, "step"), verdict, _trained_apart(self))))


def _trained_apart(outcome: Outcome) -> str:
    """Return where the trained model is if the run saved the original model, otherwise ""."""
    folder = RunFolder(outcome.output).rejected
    return f"the trained model is in {folder}" if folder.is_dir() else ""


def empty_result(output: Path) -> Result:
    """Return a result without scores, for a process that has measured nothing of the run."""
    return Result(kind="train", name=output.name, metrics={"steps": 0})


def stop_message(outcome: Outcome) -> str:
    """Return the message of the command line about a stopped run."""
    folder = RunFolder(outcome.output)
    if folder.result.is_file():
        verdict = outcome.result.details.get("verdict", "")
        done = f"stopped after the first training, whose model is saved in {folder.model}"
        return f"run the same command with --resume to continue: {done}\n{verdict}".rstrip()
    if not exists(folder.checkpoints):
        return "run the same command with --resume to begin again: stopped without a checkpoint"
    steps = outcome.result.metrics["steps"]
    return (
        f"stopped{f' at step {steps}' if steps else ''}; run the same command with --resume to "
        f"continue from the checkpoint in {folder.checkpoints}"
    )


def end_message(outcome: Outcome, notes: str, speed: str) -> str:
    """Return the message of the command line about a finished run."""
    metrics, folder = outcome.result.metrics, RunFolder(outcome.output)
    apart = _trained_apart(outcome)
    second = outcome.result.details.get("refit")
    twice = f" and {second['seconds']:.0f} s for the second training" if second else ""
    return (
        f"{outcome.result.details['verdict']}\n{notes}"
        f"{counted(int(metrics['steps'] or 0), 'step')}, {metrics['seconds']:.0f} s{twice}{speed}\n"
        f"model:  {folder.model}{f' (the original; {apart})' if apart else ''}\n"
        f"report: isotrope report {shlex.quote(str(folder.path))}"
    )


_ONE_AT_A_TIME = threading.RLock()  # a process has only one generator of random numbers


def run(settings: Settings, work: Work[Settings], *, resume: bool, lines: bool = False) -> Outcome:
    """Train with the given settings and write the run folder.

    With ``devices`` above 1, this function starts the processes, unless torchrun has started them.
    If several threads of a process call this function, they train one after the other.
    """
    check_loggers(settings.logger)
    device = check_devices(settings)
    try:
        if settings.devices > 1 and launched_processes()[0] == 1:
            return _launch(settings, work, resume=resume, lines=lines)
        with _ONE_AT_A_TIME, process_group(device), showing(show=lines or settings.progress):
            return _here(settings, work, resume=resume, lines=lines)
    except Exception as error:
        lost = _lost(error)
        if lost is None and not is_peer_failure(error):
            raise
        ended = "this process ended because another process of the run ended"
        what = lost.args[0] if lost else ended
        then = "start again: there is no checkpoint"
        if exists(RunFolder(settings.output).checkpoints):
            then = "continue from the last checkpoint"
        how = "again" if resume else "with `--resume`"
        raise LostProcess(f"{what}; run the same command {how} to {then}") from error


def _lost(error: BaseException | None) -> LostProcess | None:
    """Return the error of a lost process, even if torch raised another error after it."""
    while error is not None and not isinstance(error, LostProcess):
        error = error.__context__
    return error


def _launch(settings: Settings, work: Work[Settings], *, resume: bool, lines: bool) -> Outcome:
    """Train in processes started here."""
    output = Path(settings.output)
    with _taken(settings, resume=resume, role="starter", lines=lines) as finished:
        if finished is not None:
            return finished
        torch.cuda.empty_cache()  # what measuring the encoder took, on the GPU of a process
        code, result = launch(settings.devices, _rank, (settings, work, resume, lines))
        return Outcome(result or empty_result(output), output, exit_code=code)


def _rank(order: tuple[Settings, Work[Settings], bool, bool]) -> tuple[int, Result]:
    """Train as one of several processes."""
    settings, work, resume, lines = order
    outcome = run(settings, work, resume=resume, lines=lines)
    return outcome.exit_code, outcome.result


def _here(settings: Settings, work: Work[Settings], *, resume: bool, lines: bool) -> Outcome:
    """Train in this process. It may be one of several; only the first checks and writes."""
    output, first = Path(settings.output), rank() == 0
    role: Role = "started" if launched() else "only"
    taken = _taken(settings, resume=resume, role=role, lines=lines) if first else nullcontext()
    # handles SIGTERM before the first step and after the last; ``RunCallback`` handles it otherwise
    with handling(interrupt, [signal.SIGTERM]), _random_states_kept():
        try:
            with taken as finished:
                if all_reduce_max(finished is not None):
                    return finished or Outcome(empty_result(output), output, first=False)
                return work(settings, lines)
        except Terminated:
            # 75 tells a scheduler to run the same command again
            return Outcome(empty_result(output), output, exit_code=REQUEUE)


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """Restore the global random generators at the end, because the trainers seed them."""
    legacy = np.random.mtrand._rand  # numpy's global generator
    states = random.getstate(), legacy.get_state(), torch.get_rng_state()
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        random.setstate(states[0])
        legacy.set_state(states[1])
        torch.set_rng_state(states[2])
        if gpus:
            torch.cuda.set_rng_state_all(gpus)


def without_mean(settings: TrainSettings) -> bool:
    """Return whether the weights of two runs cannot be averaged."""
    several = launched_processes()[0] > 1 and not launched()  # our parent process averages
    return several or settings.lora is not None or settings.encoder == "scratch"


def awaits_second(settings: RunSettings, result: Result) -> bool:
    """Return whether the second training of a run with this result has yet to be made."""
    wanted = isinstance(settings, TrainSettings) and settings.refit and not without_mean(settings)
    return wanted and bool(result.metrics.get("dev_best_step")) and "refit" not in result.details


@contextmanager
def _taken(
    settings: RunSettings, *, resume: bool, role: Role, lines: bool
) -> Iterator[Outcome | None]:
    """Lock the run folder; yield the outcome of a finished run, or None."""
    output = Path(settings.output)
    # before the lock, which changes the folder
    unlocked = not (output / LOCK).exists()
    finished = check_folder(output, settings, resume=resume) if unlocked else None
    lock = exclusive_lock(output, f"training in {output}", role=role)
    with lock if finished is None else nullcontext():
        finished = finished or check_folder(output, settings, resume=resume)
        if finished is None:
            yield None
            return
        with suppress(OSError):  # the folder can be read only
            remove_intermediates(output)
        if lines and not awaits_second(settings, finished):
            warn(f"nothing to train: the run in {output} is finished")
        yield Outcome(finished, output)


def check_devices(settings: RunSettings) -> str:
    """Return the type of the device to train on ("cuda", ...); refuse too many processes."""
    kind = find_device(settings.device).type
    total, here = launched_processes()
    settings.check_used(
        accelerator=kind,
        started=here if total > 1 else 0,
        processes=max(total, settings.devices),
        gpus=torch.cuda.device_count() if kind == "cuda" else settings.devices,
    )
    if settings.batch_size < (total := max(total, settings.devices)):
        raise SettingError(
            f"each of the {total} processes needs a row of every batch",
            setting="batch_size",
            value=settings.batch_size,
            remedy=f"use a batch size of at least {total}",
        )
    return kind


def check_loggers(names: Sequence[str]) -> None:
    """Refuse loggers whose packages are not installed; TensorBoard is always installed."""
    for name in names:
        if name != "tensorboard" and importlib.util.find_spec(name) is None:
            raise SettingError(
                f"the package {name} is not installed",
                setting="logger",
                value=name,
                remedy=f"pip install {name}",
            )


def write_config(settings: RunSettings) -> None:
    """Make the run folder and write config.yaml, with a line on each changed setting."""
    output, config = Path(settings.output), RunFolder(settings.output).config
    if config.is_file():
        before = type(settings).read(read_yaml(config), source=str(config))
        for name in sorted(settings.free & before.model_dump().keys() - {"output", "progress"}):
            if (old := getattr(before, name)) != (new := getattr(settings, name)):
                # nothing is shown like False, as --no-keep-every
                now, then = (named(name, x not in (None, []) and x) for x in (new, old))
                warn(f"this resumed run has {now} in place of {then}")
    RunFolder(output).write_settings(settings.to_yaml())
    _tidy(output)


def write_provenance(folder: Path, step: int, *, seed: int, data: str) -> None:
    """Add versions, seed and data to provenance.json, when a run starts and when it is resumed."""
    path, parts = RunFolder(folder).provenance, list[dict[str, Any]]()
    if step > 0 and path.is_file():
        with suppress(InputError):  # a damaged file is replaced
            recorded = read_json(path)
            parts = recorded if isinstance(recorded, list) else []
    now = {"step": step, **provenance(seed=seed, data=data)}
    before = parts[-1].get("versions") if parts and isinstance(parts[-1], dict) else None
    if before not in (None, now["versions"]):
        warn(
            "warning: numbers may differ in the last digits from those of an uninterrupted run: "
            f"package versions changed before this run was resumed (see {path})"
        )
    write_text(path, json_text([*parts, now]))


def remove_intermediates(output: Path) -> None:
    """Remove the files that a finished run does not need."""
    _tidy(output)
    remove(RunFolder(output).tokens)
    remove(RunFolder(output).plan)


def _tidy(output: Path) -> None:
    for folder, _, _ in os.walk(output):
        tidy(Path(folder))


def try_objective(objective: Objective, *, negatives: bool) -> None:
    """Compute the loss once on random embeddings, to find errors before the training."""
    noise = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0))
    try:
        objective(noise[0], noise[1], noise[2] if negatives else None)
    except (ValueError, NoTerms) as error:
        raise InputError(f"objective {objective.name}: {error}") from error


def hardware(settings: RunSettings) -> str:
    """Return a line with the device, precision, threads and loss backend of a run."""
    device = find_device(settings.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    here = f"{world_size()} processes on {name}" if world_size() > 1 else name
    threads = torch.get_num_threads()
    return (
        f"on {here}, precision {settings.precision}, {counted(threads, 'CPU thread')}, "
        f"loss backend {backend_of(settings)[0]}"
    )


def backend_of(settings: RunSettings) -> tuple[str, str]:
    """Return a tuple of the backend that computes the loss of a batch, and the reason for it."""
    # only the number of rows and their device matter
    rows = torch.empty(1, 1, device=find_device(settings.device)).expand(settings.batch_size, 1)
    return choose(Views(rows, rows), settings.backend)


def trained(settings: RunSettings, train: Callable[..., Outcome] | None = None) -> Outcome:
    """Continue from the last checkpoint; without a usable checkpoint, train from the start.

    Args:
        settings: Settings of the run. No other training may use the same output folder.
        train: Function that trains. By default, the settings determine it (text or images).
    """
    if train is None:
        train = importlib.import_module(settings.module).train
    begun = RunFolder(settings.output).config.is_file() and RunFolder(settings.output).is_begun
    try:
        outcome = train(settings, resume=True)
    except CannotResume:
        if not begun:
            raise  # the files in the folder are not those of a run
        # other settings, or damaged checkpoints: the folder is ours, so train from the start
        shutil.rmtree(settings.output, ignore_errors=True)
        outcome = train(settings, resume=True)
    if outcome.exit_code == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if outcome.exit_code:
        raise LostProcess("run the same command again to continue: stopped on request")
    return outcome
