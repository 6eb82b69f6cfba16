"""``isotrope check``: whether a loss is the same by every way of training with it."""

import multiprocessing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isotrope.cli.command import Command
from isotrope.core.errors import InputError, SettingError
from isotrope.core.settings import Settings, setting
from isotrope.core.table import table

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from isotrope.paradigm.objective_check import Check

EPILOG = """\
examples:
  isotrope check my_loss.py               is your loss the same in chunks, gradient-cached, on two
                                          processes, permuted, in bfloat16, and finite at the edge?
  isotrope check my_loss.py:second_loss   the same for one of several losses
  isotrope check my_loss.py --dimensions 768
                                          a loss whose layers take embeddings of that width
  isotrope check infonce                  is its gradient what its components say?

The file defines objectives, functions of (anchors, positives) that return a scalar, or modules with
such a forward. Those whose name contains "loss" are checked, or the one that FILE:NAME names. A
third parameter without a default receives negatives; chunk_size, mini_batch_size or margin, as a
parameter or an attribute, is tried with several values. On two processes, each calls the loss with
its own rows. The exit code is 1 if something is wrong. A file runs in a process of its own; a loss
that ends it, or takes more than ten minutes, is wrong.
"""

LIMIT = 600.0
"""Seconds that the checks of a file may take; most take a few."""


class CheckSettings(Settings):
    """Settings of ``isotrope check``."""

    loss: str = setting(..., "File with losses, or an objective.", "FILE|NAME", positional=True)
    dimensions: int | None = setting(
        None, "Width of the embeddings that the losses of a file are called on.", shown="16", ge=2
    )


def check(settings: CheckSettings) -> int:
    """Print the checks of an objective, or of the losses of a file."""
    file, _, name = settings.loss.partition(":")
    if not file.endswith(".py"):
        if settings.dimensions is not None:
            raise SettingError(
                f"applies to the losses of a FILE.py; {settings.loss} is an objective, which is "
                "checked at several widths",
                setting="dimensions",
                remedy="leave it out",
            )
        from isotrope.paradigm import registry
        from isotrope.paradigm.objective_check import prove

        objective = registry.find(settings.loss)
        text, wrong = _shown({objective.name: prove(objective)})
    else:
        text, wrong = _apart(Path(file), name, settings.dimensions)
    print(text)
    return 1 if wrong else 0


def _apart(file: Path, name: str, dimensions: int | None) -> tuple[str, bool]:
    """Check a file in a process of its own, which its losses may end or keep from ending."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, file, name, dimensions))
    process.start()
    theirs.close()
    try:
        if not ours.poll(LIMIT):
            return f"{file}: WRONG: no end after {LIMIT:g} seconds", True
        refused, text, wrong = ours.recv()
    except EOFError:
        process.join()
        return f"{file}: WRONG: a loss ended the process (exit code {process.exitcode})", True
    finally:
        process.kill()
        process.join()
    if refused is not None:
        raise refused
    return text, wrong


def _answer(pipe: "Connection", file: Path, name: str, dimensions: int | None) -> None:
    from isotrope.training.loss_check import DIMENSIONS, check_file

    try:
        checked = check_file(file, name, dimensions=dimensions or DIMENSIONS)
    except InputError as error:
        pipe.send((error, "", True))
    else:
        pipe.send((None, *_shown(checked)))


def _shown(checked: "Mapping[str, Sequence[Check]]") -> tuple[str, bool]:
    """Return the tables of all losses, and whether something is wrong."""
    marks = {True: "ok", False: "WRONG", None: "-"}
    texts = []
    for key, checks in checked.items():
        rows = [[c.name, str(c.tried), c.worst, marks[c.passed]] for c in checks]
        lines = [key, "", table(["compared", "tried", "largest difference", ""], rows)]
        lines += [f"{check.name}: {check.means}" for check in checks if check.means]
        texts.append("\n".join([*lines, *_explained(key, checks)]))
    wrong = any(c.passed is False for checks in checked.values() for c in checks)
    return "\n\n".join(texts), wrong


def _explained(name: str, checks: "Sequence[Check]") -> list[str]:
    """Return by what factor an objective's components are off, if they are."""
    from isotrope.paradigm.mistakes import mistakes
    from isotrope.paradigm.objective import Objective

    cls = Objective.registered.get(name.lower())
    if cls is None or checks[0].passed is not False or not checks[0].tried:
        return []
    return [
        "\nformula and components on a random batch of 4 anchors, in 16 dimensions:",
        *mistakes(cls()),
    ]


run = Command(
    "check",
    CheckSettings,
    check,
    "Check that a loss is the same in chunks, cached, permuted and on two processes.",
    EPILOG,
)
