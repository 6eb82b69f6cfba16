"""How long a test waits for what must happen: until a hang is certain, however busy the machine."""

import time
from collections.abc import Callable

MINUTES = 600.0
"""Seconds. What takes milliseconds on an idle machine may take a minute on a busy one."""


def wait_until(happened: Callable[[], object], what: str = "it did not happen") -> None:
    """Return when something has happened; fail when it is certain that it never will."""
    until = time.monotonic() + MINUTES
    while not happened():
        assert time.monotonic() < until, what
        time.sleep(0.02)
