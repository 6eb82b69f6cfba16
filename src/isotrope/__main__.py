"""Runs the command line; Ctrl-C ends it in one line from the first moment on."""

import os
import signal
from types import FrameType
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)  # while modules are imported
    from isotrope.cli.main import main as run

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
