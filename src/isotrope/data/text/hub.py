"""Reads text from the training split of a data set of the Hugging Face hub, by its name."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isotrope.core.errors import InputError, MissingExtra
from isotrope.core.hub import first_line, known_to_hub, why_closed
from isotrope.data.tables import Choose

__all__ = ["check_known", "hub_rows", "is_hub_name"]

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILE = re.compile(r"\.(txt|tsv|csv|jsonl|parquet|arrow)(\.gz)?$", re.IGNORECASE)


def is_hub_name(path: Path) -> bool:
    """Return whether a path is the name of a data set of the hub, such as ``user/dataset``.

    It is where there is neither such a path nor a folder ``user`` here, and where the name does not
    end as a file does that can be read.
    """
    name = path.as_posix()
    return bool(_NAME.fullmatch(name) and not _FILE.search(name) and not path.parent.exists())


def check_known(path: Path) -> None:
    """Refuse a data set that is not in the cache and that the hub does not know, within seconds.

    Raises:
        InputError: as the message says.
    """
    from huggingface_hub import constants

    name = path.as_posix()
    cache = os.environ.get("HF_DATASETS_CACHE") or Path(constants.HF_HOME) / "datasets"
    if not Path(cache, name.replace("/", "___")).exists():
        known, failure = known_to_hub([name], "dataset")
        if known is None:
            raise InputError(f"{name}: no such file here; as a data set of the hub: {failure}")


def hub_rows(
    path: Path, choose: Choose, *, streaming: bool
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield (row number from 1, chosen values) of the training split.

    Args:
        path: the name.
        choose: picks the columns.
        streaming: download what is read now, and keep nothing of it; otherwise the whole data set
            comes into the cache of ``datasets`` first, and is read from there later, too.

    Raises:
        InputError: the hub has no such data set, or cannot be reached; a column that is not there.
        MissingExtra: the package ``datasets`` is not installed.
    """
    if (closed := why_closed()) is not None:
        raise InputError(f"{path}: no such file here, and {closed}: name it with --data")
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("datasets", extra="hub") from error
    name, number = path.as_posix(), 0
    try:
        data = datasets.load_dataset(name, split="train", streaming=streaming)
        # a stream may learn its columns from its first row
        columns = choose(path, data.column_names or list(next(iter(data), {})))
        for row in data.select_columns(list(dict.fromkeys(columns))):
            number += 1
            yield number, tuple(row[column] for column in columns)
    except InputError:
        raise
    # of the hub, the network and the cache, each with errors of its own
    except Exception as error:
        after = f" after row {number:,}" if number else ""
        raise InputError(
            f"{name!r} is neither a file or folder here nor a data set that could be read from the "
            f"Hugging Face hub{after} ({type(error).__name__}: {first_line(error)}); check the "
            "name, or the connection"
        ) from error
