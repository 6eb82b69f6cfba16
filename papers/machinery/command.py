"""The parts that the commands of ``python -m papers`` share: parser, data and progress."""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from isotrope.core import InputError

SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
"""The shared data beside a checkout of this repository."""


class PapersParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise InputError(f"{message} (see `{self.prog} --help`)")


def parser_of(verb: str, description: str) -> PapersParser:
    """Return the parser of a command that reads the shared data."""
    resumes = "The same command continues where it was stopped."
    parser = PapersParser(prog=f"python -m papers {verb}", description=description, epilog=resumes)
    told = "folder with corpus/ and sts/ [%(default)s]"
    parser.add_argument("--data", type=Path, default=SHARED_DATA, metavar="DIR", help=told)
    return parser


def tell(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)
