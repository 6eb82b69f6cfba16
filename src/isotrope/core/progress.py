"""Shows progress on stderr (a bar on a terminal, lines elsewhere) and formats durations."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

DELAY = 1.0
"""Seconds of work before a bar appears."""

LINES = 20.0
"""Seconds between two lines if stderr is not a terminal; the first comes after a quarter of it."""

_shown = ContextVar("shown", default=False)
_title = ContextVar("title", default="encode")


@contextmanager
def showing(*, show: bool) -> Iterator[None]:
    """Decide whether the bars without an argument ``show`` are shown in this block."""
    token = _shown.set(show)
    try:
        yield
    finally:
        _shown.reset(token)


def shown() -> bool:
    """Return whether :func:`showing` shows the bars here."""
    return _shown.get()


@contextmanager
def embedding(what: str) -> Iterator[None]:
    """Name what encoders embed in this block, for the titles of their bars; "" names nothing."""
    token = _title.set(f"embed {what}" if what else _title.get())
    try:
        yield
    finally:
        _title.reset(token)


@contextmanager
def bar(
    total: int | None, what: str, unit: str = "", *, show: bool | None = None
) -> Iterator[Callable[[float], object]]:
    """Yield a function that advances a progress bar by the number of items that it is given.

    If stderr is not a terminal or tqdm is missing, lines with numbers are printed instead of a bar.

    Args:
        total: The number of items; None if unknown. With 0, nothing is shown.
        what: Title of the bar; if empty, the title that :func:`embedding` sets.
        unit: What the items are, e.g. ``"texts"``.
        show: Whether to show the progress at all; by default, as :func:`showing` decides.
    """
    if not (shown() if show is None else show) or total == 0:
        yield lambda count: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        tqdm = None
    what = what or _title.get()
    if tqdm is None or not sys.stderr.isatty():
        with _lines(total, what, unit) as advance:
            yield advance
        return
    with tqdm(
        total=total,
        desc=what,
        unit=f" {unit}" if unit else "it",
        file=sys.stderr,
        dynamic_ncols=True,
        delay=DELAY,
    ) as drawn:
        yield drawn.update


@contextmanager
def _lines(total: int | None, what: str, unit: str) -> Iterator[Callable[[float], None]]:
    """Yield a function that counts items; print lines now and then, and one at the end of them."""
    done, begun = 0.0, time.monotonic()
    due = first = begun + LINES / 4

    def write(end: str) -> None:
        of = "" if total is None else f" of {total:,}"
        print(f"{what}: {done:,.0f}{of} {unit}".rstrip() + end, file=sys.stderr, flush=True)

    def advance(count: float) -> None:
        nonlocal done, due
        done, now = done + count, time.monotonic()
        if now < due or done == total:
            return
        due, rest = now + LINES, (now - begun) * ((total or done) - done) / max(done, 1e-9)
        write("" if total is None else f", about {format_duration(rest)} left")

    yield advance
    if due > first:
        write(f", {format_duration(time.monotonic() - begun)}")


def format_duration(seconds: float) -> str:
    """Return ``42 s``, ``3 min 20 s`` or ``5 h 10 min``."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"
