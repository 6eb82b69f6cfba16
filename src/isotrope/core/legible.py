"""Renders foreign text: names and texts of others that could steer a terminal or forge a line.

Every table, error and place goes through :func:`legible`, and what the command line prints besides
through :class:`LegibleStream`. The escapes are those of JSON, so that JSON stays what it is.
"""

import re
from typing import Any, TextIO

# control characters, the ends of lines, and what turns the direction of writing; letters that join
# others (as in Persian, and in emoji) stay
_STEERING = {
    code: f"\\u{code:04x}"
    for code in (
        *range(0x20),
        *range(0x7F, 0xA0),
        *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        *(0xFFFE, 0xFFFF),  # which no page may hold
    )
}
_MOVES = re.compile(r"(?:\r|\n|\x1b\[A)*")
_ON_LINES = {code: how for code, how in _STEERING.items() if chr(code) not in "\n\t"}


def legible(text: str) -> str:
    """Return a text on one line that any terminal shows as it is, invalid bytes too."""
    return text.translate(_STEERING).encode("utf-8", "backslashreplace").decode("utf-8")


def spreadsheet_cell(value: object) -> object:
    """Return what is written into a cell of a CSV file: text that is no formula for a spreadsheet.

    A text that begins with = + - @ gets an apostrophe before it, as spreadsheets spell text.
    """
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


class LegibleStream:
    """A text stream to which lines are written; what steers a terminal is shown by its number.

    A bar begins with a carriage return, which stays, and is moved by writes of nothing else.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write it, and return the number of characters."""
        bar = "\r" if text.startswith("\r") else ""
        if not _MOVES.fullmatch(text):
            text = bar + text[len(bar) :].translate(_ON_LINES)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)
