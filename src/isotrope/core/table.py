"""Formats tables for a terminal."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from isotrope.core.legible import legible


class TitledTable(NamedTuple):
    """A table: a title, a note (may be empty), names of columns, and rows of texts and numbers.

    In ``str(table)``, floats have three decimals and None is a dash.
    """

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | float | None]]

    def __str__(self) -> str:
        shown = [[_cell(value) for value in row] for row in self.rows]
        head = "\n".join(filter(None, (self.title, self.note)))
        apart = "\n\n" if self.note else "\n"
        return f"{head}{apart}{table(self.columns, shown)}" if shown else head


def _cell(value: str | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else f"{value}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Return a table as text; columns of numbers are aligned right, columns of words left.

    Args:
        header: The names of the columns; a name may have several lines.
        rows: Rows with one text for each column.
        width: Characters in a line; the last column is wrapped to fit. With None, it is not.
    """
    rows = [[legible(cell) for cell in row] for row in rows]
    if width is not None:
        before = sum(
            max(len(row[i]) for row in [header, *rows]) + 2 for i in range(len(header) - 1)
        )
        rows = [line for row in rows for line in _broken(row, max(20, width - before))]
    headings = [heading.split("\n") for heading in header]
    lines = max(map(len, headings))
    top = [[heading[i] if i < len(heading) else "" for heading in headings] for i in range(lines)]
    cells = [*top, *(list(row) for row in rows)]
    numeric = [all(row[i][:1] in "+-<0123456789" for row in rows) for i in range(len(header))]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(width) if i == 0 or not numeric[i] else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join([first, *rest]).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([*map(line, top), rule, *map(line, cells[lines:])])


def _broken(row: Sequence[str], width: int) -> list[Sequence[str]]:
    """Wrap the last cell of a row; the other cells stay on the first line."""
    *others, last = row
    first, *more = textwrap.wrap(last, width) or [""]
    return [[*others, first], *([*("" for _ in others), line] for line in more)]
