"""Rows of a table, and the conversion of cells to texts and numbers."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, islice
from numbers import Real
from pathlib import Path
from typing import Any, SupportsInt

from isotrope.core.errors import InputError, RowNumber, nearest, place
from isotrope.data.lines import MAX_CHARACTERS, quoted

HEAD = 100
"""Number of rows at the beginning of a table that decide how the table is read."""

_COUNTED, _PER_LABEL = 10_000, 10  # rows in which labels are counted; rows for each of them
_LABEL = re.compile(r"(?=.*[^\W\d_])(?=.{1,50}$)\S+(\s+\S+){0,4}")  # short, with a letter

NUMBER = (Real, Decimal)
"""Types of numbers: those of Python and numpy, and decimals, which tables may hold."""

# a label: in a column of numbers with missing values, data frames write 1 as 1.0
_WHOLE = re.compile(r"^(-?\d+)\.0+$")

Row = tuple[int, tuple[Any, ...]]
"""Line of a row, or its ``RowNumber``, and its cells; a blank line has no cells."""


def numbered(rows: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the number of each row, from 1, and the row."""
    return ((RowNumber(number), row) for number, row in enumerate(rows, start=1))


@dataclass(frozen=True)
class Table:
    """A table whose rows can be read.

    Attributes:
        place: File or other source of the table, as error messages show it.
        columns: Names of the columns. A table without a header has the names ``1``, ``2``, ...
        cells: Function that gets names of columns. For each row, it yields a line number and a
            tuple of the cells in these columns.
        titled: Whether the source has names for the columns.
        how: Recognised format, such as "separated by tabs"; empty if nothing was recognised.
    """

    place: Path
    columns: tuple[str, ...]
    cells: Callable[[Sequence[str]], Iterator[Row]]
    titled: bool = True
    how: str = ""

    def rows(self, names: Sequence[str]) -> Iterator[Row]:
        """Yield the cells of the columns with these names, row by row."""
        for name in names:
            if self.columns.count(name) != 1:
                problem = "no column" if name not in self.columns else "more than one column"
                near = nearest(name, self.columns) if name not in self.columns else ""
                raise InputError(
                    f"{place(self.place)}: choose other columns; the table has {problem} {name!r}"
                    f"{near}; its columns: {', '.join(map(repr, self.columns)) or 'none'}"
                )
        return self.cells(names)

    def head(self) -> list[tuple[Any, ...]]:
        """Return the cells of the first rows, without blank lines."""
        return [cells for _, cells in islice(self.cells(self.columns), HEAD) if cells]

    def values(self, name: str) -> list[Any]:
        """Return the cells of a column in the first rows, without missing ones."""
        cells = (row[self.columns.index(name)] for row in self.head())
        return [c.tolist() if hasattr(c, "tolist") else c for c in cells if not missing(c)]

    def numbers(self, name: str) -> list[Any]:
        """Return the numbers among the values of a column; an empty list if most are no numbers."""
        values = self.values(name)
        numbers = [value for value in values if number(value) is not None]
        return numbers if 2 * len(numbers) > len(values) else []

    def judges(self, name: str) -> bool:
        """Return whether the values of a column are numbers, lists, or a few single words."""
        values = self.values(name)
        words = {str(v) for v in values if number(v) is None and not isinstance(v, list)}
        return bool(values) and len(words) <= 5 and all(len(word.split()) == 1 for word in words)

    def labels(self, names: Iterable[str]) -> tuple[str, int, int]:
        """Return the column with most values that repeat as labels do, how many, in how many rows.

        If there is no such column, its name is empty.
        """
        most = ("", 1, 0)
        for name in names:
            values: Counter[str] = Counter()
            try:
                rows = (row for _, row in islice(self.cells([name]), _COUNTED))
                for cell in chain.from_iterable(rows):
                    if missing(cell) or (isinstance(cell, str) and not cell.strip()):
                        continue
                    if not isinstance(cell, str) or not _LABEL.fullmatch(cell.strip()):
                        values.clear()
                        break
                    values[cell.strip()] += 1
            except Exception:  # decoders of pictures and sound, which are no labels, raise any
                values.clear()
            if most[1] < len(values) <= values.total() / _PER_LABEL:
                most = (name, len(values), values.total())
        return most

    def chosen(self, names: Sequence[str]) -> list[str]:
        """Return the columns that were chosen by name, by number or as ``NAME=COLUMN``."""
        columns = [source_of(name, self.columns) for name in names]
        if self.titled and not {*columns} & {*self.columns}:  # perhaps numbers of columns
            numbers = [int(each) for each in columns if each.isdecimal()]
            if len(numbers) == len(columns) and all(0 < n <= len(self.columns) for n in numbers):
                return [self.columns[n - 1] for n in numbers]
        return columns

    def proposal(self, choose: int) -> str:
        """Return a sentence that proposes at most ``choose`` columns, those with most words."""

        def is_text(cells: Sequence[object]) -> bool:
            return bool(cells) and all(isinstance(c, str) and number(c) is None for c in cells)

        names = [name for name in self.columns if is_text(self.values(name)) and "," not in name]
        if not names:
            return "give a table with a column of text, because no column of this table holds text"
        first = "if the first line is data, put a header above it, or else " if self.how else ""
        words = {name: " ".join(map(str, self.values(name))) for name in names}
        # texts of Chinese or Japanese have few spaces, but many characters
        long = sorted(names, key=lambda n: (-len(words[n].split()), -len(words[n])))[:choose]
        chosen = f"choose columns by name: `--columns {','.join(sorted(long, key=names.index))}`"
        usual = "name the columns text, or anchor and positive, or sentence1, sentence2 and score"
        return f"{first}{chosen if choose else usual}"


def source_of(name: str, columns: Sequence[str]) -> str:
    """Return the COLUMN of ``NAME=COLUMN``, unless a column has this whole name."""
    return name if name in columns else name.partition("=")[2] or name


def missing(value: object) -> bool:
    """Return whether a cell has no value: None, NaN, or the NA and NaT of pandas."""
    if isinstance(value, Real):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def whole(value: object) -> int | None:
    """Return a number without a fraction as int; None for any other value.

    >>> whole(1), whole(1.0), whole(1.5), whole(True), whole("1")
    (1, 1, None, None, None)
    """
    is_number = isinstance(value, NUMBER) and not isinstance(value, bool)
    if not is_number or not isinstance(value, SupportsInt):
        return None
    try:
        found = int(value)
    except (ValueError, OverflowError):  # NaN and infinities
        return None
    return found if found == value else None


def number(value: object) -> float | None:
    """Return a finite number, or a text that spells one, as float; None for any other value."""
    try:
        found = float(value) if isinstance(value, (str, *NUMBER)) else math.nan
    except (ValueError, OverflowError):  # OverflowError: an integer of JSON with 400 digits
        return None
    return found if math.isfinite(found) else None


def are_answers(numbers: Sequence[Any]) -> bool:
    """Return whether numbers are whole, differ, and are in no order, so that none is a label."""
    values = [float(each) for each in numbers]
    whole = all(value.is_integer() for value in values)
    return whole and len({*values}) == len(values) and values != sorted(values)


def are_ids(numbers: Sequence[Any]) -> bool:
    """Return whether numbers are whole and differ, and are more than the grades from 0 to 100."""
    values = [float(each) for each in numbers]
    differ = all(map(float.is_integer, values)) and len({*values}) == len(values) > 11
    return differ and (max(values) > 100 or values == sorted(values))


def cell_score(value: object, path: Path, line: int, where: str = "") -> float:
    """Return the finite number in a cell."""
    if (found := number(value)) is None:
        raise InputError(
            f"{place(path, line)}: correct the score {quoted(value)}{where}, or remove the line; "
            "a score must be a finite number"
        )
    return found


def cell_text(value: object, path: Path, line: int, column: str) -> str:
    """Return the stripped text of a cell; an empty text if the cell has no value (null, NaN)."""
    if missing(value):
        return ""
    if not isinstance(value, str):
        raise InputError(
            f"{place(path, line)}: choose a column of text; column {column!r} holds "
            f"{quoted(value)} ({type(value).__name__}), not text"
        )
    if len(value) > MAX_CHARACTERS:
        raise InputError(
            f"{place(path, line)}: break the text in column {column!r} into sentences or "
            f"passages; it is longer than {MAX_CHARACTERS:,} characters"
        )
    # JSON escapes can write a NUL ("\u0000") and half of a surrogate pair ("\ud800")
    if "\0" in value or value.encode("utf-8", "ignore").decode() != value:
        raise InputError(
            f"{place(path, line)}: remove the NUL or unpaired surrogate from column {column!r}; "
            f"found {quoted(value)}"
        )
    return value.strip()


def cell_texts(value: object, path: Path, line: int, column: str) -> list[str]:
    """Return a list of the texts in a cell: one text, a list of texts, or a conversation."""
    if isinstance(value, str):
        return [cell_text(value, path, line, column)]
    if hasattr(value, "tolist") and not isinstance(value, (int, float)):  # an array
        value = value.tolist()
    if isinstance(value, Mapping) and {"text", "content"} & set(value):
        title = cell_text(value.get("title"), path, line, column)
        text = value.get("text", value.get("content"))
        return [f"{title} {cell_text(text, path, line, column)}".strip()]
    if isinstance(value, list):
        texts = [text for item in value for text in cell_texts(item, path, line, column) or [""]]
        is_talk = value and all(isinstance(item, Mapping) and "role" in item for item in value)
        return ["\n".join(texts)] if is_talk else texts
    if missing(value):
        return []
    return [cell_text(value, path, line, column)]


def cell_scores(
    cells: Sequence[Any], path: Path, line: int, columns: Sequence[str]
) -> list[list[float]]:
    """Return a list of numbers for each column with scores."""
    scores = []
    for cell, column in zip(cells, columns, strict=True):
        values = cell.tolist() if hasattr(cell, "tolist") else cell
        values = values if isinstance(values, list) else [] if missing(values) else [values]
        scores.append([cell_score(v, path, line, f" in column {column!r}") for v in values])
    return scores


def mark(value: object, path: Path, line: int, column: str) -> str:
    """Return a group or a label as text, such as ``"1"`` for 1.0; ``""`` for a missing value."""
    if missing(value):
        return ""
    if isinstance(value, (str, bool)):
        return _WHOLE.sub(r"\1", str(value).strip())
    if (integer := whole(value)) is not None:
        return str(integer)
    if isinstance(value, NUMBER):
        return repr(float(value))
    return cell_text(value, path, line, column)
