"""What the commands that train have in common: flags, progress, and the training of a stage."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from isotrope.core import InputError
from papers.machinery import runner
from papers.machinery.data_registry import DataRegistry, cache_folder
from papers.machinery.job import PaperJob
from papers.machinery.store import JobStore

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""The shared data beside a checkout of this repository."""

RESULTS = Path(__file__).parent / "results"
"""What is committed of trainings and encoders."""


class PapersParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise InputError(f"{message} (see `{self.prog} --help`)")


def parser(command: str, description: str, output: str) -> argparse.ArgumentParser:
    """Return the parser of a command, with its folders of data and of results."""
    made = PapersParser(
        prog=f"python -m papers {command}",
        description=description,
        epilog="The same command goes on where it was stopped.",
    )
    add = made.add_argument
    add("--data", type=Path, default=DATA, metavar="DIR", help="[%(default)s]")
    folder = RESULTS / output
    add("--output", type=Path, default=folder, metavar="DIR", help=f"[papers/results/{output}]")
    return made


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def train(
    jobs: Sequence[PaperJob],
    store: JobStore,
    data: Path,
    *,
    minutes: float | None = None,
    processes: int = 1,
) -> bool:
    """Train what the store lacks; return whether all is there, or time was up before.

    Raises:
        InputError: data that are not here, or trainings that failed; the others are kept.
    """
    sources = DataRegistry(data, cache_folder() / "data")
    lacking = runner.missing_data(jobs, sources).values()
    if missing := list(dict.fromkeys(line for lines in lacking for line in lines)):
        raise InputError(f"not on this machine: {'; '.join(missing)}")
    runs = cache_folder() / "runs"
    failed = runner.run(jobs, store, sources, runs, minutes=minutes, processes=processes, tell=say)
    for job, reason in failed.items():
        raise InputError(
            f"{len(failed)} trainings failed, the others are kept; {job.label}: {reason}"
        )
    return all(store.find(job) is not None for job in jobs)
