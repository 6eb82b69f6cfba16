"""Shows progress (a bar, if stderr is a terminal) and formats durations."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DELAY = 1.0
"""Seconds of work before a bar appears."""


@contextmanager
def bar(
    total: int | None, what: str, unit: str = "", *, show: bool
) -> Iterator[Callable[[float], object]]:
    """Yield a function that advances the bar; call it with the number of newly done items.

    Args:
        total: The number of items; None if unknown. With 0, there is no bar.
        what: Title of the bar.
        unit: The counted unit.
        show: Whether to show a bar, which needs tqdm.
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


def format_duration(seconds: float) -> str:
    """Return ``42 s``, ``3 min 20 s`` or ``5 h 10 min``."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"
