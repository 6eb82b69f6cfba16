"""Reads the numbers that the papers print from paper_numbers.toml."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from isotrope.core import InputError, nearest


@dataclass(frozen=True)
class Printed:
    """One table of a paper, or what its text says of a figure.

    Attributes:
        source: paper, table or figure, section.
        columns: names of the values of a row.
        rows: a value for each column, in the paper's unit (percent where it has percent); None
            where the paper prints nothing.
        notes: slips in the numbers, how an unclear passage was read, what the text leaves out.
    """

    source: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[float | str | None, ...]]
    notes: tuple[str, ...] = ()


def printed(paper: str, name: str) -> Printed:
    """Return what ``paper`` prints in ``name``, slips included.

    Example:
        >>> table = printed("mio", "table2")
        >>> dict(zip(table.columns, table.rows["miov3"]))["STL-10"]
        77.49
    """
    entry = _lookup(_lookup(_all_numbers(), paper, "paper"), name, f"part of {paper!r}")
    return Printed(
        source=entry["source"],
        columns=tuple(entry["columns"]),
        rows={row: _values(values) for row, values in entry["rows"].items()},
        notes=tuple(entry.get("notes", ())),
    )


@cache
def _all_numbers() -> Mapping[str, Any]:
    """By paper and name."""
    place = files("papers").joinpath("paper_numbers.toml")
    return tomllib.loads(place.read_text(encoding="utf-8"))


def _lookup(there: Mapping[str, Any], word: str, what: str) -> Any:  # noqa: ANN401 - of the TOML
    if word not in there:
        raise InputError(
            f"no {what} with printed numbers is named {word!r}{nearest(word, there)}; "
            f"there are {', '.join(there)}"
        )
    return there[word]


def _values(row: Sequence[float | str]) -> tuple[float | str | None, ...]:
    """TOML has no null: a dash stands for it, as in the papers."""
    return tuple(None if value == "-" else value for value in row)
