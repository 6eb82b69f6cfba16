"""Reads tables from text files, parquet, Arrow, data sets of the hub, data frames and lists.

The separator of a ``.csv`` or ``.tsv`` file is recognised. A ``.jsonl`` or ``.json`` file has an
object or a list of texts on each line, or only one list of objects or texts. A ``.txt`` file has
one text on each line. Text files may be compressed (``.gz``, ``.bz2``, ``.xz``, ``.zst``). Errors
name the file and the line. :mod:`isotrope.data.schemas` recognises what the columns hold.
"""

import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from isotrope.core.documents import check_file, read_json
from isotrope.core.errors import InputError, RowNumber, first_line, needs_extra, place, unknown
from isotrope.core.trust import known_to_hub, why_closed
from isotrope.data.lines import COMPRESSED, most_unpacked, quoted, refuse_bomb
from isotrope.data.rows import Row, Table, missing, numbered
from isotrope.data.text_tables import json_table, objects, separated, tabbed

SUFFIXES = (".txt", ".tsv", ".csv", ".jsonl", ".json", ".parquet", ".arrow")
"""Suffixes of readable files. Text files may also be compressed."""
_SAME = {".ndjson": ".jsonl", ".feather": ".arrow", ".pq": ".parquet"}

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FRAMES = ("pandas", "polars", "datasets")

IMAGE = ("image", "img", "images")
"""Usual names of a column of pictures."""


def open_table(
    path: Path,
    wanted: Sequence[str] = (),
    *,
    header: Iterable[str] = (),
    streaming: bool = False,
    txt_columns: bool = False,
) -> Table:
    """Open a file, a folder that ``save_to_disk`` wrote, or a data set of the hub.

    Args:
        path: File, folder, or name of a data set on the hub.
        wanted: Columns to read. If the first line of a .tsv has all these names, it is a header.
        header: Usual names of columns in lower case. A first line with only such names is a header.
        streaming: Whether to read a data set of the hub without keeping a copy.
        txt_columns: Whether tabs separate columns in a .txt file. If False, a tab is a character of
            the text.
    """
    if is_hub_name(path):
        return _hub(path, streaming=streaming)
    if is_saved(path):
        return _saved(path)
    suffix = check_kind(path)
    if suffix in (".csv", ".tsv") or (txt_columns and suffix == ".txt"):
        return separated(path, suffix, wanted, frozenset(header))
    if suffix in (".jsonl", ".json"):
        return json_table(path, wanted)
    if suffix in (".parquet", ".arrow"):
        return _arrow(path, suffix)
    return tabbed(path, "", ("text",))


def check_kind(path: Path) -> str:
    """Return the suffix of a file; raise an error if isotrope cannot read this kind of file."""
    check_file(path)
    suffix = plain_suffix(path)
    if suffix not in SUFFIXES:
        raise InputError(unknown(f"{place(path)}: unknown kind of file", suffix, SUFFIXES))
    if path.suffix.lower() in COMPRESSED and suffix in (".parquet", ".arrow"):
        raise InputError(f"{place(path)}: unpack this file; a {suffix} file must not be packed")
    return suffix


def plain_suffix(path: Path) -> str:
    """Return the suffix without a compression, in lower case: ``.tsv`` for ``pairs.TSV.gz``."""
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    suffix = plain.suffix.lower()
    return _SAME.get(suffix, suffix)


def _module(name: str, extra: str) -> ModuleType:
    with needs_extra(extra):
        return importlib.import_module(name)


def _arrow(path: Path, suffix: str) -> Table:
    """Return a parquet or Arrow file; at most 256 rows at a time become Python objects."""
    pyarrow, parquet = _module("pyarrow", "parquet"), _module("pyarrow.parquet", "parquet")
    damages = (pyarrow.ArrowException, OSError, UnicodeDecodeError)
    packed = path.stat().st_size

    def opened() -> tuple[Any, Callable[[list[str]], Iterator[Any]]]:
        """Return the schema, and a function that reads columns in batches of rows."""
        if suffix == ".parquet":
            file = parquet.ParquetFile(path)
            groups = range(file.metadata.num_row_groups)
            size = file.metadata.num_rows
            size += sum(file.metadata.row_group(group).total_byte_size for group in groups)
            refuse_bomb(path, size, packed)
            rows = _at_once(size, packed)
            return file.schema_arrow, lambda names: file.iter_batches(rows, columns=names)
        # no memory map: with a damaged file it would end the process
        source = pyarrow.OSFile(str(path))
        source.seek(8 if source.read(6) == b"ARROW1" else 0)  # past the magic of a file
        reader = pyarrow.ipc.open_stream(source)
        return reader.schema, lambda names: (batch.select(names) for batch in reader)

    def damaged(error: Exception, rows: int = 0) -> InputError:
        kind = "a parquet file" if suffix == ".parquet" else "an Arrow file"
        after = f" after row {rows}" if rows else ""
        return InputError(
            f"{place(path)}: write or copy this file again; it is not {kind}, or is damaged{after} "
            f"({quoted(str(error), 80)})"
        )

    try:
        columns = tuple(opened()[0].names)
    except damages as error:
        raise damaged(error) from error

    def cells(names: Sequence[str]) -> Iterator[Row]:
        number = unpacked = 0
        try:
            _, batches = opened()
            for batch in batches(list(dict.fromkeys(names))):
                batch.validate(full=True)  # offsets that lead out of a buffer would end the process
                size = batch.nbytes + batch.num_rows
                refuse_bomb(path, size, packed)
                for start in range(0, batch.num_rows, rows := _at_once(size, packed)):
                    values = batch.slice(start, rows).to_pydict()
                    unpacked += _extent(values)  # the real size; the declared one may be wrong
                    refuse_bomb(path, unpacked, packed, cells=number * len(names))
                    for row in zip(*(values[name] for name in names), strict=True):
                        number += 1
                        yield RowNumber(number), row
        except damages as error:
            raise damaged(error, number) from error

    return Table(path, columns, cells)


def _at_once(size: int, packed: int) -> int:
    """Return how many rows to read at once, if each may expand to all of the unpacked data."""
    return max(1, min(256, most_unpacked(packed) // (size + 1)))


def _extent(value: object) -> int:
    """Count the characters in a value, and 1 for each list, dictionary and value without text."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + (sum(map(_extent, value)) if isinstance(value, list) else 0)


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by ``save_to_disk`` (Hugging Face library datasets)."""
    try:
        parts = ("dataset_dict.json",), ("state.json", "dataset_info.json")
        return any(all((folder / name).is_file() for name in names) for names in parts)
    except OSError:
        return False


def has_pictures(folder: Path) -> bool:
    """Return whether ``save_to_disk``'s folder, or one of parquet files, has a picture column."""
    for path in folder.rglob("*.parquet"):
        open_table(path)  # refuses a damaged file
        fields = _module("pyarrow.parquet", "parquet").read_schema(path)
        if any(each.name in IMAGE or "binary" in str(each.type) for each in fields):
            return True
    infos = (path.read_text("utf-8", "replace") for path in folder.rglob("dataset_info.json"))
    return any(f'"{word}"' in info for info in infos for word in ("Image", *IMAGE))


def check_saved(folder: Path) -> None:
    """Refuse a saved data set that names anything but regular files in its folder."""

    def listed(index: Path, key: str) -> list[Any]:
        return read_json(index)[key] if index.is_file() else []

    def beside(index: Path, name: str) -> Path:
        if Path(name).name != name or name == "..":
            raise InputError(
                f"{place(index)}: save this dataset again; {quoted(name)} is a path, not a name"
            )
        return index.with_name(name)

    index = folder / "dataset_dict.json"
    for part in (folder, *(beside(index, split) for split in listed(index, "splits"))):
        state, info = part / "state.json", part / "dataset_info.json"
        for table in listed(state, "_data_files"):
            check_file(beside(state, table["filename"]))
        if info.is_file():
            read_json(info)


def _saved(folder: Path) -> Table:
    datasets = _module("datasets", "hub")
    try:
        check_saved(folder)
        return table_of(datasets.load_from_disk(str(folder)), folder)
    except InputError:
        raise
    except Exception as error:  # datasets may raise any error
        raise InputError(
            f"{place(folder)}: save this dataset again; it cannot be loaded ({first_line(error)})"
        ) from error


def is_hub_name(path: Path) -> bool:
    """Return whether a path is taken as the name of a data set on the hub, like ``user/dataset``.

    The result is False if a folder ``user`` exists, or if the path has the suffix of a table.
    """
    is_id = _HUB.fullmatch(path.as_posix()) is not None
    return is_id and plain_suffix(path) not in SUFFIXES and not path.parent.exists()


def check_known(path: Path) -> None:
    """Raise an error if a data set is neither in the local cache nor on the hub."""
    from huggingface_hub import constants

    name = path.as_posix()
    cache = os.environ.get("HF_DATASETS_CACHE") or Path(constants.HF_HOME) / "datasets"
    if not Path(cache, name.replace("/", "___")).exists():
        known, failure = known_to_hub([name], "dataset")
        if known is None:
            raise InputError(
                f"check the name {name}: no such file, and no such data set on the hub ({failure})"
            )


def _hub(path: Path, *, streaming: bool) -> Table:
    """Return the training split of a data set of the hub."""
    if (closed := why_closed()) is not None:
        raise InputError(
            f"use `--data {path}` for a data set of the hub; no file has this name, and {closed}"
        )
    datasets, name = _module("datasets", "hub"), path.as_posix()

    def failed(error: Exception, rows: int = 0) -> InputError:
        after = f" after row {rows:,}" if rows else ""
        return InputError(
            f"check the name {name!r}, and the connection to the Hugging Face hub: no file or "
            f"folder has this name, and reading a data set of this name failed{after} "
            f"({type(error).__name__}: {first_line(error)})"
        )

    # the hub, the network and the cache raise errors of many kinds
    try:
        table = _frame(datasets.load_dataset(name, split="train", streaming=streaming), path)
    except Exception as error:
        raise failed(error) from error

    def cells(names: Sequence[str]) -> Iterator[Row]:
        number = 0
        try:
            for number, row in table.cells(names):
                yield number, row
        except Exception as error:
            raise failed(error, number) from error

    return replace(table, cells=cells)


def frame_library(data: object) -> str:
    """Return ``"pandas"``, ``"polars"`` or ``"datasets"``, the library of ``data``, or else ""."""
    first = type(data).__module__.partition(".")[0]
    return first if first in _FRAMES else ""


def table_of(data: object, name: Path = Path("the data"), wanted: Sequence[str] = ()) -> Table:
    """Convert a data frame, a data set, or a list of texts, tuples or dictionaries to a table."""
    if isinstance(data, Mapping):  # a DatasetDict
        if "train" not in data:
            raise InputError(
                f"{place(name)}: give a split ({', '.join(map(str, data))}), for example as "
                f"{place(name / str(next(iter(data), 'train')))}; no split is called 'train'"
            )
        data = data["train"]
    kind = type(data)  # an instance has the names of its rows or columns as attributes too
    if frame_library(data) and (hasattr(kind, "columns") or hasattr(kind, "column_names")):
        return _frame(data, name)
    items = data if isinstance(data, Sequence) else list(cast("Iterable[object]", data))
    first = next((item for item in map(_plain, items) if not missing(item)), None)
    if isinstance(first, Mapping):
        return objects(name, lambda: numbered(map(_plain, items)), wanted)
    width = max(1, len(first)) if isinstance(first, (tuple, list)) else 1

    def cells(names: Sequence[str]) -> Iterator[Row]:
        positions = [int(n) - 1 for n in names] if width > 1 else [0]
        for number, item in numbered(map(_plain, items)):
            row = tuple(item) if isinstance(item, (tuple, list)) else (item,)
            if len(row) != width:
                raise InputError(
                    f"give all records the same number of texts: record {number} of {place(name)} "
                    f"has {len(row)}, but earlier records have {width}"
                )
            yield number, tuple(row[p] for p in positions)

    columns = tuple(str(i + 1) for i in range(width)) if width > 1 else ("text",)
    return Table(name, columns, cells, titled=False)


def _plain(item: object) -> object:
    """Return a row of a data frame as a dictionary, and an array as a list."""
    plain = getattr(item, "to_dict" if frame_library(item) == "pandas" else "tolist", None)
    return item if plain is None else plain()


def _frame(frame: object, name: Path) -> Table:
    data: Any = frame  # the three libraries have no common type
    is_set = frame_library(data) == "datasets"
    # a streamed data set may have its column names only in its first row
    header = list(data.columns) if not is_set else data.column_names or list(next(iter(data), {}))
    keys = {str(key): key for key in header}

    def cells(names: Sequence[str]) -> Iterator[Row]:
        rows: Iterable[Sequence[Any]]
        if is_set:
            chosen = data.select_columns([keys[n] for n in dict.fromkeys(names)])
            rows = ([row[keys[n]] for n in names] for row in chosen)
        else:
            rows = zip(*(data[keys[n]].to_list() for n in names), strict=True)
        return numbered(map(tuple, rows))

    return Table(name, tuple(map(str, header)), cells)
