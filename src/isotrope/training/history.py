"""Reads the history of a run, the rows of metrics.csv, as a table."""

import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from isotrope.core.metrics_log import read_log

Row = dict[str, float | None]

_SHOWN = 10  # last rows that are printed


class History(Sequence[Row]):
    """The log of a run: a sequence of rows, and columns by their names.

    ``history["loss"]`` is a column, ``history[-1]`` a row, and ``history.columns`` are the names of
    the measured columns; a value that was not measured at a step is None.
    ``pandas.DataFrame(list(history))`` makes a DataFrame of it.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        names = list(rows[0]) if rows else []
        self.columns = [n for n in names if any(row[n] is not None for row in rows)]
        self._rows = [{name: row[name] for name in self.columns} for row in rows]

    @classmethod
    def read(cls, file: Path) -> "History":
        """Read a metrics.csv, without a last line that is still being written.

        Raises:
            InputError: no such file, or it is not a table of numbers.
        """
        names, rows = read_log(file, complete=False)
        return cls([{"step": step, **{n: row.get(n) for n in names}} for step, row in rows.items()])

    @overload
    def __getitem__(self, which: int) -> Row: ...
    @overload
    def __getitem__(self, which: slice) -> "History": ...
    @overload
    def __getitem__(self, which: str) -> list[float | None]: ...

    def __getitem__(self, which: int | slice | str) -> "Row | History | list[float | None]":
        """Return a row, some rows, or a column."""
        if isinstance(which, int):
            return self._rows[which]
        if isinstance(which, slice):
            return History(self._rows[which])
        if which not in self.columns:
            raise KeyError(f"{which!r} was not measured; there are {', '.join(self.columns)}")
        return [row[which] for row in self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        first = f"of {len(self)} rows the last {_SHOWN}; " if len(self) > _SHOWN else ""
        columns = [name for name in _FIRST if name in self.columns]
        rows = [columns, *([_cell(row[n]) for n in columns] for row in self._rows[-_SHOWN:])]
        widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join([*lines, f"({first}{len(self.columns)} columns)"])

    def _repr_html_(self) -> str:
        """Return all columns of the last rows, for a notebook."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(row[name])}</td>" for name in self.columns) + "</tr>"
            for row in self._rows[-_SHOWN:]
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_FIRST = (
    *("step", "epoch", "loss", "dev", "dissipation", "dead", "hardest_share", "ratio"),
    *("alignment", "uniformity"),
)
"""Columns to print, if they were measured."""


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
