"""Reads tables from JSON, .csv and .tsv files. Separator, header and quoting are recognised."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeGuard

from isotrope.core.documents import LARGEST, parse_json
from isotrope.core.errors import InputError, nearest, place
from isotrope.data.lines import MAX_CHARACTERS, lines, quoted
from isotrope.data.rows import HEAD, Row, Table

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
                    cut = any(cell.startswith('"') and cell.count('"') % 2 for cell in row)
                    csv_file = (
                        "save this table as .csv, because a cell has a tab or a line break, or "
                    )
                    raise InputError(
                        f"{place(path, line)}: {csv_file * cut}give {len(columns)} fields, "
                        f"separated by tabs, as in the first line; this line has {len(row)}"
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
        return _csv(path, named[1] if named else _separator(head, known), named is not None)
    if any("\t" in text for text in head):
        return _with_tabs(path, [cell.strip() for cell in head[0].split("\t")], wanted, known)
    return _without_tabs(path, head[0] if head else "", wanted, known)


def _with_tabs(
    path: Path, first: Sequence[str], wanted: Sequence[str], known: frozenset[str]
) -> Table:
    """Return a table with tabs. ``first`` is a header if it has known names, or those wanted."""
    names = {cell.strip('"').lower() for cell in first} - {""}
    if names <= known or len(names & known) > 1 or (wanted and {*wanted} <= {*first}):
        quoted_header = any(cell.startswith('"') for cell in first)  # then the cells are quoted too
        return _csv(path, "\t") if quoted_header else tabbed(path, "\t", (*first,), True)
    numbers = tuple(str(i + 1) for i in range(len(first)))
    if absent := [column for column in wanted if column not in numbers]:
        raise InputError(
            f"{place(path)}: choose columns by number (1 to {len(first)}), or add a header with "
            f"names; the first line, {', '.join(map(repr, first))}, has no column {absent[0]!r}"
        )
    return tabbed(path, "\t", numbers)


def _without_tabs(path: Path, first: str, wanted: Sequence[str], known: frozenset[str]) -> Table:
    """Return a .tsv or .txt file without tabs: quoted cells under a header, or a text a line."""
    asked = {column.lower() for column in wanted}
    for separator in _SEPARATORS:
        names = {cell.strip().lower() for cell in _cells([first], separator)[0]}
        if len(names) > 1 and (names <= known or (asked and asked <= names)):
            return _csv(path, separator)
    if first.strip().lower() in known or {*wanted} == {first.strip()}:
        return tabbed(path, "\t", (first.strip(),), True)
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


def _csv(path: Path, separator: str, said: bool = False) -> Table:
    """Return a quoted table with a header; with ``said``, a line above names the separator."""

    def raw() -> Iterator[tuple[int, list[str]]]:
        texts = (f"{t.replace(chr(13), _RETURN)}\n" for _, t in islice(lines(path), said, None))
        reader = csv.reader(texts, strict=True, delimiter=separator)
        first = 1 + said  # line of the row that is read next
        try:
            for cells in reader:
                line, first = first, reader.line_num + 1 + said
                yield line, cells
        except csv.Error as error:
            endless = re.search("field limit|unexpected end", str(error))
            why = "quote without an end" if endless else error
            raise InputError(
                f'{place(path, first)}: write each quote inside a quoted field as two quotes, ""; '
                f"the CSV is broken ({why})"
            ) from error

    header = next((cells for _, cells in raw() if cells), [])
    columns = tuple(cell.strip() for cell in header)

    def cells(names: Sequence[str]) -> Iterator[Row]:
        positions = [columns.index(name) for name in names]
        past_header = False
        for line, row in raw():
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
                yield line, tuple(_read(row[p]) for p in positions)

    return Table(path, columns, cells, how=f"separated by {_SEPARATORS[separator]}")


def _read(cell: str) -> str | None:
    return None if cell in _WRITTEN_MISSING else cell.replace(_RETURN, "\r")


def json_table(path: Path, chosen: Sequence[str] = ()) -> Table:
    """Return a JSON file as a table.

    The file has an object or a list of texts on each line, or is one list of objects or texts.
    """

    def raw() -> Iterator[tuple[int, Any]]:
        # JSON may write a character as six (\u1234), and an object may hold other keys; a line of
        # .json may hold all objects
        whole, begun = ".json" in map(str.lower, path.suffixes), False
        held: tuple[int, list[str]] | None = None  # of .json: a row, or all texts if no row follows
        for number, text in lines(path, limit=LARGEST if whole else 10 * MAX_CHARACTERS):
            if not text.strip():
                yield number, {}
                continue
            if not begun and text.rstrip().endswith(_UNFINISHED):
                value = _whole_json(path)
                rows = value if _is_texts(value) else _rows(value)
                yield from enumerate(rows, start=1)
                return
            try:
                value = parse_json(text)
            except ValueError as error:
                what = getattr(error, "msg", error)
                raise InputError(
                    f"{place(path, number)}: write one JSON object on each line; this line is not "
                    f"JSON ({what})"
                ) from error
            if not begun and len(rows := _rows(value)) > 1:
                yield from enumerate(rows, start=1)
                continue
            if whole and not begun and _is_texts(value):
                held, begun = (number, value), True
                continue
            if held is not None:
                yield held
            held, begun = None, True
            yield number, value
        if held is not None:
            yield from enumerate(held[1], start=1)

    return objects(path, raw, chosen)


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _rows(value: object) -> list[Any]:
    """Return the objects in a list, or in a list under a single key; otherwise ``[value]``."""
    inner = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
    if isinstance(inner, list) and all(
        isinstance(v, dict | list) and "role" not in v for v in inner
    ):
        return inner
    return [value]


def _whole_json(path: Path) -> object:
    try:
        return parse_json("\n".join(t for _, t in lines(path, limit=LARGEST)))
    except ValueError as error:
        raise InputError(
            f"{place(path)}: write one JSON object on each line, or one list of objects; this file "
            f"is not valid JSON ({error})"
        ) from error


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
        others = {*names} <= {*chosen}
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
