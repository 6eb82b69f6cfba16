"""Reads chosen columns of .csv, .jsonl and .parquet files, one row in memory at a time."""

import csv
import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from numbers import Integral
from pathlib import Path
from typing import Any

from isotrope.core.errors import InputError, MissingExtra, nearest
from isotrope.data.lines import MAX_CHARACTERS, check_file, lines, open_bytes, place, quoted

__all__ = [
    "TABLE_READERS",
    "Choose",
    "cell_text",
    "csv_rows",
    "json_objects",
    "json_rows",
    "missing",
    "named",
    "parquet_rows",
    "plain_suffix",
    "whole",
]

Choose = Callable[[Path, Sequence[str]], Sequence[str]]
"""Picks columns: gets the file and the column names found in it, returns the names to read."""

Row = tuple[int, tuple[Any, ...]]

_RATIO, _SMALL = 20, 1 << 24  # gzip of parquet, which is compressed already, hardly gains


def named(columns: Sequence[str]) -> Choose:
    """Return the choice of exactly these columns.

    The choice raises :class:`InputError` naming the columns found, and the nearest one, if a
    column is not there or is there twice.
    """

    def choose(path: Path, header: Sequence[str]) -> Sequence[str]:
        for column in columns:
            if header.count(column) != 1:
                problem = "no column" if column not in header else "more than one column"
                raise InputError(
                    f"{place(path)}: {problem} {column!r}"
                    f"{nearest(column, header) if column not in header else ''}; "
                    f"found {', '.join(map(repr, header)) or 'none'}"
                )
        return columns

    return choose


def cell_text(value: object, path: Path, line: int, column: str) -> str:
    """Return a table's cell as stripped text; a missing value (null, NaN) is an empty text.

    Raises:
        InputError: the cell is not text, is too long, or cannot be written as UTF-8.
    """
    if missing(value):
        return ""
    if not isinstance(value, str):
        raise InputError(
            f"{place(path, line)}: column {column!r} holds {quoted(value)} "
            f"({type(value).__name__}), not text; choose a column of text"
        )
    if len(value) > MAX_CHARACTERS:
        raise InputError(
            f"{place(path, line)}: column {column!r} is longer than {MAX_CHARACTERS:,} "
            "characters; break the text into sentences or passages"
        )
    # JSON escapes can spell both: "\u0000" and "\ud800", half of a surrogate pair
    if "\0" in value or not _encodes(value):
        raise InputError(
            f"{place(path, line)}: column {column!r} holds a character that is not text "
            f"({quoted(value)}); remove it"
        )
    return value.strip()


def missing(value: object) -> bool:
    """Return whether a cell has no value: None, NaN, or the NA and NaT of pandas."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def whole(value: object) -> int | None:
    """Return a whole number, also one that is written as a float; None for anything else.

    >>> whole(1), whole(1.0), whole(1.5), whole(True), whole("1")
    (1, 1, None, None, None)
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def csv_rows(path: Path, choose: Choose) -> Iterator[Row]:
    """Yield (line number, chosen cells) of a comma-separated file with a header and CSV quoting.

    A blank line is yielded as a row of empty cells; a row over several lines has its first.

    Raises:
        InputError: unreadable text, a row of another length than the header, broken quoting, a
            column that is not there.
    """
    reader = csv.reader((f"{text}\n" for _, text in lines(path)), strict=True)
    header: list[str] | None = None
    positions: list[int] = []
    first = 1  # line of the row that is read next
    try:
        for cells in reader:
            line, first = first, reader.line_num + 1
            if header is None:
                if not cells:
                    continue
                header = [cell.strip() for cell in cells]
                positions = [header.index(name) for name in choose(path, header)]
            elif not cells:
                yield line, ("",) * len(positions)
            elif len(cells) != len(header):
                raise InputError(
                    f"{place(path, line)}: {len(cells)} fields where the header has "
                    f"{len(header)}; put text that holds a comma in double quotes"
                )
            else:
                yield line, tuple(cells[p] for p in positions)
    except csv.Error as error:
        raise InputError(
            f'{place(path, first)}: broken CSV ({error}); write a quote inside a quoted field as ""'
        ) from error


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a JSON-lines file; a blank line is an empty object.

    Raises:
        InputError: unreadable text, broken JSON, or a line that is not an object.
    """
    # in JSON a character may be spelled with six, and an object may hold more than the text
    for number, text in lines(path, limit=10 * MAX_CHARACTERS):
        if not text.strip():
            yield number, {}
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            what = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
            raise InputError(
                f"{place(path, number)}: broken JSON ({what}); each line must be one JSON object"
            ) from error
        if not isinstance(value, dict):
            raise InputError(
                f"{place(path, number)}: found {quoted(value)} where a JSON object such as "
                '{"text": "..."} is needed'
            )
        yield number, value


def json_rows(path: Path, choose: Choose) -> Iterator[Row]:
    """Yield (line number, chosen values) of a JSON-lines file; keys are those of the first object.

    A blank line is yielded as a row of missing values.

    Raises:
        InputError: as :func:`json_objects`, a key that is not there, or keys of which others would
            be chosen than of the first object's.
    """
    names: list[str] | None = None
    before: Collection[str] = ()
    for number, value in json_objects(path):
        if names is None:
            if not value:
                continue
            names, before = list(choose(path, list(value))), value.keys()
        if value and (missing := next((n for n in names if n not in value), None)) is not None:
            raise InputError(
                f"{place(path, number)}: no key {missing!r}{nearest(missing, value)}; "
                f"found {', '.join(map(repr, value))}"
            )
        if value and value.keys() != before:
            before, others = value.keys(), names
            with suppress(InputError):  # what is read is there, and nothing else would be chosen
                others = list(choose(path, list(value)))
            if others != names:
                raise InputError(
                    f"{place(path, number)}: by its keys {', '.join(map(repr, others))} would be "
                    f"read, by those of the first object {', '.join(map(repr, names))}; give all "
                    "the same keys, or choose columns by name"
                )
        yield number, tuple(value.get(name) for name in names)


def parquet_rows(path: Path, choose: Choose) -> Iterator[Row]:
    """Yield (row number from 1, chosen values) of a parquet file, a few hundred rows in memory.

    Raises:
        InputError: not a parquet file, damaged, empty, or a column that is not there.
        MissingExtra: pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", extra="parquet") from error
    check_file(path)
    with tempfile.TemporaryFile() as unpacked, open_bytes(path) as handle:
        source = handle
        if path.suffix.lower() == ".gz":  # parquet is read from its end, gzip only from its start
            most = _RATIO * path.stat().st_size + _SMALL
            while block := handle.read(1 << 20):
                unpacked.write(block)
                if unpacked.tell() > most:
                    raise InputError(
                        f"{place(path)}: unpacks to more than {most:,} bytes, as no parquet file "
                        "does; unpack it yourself if that is right"
                    )
            source = unpacked
        number = 0
        try:
            file = pyarrow.parquet.ParquetFile(source)
            names = list(choose(path, file.schema_arrow.names))
            for batch in file.iter_batches(batch_size=256, columns=list(dict.fromkeys(names))):
                columns = batch.to_pydict()
                for cells in zip(*(columns[name] for name in names), strict=True):
                    number += 1
                    yield number, cells
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            after = f" after row {number}" if number else ""
            raise InputError(
                f"{place(path)}: not a parquet file, or damaged{after} "
                f"({quoted(str(error), 80)}); write it again"
            ) from error
    if not number:
        raise InputError(f"{place(path)}: is empty; give a file with at least one row of text")


TABLE_READERS: dict[str, Callable[[Path, Choose], Iterator[Row]]] = {
    ".csv": csv_rows,
    ".jsonl": json_rows,
    ".parquet": parquet_rows,
}
"""The reader of each kind of table, by the suffix of :func:`plain_suffix`.

A new kind is added here."""


def plain_suffix(path: Path) -> str:
    """Return the suffix of a file in lower case, without ``.gz``."""
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return plain.suffix.lower()
