"""Formats tables and lists of definitions for a terminal."""

import math
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from itertools import zip_longest
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
        wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
        return f"{head}{apart}{table(self.columns, shown, wide)}" if shown else head


def _cell(value: str | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else f"{value}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], wide: float = math.inf) -> str:
    """Return a table as text; columns of numbers are aligned right, columns of words left.

    Args:
        header: The names of the columns; a name may have several lines.
        rows: Rows with one text for each column.
        wide: Most characters of a line; if there are more, texts but the first column are wrapped.
    """
    rows = [[legible(cell) for cell in row] for row in rows]
    top = list(zip_longest(*(name.split("\n") for name in header), fillvalue=""))
    widths = [max(map(len, column)) for column in zip(*top, *rows, strict=True)]
    numeric = [all(row[i][:1] in "+-<0123456789" for row in rows) for i in range(len(header))]
    numeric[0] = False  # the first column names the rows
    while sum(widths) + 2 * (len(widths) - 1) > wide:
        texts = (i for i in range(1, len(widths)) if not numeric[i])
        if not (long := [i for i in texts if widths[i] > max(16, len(header[i]))]):
            break
        widths[max(long, key=widths.__getitem__)] -= 1

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if is_numeric else cell.ljust(width)
            for cell, width, is_numeric in zip(row, widths, numeric, strict=True)
        )
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    wrapped = (map(textwrap.wrap, row, [max(1, width) for width in widths]) for row in rows)
    lines = (part for cells in wrapped for part in zip_longest(*cells, fillvalue=""))
    return "\n".join([*map(line, top), rule, *map(line, lines)])


def definition_list(definitions: Mapping[str, str], width: int) -> str:
    """Return lines of at most ``width`` characters: each name, and beside it the wrapped text."""
    widest = max(map(len, definitions), default=0)
    return "\n".join(
        textwrap.fill(f"{name:{widest}}  {text}", width, subsequent_indent=" " * (widest + 2))
        for name, text in definitions.items()
    )
