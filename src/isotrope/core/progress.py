"""A progress bar on stderr, where that is a terminal; elsewhere none."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["bar"]

DELAY = 1.0
"""Seconds before a bar shows: what is refused at once, or done at once, needs none."""


@contextmanager
def bar(
    total: int | None, what: str, unit: str = "", *, show: bool
) -> Iterator[Callable[[float], object]]:
    """Yield what is called with the number of things that are done since the last time.

    Args:
        total: all of them; None where it is not known, and of 0 there is no bar.
        what: is done.
        unit: what is counted.
        show: whether a bar is wanted. Without tqdm there is none.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        show = False
    if not show or total == 0:
        yield lambda count: None
        return
    with tqdm(
        total=total,
        desc=what,
        unit=f" {unit}" if unit else "it",
        file=sys.stderr,
        disable=None,  # None: shown on a terminal
        dynamic_ncols=True,
        delay=DELAY,
    ) as drawn:
        yield drawn.update
