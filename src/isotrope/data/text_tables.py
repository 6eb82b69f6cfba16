"""Reads tables from JSON, .csv and .tsv files. Separator, header and quoting are recognised."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from isotrope.core.documents import LARGEST, parse_json
from isotrope.core.errors import InputError, RowNumber, nearest, place
from isotrope.data.lines import MAX_CHARACTERS, lines, quoted
from isotrope.data.rows import HEAD, Row, Table, numbered, source_of

_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", ":": "colons"}
_SEPARATOR_LINE = re.compile(r'"?[sS][eE][pP]=([,\t;|:])"?[,;]*')  # Excel's, above the header
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_UNFINISHED = ("[", "{", ",", ":")  # ends of a line after which JSON must continue
_LONGEST = 1 << 24  # characters of a cell, also in columns that are not read
_RETURN = "\ufdd0"  # replaces a carriage return in a cell: csv would end the row there
_WRITTEN_MISSING = {"NaN", "nan", "<NA>"}  # what data frames write for a missing value


def tabbed(path: Path, separator: str, columns: tuple[str, ...], titled: bool = False) -> Table:
    """Return lines as a table. If ``separator`` is empty, each line is one cell.

    A quote is a character of the text, except in a cell that is quoted because of its quotes.
    """

    def cells(names: Sequence[str]) -> Iterator[Row]:
        positions = [columns.index(name) for name in names]
        past_header = not titled
        for line, text in lines(path):
            if not text.strip():
                yield line, ()
            elif not past_header:
                past_header = True
            else:
                row = [*map(_unquoted, text.split(separator))] if separator else [text]
                if len(row) != len(columns):
                    is_cut = any(cell.startswith('"') and cell.count('"') % 2 for cell in row)
                    csv_file = (
                        "save this table as .csv, because a cell has a tab or a line break, or "
                    )
                    raise InputError(
                        f"{place(path, line)}: {csv_file if is_cut else ''}give {len(columns)} "
                        f"fields, separated by tabs, as in the first line; this line has {len(row)}"
                    )
                yield line, tuple(row[p] for p in positions)

    how = ("" if titled else "no header, ") + ("separated by tabs" if separator else "")
    return Table(path, columns, cells, titled, how if separator else "one text a line")


def _unquoted(cell: str) -> str:
    """Return the text of a cell; ``"two ""quoted"" words"`` is how data frames write quotes."""
    quoted_cell = '""' in cell and _QUOTED.fullmatch(cell)
    return cell[1:-1].replace('""', '"') if quoted_cell else cell


def separated(path: Path, suffix: str, wanted: Sequence[str], known: frozenset[str]) -> Table:
    """Return a .csv, .tsv or .txt file as a table. The first lines show how cells are separated."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))
    head = [text for _, text in islice(lines(path), 20) if text.strip()]
    if suffix == ".csv":
        named = _SEPARATOR_LINE.fullmatch(head[0]) if head else None
        return _csv(path, named[1], above=1) if named else _csv(path, _separator(head, known))
    top = [cell.strip(' "') for cell in re.split(r"[,\t;|:]", "".join(head[:1]))]
    wanted = [source_of(name, top) for name in wanted]
    if any("\t" in text for text in head):
        return _with_tabs(path, [cell.strip() for cell in head[0].split("\t")], wanted, known)
    return _without_tabs(path, head[0] if head else "", wanted, known)


def _with_tabs(
    path: Path, top: Sequence[str], wanted: Sequence[str], known: frozenset[str]
) -> Table:
    """Return a table with tabs. Its ``top`` row is a header if it has known or wanted names."""
    names = {cell.strip('"').lower() for cell in top} - {""}
    if names <= known or len(names & known) > 1 or (wanted and {*wanted} <= {*top}):
        quoted_header = any(cell.startswith('"') for cell in top)  # then the cells are quoted too
        return _csv(path, "\t") if quoted_header else tabbed(path, "\t", (*top,), True)
    numbers = tuple(str(i + 1) for i in range(len(top)))
    if absent := [column for column in wanted if column not in numbers]:
        raise InputError(
            f"{place(path)}: choose columns by number (1 to {len(top)}), or add a header with "
            f"names; the first line, {', '.join(map(repr, top))}, has no column {absent[0]!r}"
        )
    return tabbed(path, "\t", numbers)


def _without_tabs(path: Path, line: str, wanted: Sequence[str], known: frozenset[str]) -> Table:
    """Return a .tsv or .txt file whose first ``line`` has no tab: a CSV, or one text a line."""
    columns = {column.lower() for column in wanted}
    for separator in _SEPARATORS:
        names = {cell.strip().lower() for cell in _cells([line], separator)[0]}
        if len(names) > 1 and (names <= known or (columns and columns <= names)):
            return _csv(path, separator)
    if line.strip().lower() in known or {*wanted} == {line.strip()}:
        return tabbed(path, "\t", (line.strip(),), True)
    return tabbed(path, "", ("text",))


def _cells(texts: Sequence[str], separator: str) -> list[list[str]]:
    try:
        return list(csv.reader((f"{t}\n" for t in texts), delimiter=separator)) or [[]]
    except csv.Error:
        return [[]]


def _separator(head: Sequence[str], known: frozenset[str]) -> str:
    """Return the separator that splits header and rows alike, if possible into known names."""

    def fit(separator: str) -> tuple[bool, int]:
        header, *rows = _cells(head, separator)
        names = [cell.strip().lower() for cell in header]
        agree = len(names) > 1 and (not rows or any(len(row) == len(names) for row in rows))
        return agree, sum(name in known for name in names)

    return max(_SEPARATORS, key=fit)  # in a tie, the first of them, so commas before all others


def _csv(path: Path, separator: str, *, above: int = 0) -> Table:
    """Return a quoted table with a header; the lines ``above`` the header are not read."""

    def rows() -> Iterator[tuple[int, list[str]]]:
        texts = (f"{t.replace(chr(13), _RETURN)}\n" for _, t in islice(lines(path), above, None))
        reader = csv.reader(texts, strict=True, delimiter=separator)
        following = above + 1  # line at which the row after ``row`` begins
        try:
            for row in reader:
                line, following = following, above + reader.line_num + 1
                yield line, row
        except csv.Error as error:
            endless = re.search("field limit|unexpected end", str(error))
            why = "quote without an end" if endless else error
            raise InputError(
                f"{place(path, following)}: write each quote inside a quoted field as two quotes, "
                f'""; the CSV is broken ({why})'
            ) from error

    header = next((row for _, row in rows() if row), [])
    columns = tuple(cell.strip() for cell in header)

    def cells(names: Sequence[str]) -> Iterator[Row]:
        positions = [columns.index(name) for name in names]
        past_header = False
        for line, row in rows():
            if not row:
                yield line, ()
            elif not past_header:
                past_header = True
            elif len(row) != len(columns):
                raise InputError(
                    f"{place(path, line)}: put text that contains {_SEPARATORS[separator]} in "
                    f"double quotes; this line has {len(row)} fields, but the header has "
                    f"{len(columns)}"
                )
            else:
                texts = (row[p].replace(_RETURN, "\r") for p in positions)
                yield line, tuple(None if text in _WRITTEN_MISSING else text for text in texts)

    return Table(path, columns, cells, how=f"separated by {_SEPARATORS[separator]}")


def json_table(path: Path, chosen: Sequence[str] = ()) -> Table:
    """Return a JSON file as a table. Its first line that is not blank decides the layout.

    - Whole file: JSON must continue after this line, or it is the only one of a .json file.
    - Rows in each line: a list of rows. Rows are numbered, without blank lines.
    - One row a line: an object or a list of texts. Lines are numbered.

    A list of rows holds objects or lists, and may be the only value of an object. A list of texts
    is a list of rows if it is all of a file, but one row if it is a line of ``.jsonl``.
    """
    return objects(path, _layout(path), chosen)


def _layout(path: Path) -> Callable[[], Iterator[tuple[int, Any]]]:
    """Return a function that yields numbers and rows in the layout of a JSON file."""
    is_json = ".json" in map(str.lower, path.suffixes)  # not .jsonl
    # JSON may write a character as six (\u1234), and an object may hold other keys; a line of
    # .json may hold all objects
    limit = LARGEST if is_json else 10 * MAX_CHARACTERS
    with_content = (each for each in lines(path, limit) if each[1].strip())
    number, text = next(with_content)
    first = text.strip()
    unfinished = first.endswith(_UNFINISHED) or (first[0] == "[" and first[-1] != "]")
    if unfinished or (is_json and next(with_content, None) is None):
        return partial(_rows_of_file, path)
    if _rows(value := _value(path, text, number)) not in ([], [value]):
        return partial(_rows_of_lines, path, limit)
    return partial(_row_a_line, path, limit)


def _rows_of_file(path: Path) -> Iterator[tuple[int, Any]]:
    value = _value(path, "\n".join(text for _, text in lines(path, limit=LARGEST)))
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return numbered(value)
    return numbered(_rows(value))


def _rows_of_lines(path: Path, limit: int) -> Iterator[tuple[int, Any]]:
    number = 0
    for _, value in _row_a_line(path, limit):
        for row in _rows(value):
            number += value != {}  # a blank line ends a document, and is not a row
            yield RowNumber(number), row


def _row_a_line(path: Path, limit: int) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each line; a blank line is an empty object."""
    for number, text in lines(path, limit):
        yield number, _value(path, text, number) if text.strip() else {}


def _value(path: Path, text: str, line: int | None = None) -> object:
    """Return the value of a line, or of a whole file."""
    try:
        return parse_json(text)
    except ValueError as error:
        why = getattr(error, "msg", error) if line else error
        what = "; this line is not" if line else ", or one list of objects; this file is not valid"
        raise InputError(
            f"{place(path, line)}: write one JSON object on each line{what} JSON ({why})"
        ) from error


def _rows(value: object) -> list[Any]:
    """Return the rows in a list, or in a list under a single key; otherwise ``[value]``."""
    inner = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
    # a conversation, a list of objects with a role, is a cell: see ``cell_texts``
    if isinstance(inner, list) and all(
        isinstance(row, dict | list) and "role" not in row for row in inner
    ):
        return inner
    return [value]


def objects(
    name: Path, raw: Callable[[], Iterator[tuple[int, Any]]], chosen: Sequence[str] = ()
) -> Table:
    """Return objects as a table. The keys of the first 100 objects name the columns.

    Later objects may have other keys only if every column that is read is among the chosen ones.
    """

    def checked() -> Iterator[tuple[int, dict[str, Any]]]:
        for line, value in raw():
            if isinstance(value, str | list):  # texts without names: their places are the names
                texts = [value] if isinstance(value, str) else value
                value = {str(i): text for i, text in enumerate(texts, start=1)}
            if not isinstance(value, Mapping):
                raise InputError(
                    f"{place(name, line)}: "
                    f'give an object such as {{"text": "..."}}, not {quoted(value)}'
                )
            yield line, {str(key): each for key, each in value.items()}

    keys = dict.fromkeys(chain.from_iterable(value for _, value in islice(checked(), HEAD)))
    columns = tuple(map(str, keys))

    def cells(names: Sequence[str]) -> Iterator[Row]:
        before: Iterable[str] = keys
        others = {*names} <= {source_of(name, columns) for name in chosen}
        for line, value in checked():
            if value and not others and value.keys() != before:
                before = value.keys()
                if new := [key for key in value if key not in keys]:
                    raise InputError(
                        f"{place(name, line)}: choose the columns by name, or move this object "
                        f"among the first {HEAD}, whose keys name the columns: none of them has "
                        f"the key {new[0]!r}{nearest(new[0], columns)}"
                    )
            yield line, tuple(value.get(name) for name in names) if value else ()

    return Table(name, columns, cells, titled=not all(column.isdigit() for column in columns))
