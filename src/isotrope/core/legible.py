"""Writes values as text: formats of numbers, and escapes of characters that control a terminal.

Tables, errors and paths use :func:`legible`; everything else that the command line prints passes
through :class:`LegibleStream`. Escapes are written as in JSON, so JSON keeps its meaning.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

# control characters, line separators, and characters that change the direction of writing; the
# characters that join letters (in Persian or in emoji) are kept
_STEERING = {
    code: f"\\u{code:04x}"
    for code in (
        *range(0x20),
        *range(0x7F, 0xA0),
        *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        *(0xFFFE, 0xFFFF),  # not allowed in XML
    )
}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-](inf|nan)")
_MOVES = re.compile(r"(?:\r|\n|\x1b\[A)*")
_ON_LINES = {code: how for code, how in _STEERING.items() if chr(code) not in "\n\t"}


def legible(text: str) -> str:
    """Return a text on one line, with control characters and invalid bytes escaped."""
    return text.translate(_STEERING).encode("utf-8", "backslashreplace").decode("utf-8")


def shortened(text: str, width: int = 160) -> str:
    """Return a text on one line; a text longer than ``width`` is cut and ends with "..."."""
    line = legible(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 3] + "..."


def counted(count: int, what: str) -> str:
    """Return a number with its noun: ``1 step``, ``1,200 steps`` or ``2 queries``."""
    nouns = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{count:,} {what if count == 1 else nouns}"


def digits_of(values: Sequence[float]) -> int:
    """Return the number of decimals that a column of numbers needs."""
    largest = max((abs(value) for value in values), default=0.0)
    if all(isinstance(value, int) for value in values) or largest >= 1000:
        return 0
    return 2 if largest >= 10 else 3 if largest >= 0.01 else 5


def number(value: float, digits: int) -> str:
    """Return a number with thousands separators and a minus sign."""
    return f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float, digits: int) -> str:
    """Return a number with a sign, also if it is positive."""
    return f"{'+' if value >= 0 else ''}{number(value, digits)}"


def parameters(values: Mapping[str, Any]) -> str:
    """Return parameters as text: ``temperature 0.05, dissipation margin:0.3``."""
    return ", ".join(f"{name} {plain(value)}" for name, value in values.items())


def plain(value: object) -> str:
    """Return a value as words: a list as its items, a mapping as its names and values."""
    if isinstance(value, Mapping):
        return parameters(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def csv_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV in which a spreadsheet finds no formulas.

    A text that begins with =, +, -, @ or a tab and is not a number gets an apostrophe before it.
    """
    text = io.StringIO()
    table = (map(_spreadsheet_cell, row) for row in chain([header], rows))
    csv.writer(text, lineterminator="\n").writerows(table)
    return text.getvalue()


def _spreadsheet_cell(value: object) -> object:
    if not isinstance(value, str | Path) or _NUMBER.fullmatch(cell := str(value)):
        return value
    return f"'{cell}" if cell.startswith(tuple("=+-@\t\r")) else cell


class LegibleStream:
    """A text stream that escapes control characters, but lets progress bars move the cursor.

    Args:
        stream: Stream that is written to.
        needed: Whether it is an error if the program that reads the stream has ended.
    """

    def __init__(self, stream: TextIO, *, needed: bool = True) -> None:
        self._stream, self._needed = stream, needed

    def write(self, text: str) -> int:
        """Write a text, and return the number of characters."""
        bar = "\r" if text.startswith("\r") else ""
        if not _MOVES.fullmatch(text):
            text = bar + text[len(bar) :].translate(_ON_LINES)
        with nullcontext() if self._needed else suppress(BrokenPipeError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with nullcontext() if self._needed else suppress(BrokenPipeError):
            self._stream.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)
