"""``isotrope check``: check the gradient of a loss, also if its batch is split or permuted."""

import itertools
import multiprocessing
import signal
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from isotrope.cli.command import Command
from isotrope.core.errors import InputError
from isotrope.core.legible import legible
from isotrope.core.settings import Settings, Used, setting

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from isotrope.paradigm.objective_check import Check

EPILOG = """\
examples:
  isotrope check my_loss.py               check all losses of a file
  isotrope check my_loss.py:second_loss   check one of them
  isotrope check my_loss.py --dimensions 768
                                          give the losses embeddings of 768 dimensions
  isotrope check infonce                  compare the components of an objective (GD, W and R) with
                                          the gradient of its formula

A loss in FILE is an objective, a function of (anchors, positives) that returns a scalar, or a
module whose forward is such a function. A function or module is checked if its name contains
"loss"; FILE:NAME checks only NAME. A third parameter without a default receives negatives; its name
must contain "neg". The gradient of a whole batch is compared with the gradient in chunks of the
batch, with gradient caching, on permuted rows, in bfloat16, and on two processes with half of the
rows each. If the loss has a parameter chunk_size, mini_batch_size or margin, several values are
tried. Positives must attract, and each input must change the loss. A sum in place of a mean, a
missing temperature and a setting without effect on the gradient are shown by a dash. A loss that
ends the Python process fails. The exit code is 1 if a check fails, or if ten minutes are not
enough.
"""

LIMIT = 600.0
"""Seconds that the checks of a file may take; most files take a few seconds."""

_BATCH = "\nformula and components on a random batch of 4 anchors, in 16 dimensions, of"


class CheckSettings(Settings):
    """Settings of ``isotrope check``."""

    loss: str = setting(
        ..., "Python file of losses, or name of an objective.", "FILE|NAME", positional=True
    )
    dimensions: int | None = setting(
        None,
        "Number of dimensions of the random embeddings that the losses of FILE receive.",
        shown="16",
        ge=2,
        used=Used(lambda loss: ".py" in loss, "needs a file of losses, FILE.py"),
    )


def check(settings: CheckSettings) -> int:
    """Check an objective, or the losses of a file; print each result, and return the exit code."""
    file, ending, name = settings.loss.partition(".py:")  # a path of Windows has a colon too
    file += ending[:3]
    if not file.endswith(".py"):
        from isotrope.paradigm import registry
        from isotrope.paradigm.objective_check import prove

        objective = registry.find(settings.loss)
        return _print_checks((objective.name, check) for check in prove(objective))
    return _print_checks(_check_file(Path(file), name, settings.dimensions))


def _check_file(file: Path, name: str, dimensions: int | None) -> Iterator[tuple[str, "Check"]]:
    """Check a file in a separate process, because a loss may end or block its process.

    If the command is interrupted, the running check is not reported.
    """
    from isotrope.paradigm.objective_check import Check

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send_checks, args=(theirs, file, name, dimensions))
    process.start()
    theirs.close()
    until = time.monotonic() + LIMIT
    try:
        while ours.poll(max(0.0, until - time.monotonic())):
            result = ours.recv()
            if result is None:
                return
            if isinstance(result, Exception):
                raise result
            yield result
        yield str(file), Check("all", 0, f"not finished after {LIMIT:g} s", passed=False)
    except EOFError:
        process.join()
        ended = f"a loss ended the process (exit code {process.exitcode})"
        find = "to find the loss that did this, check one loss at a time with FILE:NAME"
        yield str(file), Check("all", 0, ended, passed=False, means=find)
    finally:
        process.kill()
        process.join()


def _send_checks(pipe: "Connection", file: Path, name: str, dimensions: int | None) -> None:
    """Send each check of a file, an error of the user, and at last None."""
    from isotrope.paradigm.objective_check import raised
    from isotrope.training.loss_check import checks_in
    from isotrope.training.loss_subject import DIMENSIONS

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends this one
    try:
        for result in checks_in(file, name, dimensions=dimensions or DIMENSIONS):
            pipe.send(result)
    except InputError as error:
        pipe.send(error)
    except Exception as error:
        traceback.print_exc()
        pipe.send((str(file), raised("all", error)))
    pipe.send(None)


def _line(name: str, tried: str, worst: str, mark: str) -> str:
    return f"{legible(name):45}  {tried:>5}  {legible(worst):25}  {mark}".rstrip()


def _print_checks(checked: Iterable[tuple[str, "Check"]]) -> int:
    """Print each check when it is done, then explain the failed ones; return the exit code."""
    marks = {True: "ok", False: "WRONG", None: "-"}
    wrong = False
    for key, group in itertools.groupby(checked, key=lambda result: result[0]):
        print(f"{key}\n\n{_line('compared', 'tried', 'largest difference', '')}")
        print(_line("-" * 45, "-----", "-" * 25, "--"))
        faults, remarks, mistakes = list[str](), list[str](), list[str]()
        for _, check in group:
            print(_line(check.name, str(check.tried), check.worst, marks[check.passed]), flush=True)
            explained = faults if check.passed is False else remarks
            explained += [f"{check.name}: {check.means}"] if check.means else []
            if check.mistakes and not mistakes:
                mistakes = [f"{_BATCH} {check.mistakes[0]}", *check.mistakes[1:]]
            wrong |= check.passed is False
        print("\n".join([*faults, *remarks, *mistakes, ""]))
    return 1 if wrong else 0


run = Command(
    "check",
    CheckSettings,
    check,
    "Check what the gradient of a loss does, and that it stays the same if the batch is split.",
    EPILOG,
)
