"""Reads text from a Hugging Face dataset folder written by ``save_to_disk`` (Arrow tables).

Of several splits the one called ``train`` is read, as of pictures. What ``datasets`` keeps in the
folder besides (copies in a cache) is not.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isotrope.core.documents import read_json
from isotrope.core.errors import InputError, MissingExtra
from isotrope.data.lines import open_bytes, place, quoted
from isotrope.data.tables import Choose

__all__ = ["arrow_rows", "is_saved", "shards"]

_SPLITS, _STATE = "dataset_dict.json", "state.json"


def is_saved(folder: Path) -> bool:
    """Return whether a folder is a saved dataset, of one split or of several."""
    return any((folder / name).is_file() for name in (_SPLITS, _STATE))


def shards(folder: Path) -> list[Path]:
    """Return the tables of a saved dataset in their order.

    Raises:
        InputError: no split called ``train``, a list of tables that is none, a table that is not
            there or not in the folder, or rows that are chosen by a table of indices.
    """
    if (folder / _SPLITS).is_file():
        splits = _entry(folder / _SPLITS, "splits")
        if "train" not in splits:
            raise InputError(
                f"{place(folder)}: no split called 'train'; found "
                f"{quoted(', '.join(map(str, splits)))}; name the folder of one split"
            )
        folder = folder / "train"
    state = folder / _STATE
    files = _entry(state, "_data_files")
    if read_json(state).get("_indices_data_files"):
        raise InputError(
            f"{place(folder)}: its rows are chosen by a table of indices; save it anew with a "
            "present version of datasets"
        )
    names = [file.get("filename") if isinstance(file, dict) else file for file in files]
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise InputError(
                f"{place(state)}: names {quoted(name)}, which is not a file in {folder}"
            )
    if not names:
        raise InputError(f"{place(state)}: names no tables; save the dataset again")
    return [folder / str(name) for name in names]


def _entry(file: Path, key: str) -> list[Any]:
    content = read_json(file)
    value = content.get(key) if isinstance(content, dict) else None
    if not isinstance(value, list):
        raise InputError(f"{place(file)}: has no list {key!r}; save the dataset again")
    return value


def arrow_rows(path: Path, choose: Choose) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield (row number from 1, chosen values) of a table of Arrow, a batch in memory at a time.

    Raises:
        InputError: not such a table, damaged, empty, or a column that is not there.
        MissingExtra: pyarrow is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtra("pyarrow", extra="parquet") from error
    number = 0
    with open_bytes(path) as handle:
        try:
            with pyarrow.ipc.open_stream(handle) as stream:
                names = list(choose(path, stream.schema.names))
                for batch in stream:
                    columns = batch.select(list(dict.fromkeys(names))).to_pydict()
                    for cells in zip(*(columns[name] for name in names), strict=True):
                        number += 1
                        yield number, cells
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            after = f" after row {number}" if number else ""
            raise InputError(
                f"{place(path)}: not a table of Arrow, or damaged{after} "
                f"({quoted(str(error), 80)}); save the dataset again"
            ) from error
    if not number:
        raise InputError(f"{place(path)}: is empty; give a dataset with at least one row of text")
