"""Writes text held in memory (lists, DataFrames, ``datasets.Dataset``) to a file of records.

A run must be able to be resumed, diagnosed and to be repeated in another process, so what it
trains on is written to disk once: one JSON object a line, with the keys ``text``, or ``anchor``,
``positive`` and ``negative``, which :func:`isotrope.data.text.corpora.read` reads.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from isotrope.core.documents import brief
from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace
from isotrope.data.lines import place
from isotrope.data.tables import missing, named, whole
from isotrope.data.text.corpora import PAIR, SUFFIXES, TEXT, usual_columns
from isotrope.data.text.datasets import NAME

__all__ = [
    "is_in_memory",
    "named_datasets",
    "record_line",
    "text_records",
    "unread_columns",
    "write_records",
]

_TABLES = ("pandas", "polars", "datasets")
_DATA = Path("the data")  # what messages call it


def is_in_memory(data: object) -> bool:
    """Return whether ``data`` is text itself, and not the name or names of files.

    A list of strings names files where each of them exists, or has no white space and ends in the
    suffix of a kind of file that can be read; it is a list of texts where none of them does.

    Raises:
        InputError: a list of which only some are names of files, or what is no data at all.
    """
    if isinstance(data, (str, Path)):
        return False
    if not isinstance(data, Iterable):
        raise InputError(
            f"the data is {brief(data)} ({type(data).__name__}); give the path of a file, a list "
            "of texts or of pairs, a DataFrame, or a datasets.Dataset"
        )
    if _library(data) or not isinstance(data, Sequence):
        return True
    files = [item for item in data if isinstance(item, Path) or _names_file(item)]
    if files and len(files) < len(data):
        text = next(item for item in data if item not in files)
        raise InputError(
            f"some of the list are names of files ({brief(str(files[0]))}) and some are not "
            f"({brief(text)}): check the names, or give files and texts apart"
        )
    return not files


def named_datasets(data: object) -> Mapping[str, object]:
    """Return several data sets by name; of anything but a dictionary of them, one called ``""``.

    Raises:
        InputError: a name that a command line cannot have, or a dictionary of columns.
    """
    if not isinstance(data, Mapping) or _library(data):
        return {"": data}
    if {*PAIR, *TEXT} & set(data):
        raise InputError(
            f"the data is a dictionary with {brief(next(iter(data)))}, which is the name of a "
            "column: give columns as datasets.Dataset.from_dict(...) or as a list of pairs; a "
            "dictionary has a data set under each name"
        )
    if wrong := [name for name in data if not (isinstance(name, str) and NAME.fullmatch(name))]:
        raise InputError(
            f"{brief(wrong[0])} is not a name for a data set; use letters, digits, - and _"
        )
    return data


def _names_file(value: object) -> bool:
    if not isinstance(value, str) or not value or len(value) > 1000:
        return False
    try:
        exists = Path(value).exists()
    except (OSError, ValueError):
        return False
    plain = value.lower().removesuffix(".gz")
    return exists or (len(value.split()) == 1 and plain.endswith(SUFFIXES))


def _library(data: object) -> str:
    """Return which library's table or column this is, or ``""``."""
    first = type(data).__module__.partition(".")[0]
    return first if first in _TABLES else ""


def _is_table(data: object) -> bool:
    """Return whether this has named columns: one column alone is read as a list is."""
    kind = type(data)  # of an instance, names of rows or of columns are attributes too
    return bool(_library(data)) and (hasattr(kind, "columns") or hasattr(kind, "column_names"))


def write_records(
    data: object, columns: Sequence[str], file: Path, *, groups: str | None = None
) -> bool:
    """Write data as the records of ``file``; an existing file must hold the same records.

    Args:
        data: for which :func:`is_in_memory` holds.
        columns: of a table, in the order of a record's texts; empty for the usual ones.
        file: to write.
        groups: the column of groups of a table, which is written, too.

    Returns:
        Whether the file was written: False where it held these records already.

    Raises:
        InputError: what is not text, records of different kinds, no records, or other records in
            the file.
    """
    records = text_records(data, columns)
    lines: Iterator[str] = map(record_line, records)
    if groups is not None:
        values = _column(data, groups)
        lines = (record_line(r, {groups: v}) for r, v in zip(records, values, strict=True))
    if file.exists():
        with file.open(encoding="utf-8") as handle:
            if any(line != other for line, other in zip_longest(lines, handle)):
                raise InputError(
                    f"{place(file)} holds other data than was given now; give the same to continue "
                    "with that run, or choose another output folder"
                )
        return False
    first = next(lines, None)
    if first is None:
        raise InputError("the data holds no record; give at least two")
    with atomic_replace(file) as temporary, temporary.open("w", encoding="utf-8") as handle:
        handle.writelines(chain([first], lines))
    return True


def unread_columns(data: object, columns: Sequence[str], groups: str | None) -> list[str]:
    """Return which columns of a table :func:`write_records` leaves out that nobody named."""
    if isinstance(data, Mapping):
        return unread_columns(data.get("train"), columns, groups)
    if columns or not _is_table(data):
        return []
    header = _header(data)
    read = {*usual_columns(_DATA, header), groups}
    return [name for name in header if name not in read]


def record_line(record: Sequence[str | None], more: Mapping[str, object] | None = None) -> str:
    """Return one record as a line of JSON, with its line end; ``more`` comes after the texts."""
    names = ("text",) if len(record) == 1 else PAIR[: len(record)]
    return json.dumps({**dict(zip(names, record, strict=True)), **(more or {})}) + "\n"


def text_records(data: object, columns: Sequence[str]) -> Iterator[tuple[str | None, ...]]:
    """Yield the texts of each record, all of one kind.

    Raises:
        InputError: what is not text, or records of different kinds.
    """
    width = 0
    for number, texts in enumerate(_rows(data, [str(name) for name in columns])):
        if not 1 <= len(texts) <= 3:
            raise InputError(
                f"record {number} of the data has {len(texts)} texts; a record is one text, "
                "(anchor, positive) or (anchor, positive, hard negative)"
            )
        width = width or len(texts)
        if len(texts) != width:
            raise InputError(
                f"record {number} of the data has {len(texts)} texts where those before have "
                f"{width}; give records of one kind"
            )
        yield texts


def _rows(data: object, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the records as they come."""
    if isinstance(data, Mapping):  # a DatasetDict
        if "train" not in data:
            raise InputError(
                f"the data has no split called 'train'; found {', '.join(map(str, data))}: give "
                "one split"
            )
        yield from _rows(data["train"], columns)
        return
    if _is_table(data):
        names = (named(columns) if columns else usual_columns)(_DATA, _header(data))
        for number, row in enumerate(_cells(data, names)):
            yield tuple(_cell(value, number, name) for value, name in zip(row, names, strict=True))
        return
    if columns:
        raise InputError(
            f"columns {', '.join(columns)}: a list has none; leave columns out, or give a table"
        )
    assert isinstance(data, Iterable)  # is_in_memory has refused anything else
    for number, record in enumerate(data):
        if isinstance(record, (tuple, list)):
            yield tuple(_cell(text, number) for text in record)
        elif isinstance(record, str) or (_library(data) and missing(record)):
            yield (_cell(record, number),)
        else:
            raise InputError(
                f"record {number} of the data is {brief(record)} ({type(record).__name__}); give "
                "texts, or tuples of texts"
            )


def _cell(value: object, number: int, column: str = "", *, group: bool = False) -> str | int | None:
    """Return a text or a group of a record as it is written; None if it is missing.

    Raises:
        InputError: it is not text, and not the whole number that a group may be.
    """
    if missing(value):
        return None
    if isinstance(value, str):
        return value
    if group and (integer := whole(value)) is not None:
        return integer
    where = f" in column {column!r}" if column else ""
    other = "neither text nor a whole number; convert it to text"
    raise InputError(
        f"record {number} of the data holds {brief(value)} ({type(value).__name__}){where}, which "
        f"is {other if group else 'not text; choose columns of text'}"
    )


def _column(data: object, name: str) -> Iterator[str | int | None]:
    """Yield the groups in a column of a table.

    Raises:
        InputError: a list, no such column, one that is called as one of text is, or what is neither
            text nor a whole number.
    """
    if not _is_table(data):
        raise InputError(f"groups {name}: a list has no columns; leave groups out, or give a table")
    if name in (*PAIR, *TEXT):
        raise InputError(f"groups {name}: {name!r} is what a column of text is called; rename it")
    table = data["train"] if isinstance(data, Mapping) else data
    named((name,))(_DATA, _header(table))
    for number, (value,) in enumerate(_cells(table, [name])):
        yield _cell(value, number, name, group=True)


def _header(table: Any) -> list[str]:  # noqa: ANN401 - three libraries have no type in common
    """Return the names of the columns of a table; those of pandas need not be text."""
    names = table.column_names if _library(table) == "datasets" else list(table.columns)
    return [str(name) for name in names or ()]


def _cells(table: Any, names: Sequence[str]) -> Iterable[Sequence[object]]:  # noqa: ANN401 - likewise
    """Return the cells of the columns of these names, row by row."""
    if _library(table) == "datasets":
        return ([row[name] for name in names] for row in table.select_columns(list(names)))
    keys = {str(key): key for key in table.columns}
    return zip(*(table[keys[name]].to_list() for name in names), strict=True)
