"""Runs the command line; Ctrl-C ends it with a message of one line, even during the imports."""

import importlib
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)  # during the imports
    from isotrope.cli.main import VERBS
    from isotrope.cli.main import main as run

    if VERBS.keys() & {*sys.argv[1:2]}:
        with suppress(Exception):  # its settings are built now: Ctrl-C later would be a Rust panic
            importlib.import_module(f"isotrope.cli.{sys.argv[1].replace('-', '_')}")
    try:
        if signal.getsignal(signal.SIGINT) is _interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        _interrupted(signal.SIGINT, None)


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"isotrope: interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
