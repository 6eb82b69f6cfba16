"""The names of several data sets in one training: ``qa=pairs.tsv nli=nli.tsv``.

A batch comes from one data set (:mod:`isotrope.data.text.mixture`); files without names are one.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from isotrope.core.documents import brief
from isotrope.core.errors import InputError
from isotrope.core.files import from_home

__all__ = ["NAME", "Sampling", "by_dataset", "named_errors"]

Sampling = Literal["proportional", "round-robin"]
NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
"""What the name of a data set looks like."""

_NAMED = re.compile(rf"({NAME.pattern})=(.+)", re.ASCII)


def by_dataset(files: Sequence[str]) -> dict[str, list[str]]:
    """Return the files of each data set, by its name; of files without names, one called ``""``.

    A path that exists is no name, whatever is in it (``split=train/``).

    >>> by_dataset(["qa=a.tsv", "nli=b.tsv", "qa=c.tsv"])
    {'qa': ['a.tsv', 'c.tsv'], 'nli': ['b.tsv']}

    Raises:
        InputError: some files have a name, and some have none.
    """
    datasets: dict[str, list[str]] = {}
    for file in files:
        match = None if Path(file).exists() else _NAMED.fullmatch(file)
        name, path = match.groups() if match else ("", file)
        datasets.setdefault(name, []).append(from_home(path) if name else path)
    if "" in datasets and len(datasets) > 1:
        raise InputError(
            f"{brief(datasets[''][0])} belongs to none of the data sets "
            f"{', '.join(name for name in datasets if name)}; give it a name, too: NAME=FILE"
        )
    return datasets


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Let errors say which of several data sets they are about."""
    try:
        yield
    except InputError as error:
        if name:
            error.args = (f"data set {name}: {error}", *error.args[1:])
        raise
