"""Reads the log of a run, metrics.csv, for diagnoses and reports."""

import csv
import os
from pathlib import Path

from isotrope.core.documents import read_text
from isotrope.core.errors import InputError, place

_LAST = 2**53  # largest step: floating-point numbers represent all integers up to it

Rows = dict[float, dict[str, float]]


def read_log(path: Path, *, complete: bool) -> tuple[list[str], Rows]:
    """Return a pair: the list of columns without ``step``, and a dict from each step to a row.

    A row is a dict from column to number. If two lines have the same step, the later number counts.

    Args:
        path: The file.
        complete: Whether the run has ended. If not, a last line without a line break is ignored.
    """
    columns, lines = read_lines(path, complete=complete)
    rows: Rows = {}
    for step, row in lines:
        rows.setdefault(step, {}).update(row)
    return columns, dict(sorted(rows.items()))


def read_lines(
    path: Path, *, complete: bool
) -> tuple[list[str], list[tuple[float, dict[str, float]]]]:
    """Return a pair as :func:`read_log`, but with a list of steps and rows: one for each line."""
    if not os.path.lexists(path):
        raise InputError(
            f"give the `--output` folder of `isotrope train`; cannot find the file {path}"
        )
    text = read_text(path)
    if not complete:
        text = text[: text.rfind("\n") + 1]
    try:
        lines = list(csv.reader(text.splitlines(), strict=True))
    except csv.Error as error:
        raise InputError(f"{place(path)} is not CSV ({error}); restore the file") from error
    if not complete and not lines:
        return [], []
    header = lines[0] if lines else []
    if "step" not in header:
        raise InputError(f"{place(path, 1)}: the header has no column 'step'; restore the file")
    if twice := [name for i, name in enumerate(header) if name in header[:i]]:
        why = f"the header has the column {twice[0]!r} twice"
        raise InputError(f"{place(path, 1)}: {why}; restore the file")
    rows = []
    for number, cells in enumerate(lines[1:], start=2):
        if not cells:
            continue
        try:
            if len(cells) != len(header):
                raise ValueError(f"expected {len(header)} cells, found {len(cells)}")
            row = {name: float(c) for name, c in zip(header, cells, strict=True) if c.strip()}
        except ValueError as error:
            why = f"{error}; every cell must be a number or empty"
            raise InputError(f"{place(path, number)}: {why}; remove the line") from error
        step = row.pop("step", None)
        if step is None or not 0 <= step <= _LAST:
            why = "row has no step" if step is None else f"step {step:g} is not between 0 and 2^53"
            raise InputError(f"{place(path, number)}: the {why}; remove the line")
        rows.append((step, row))
    return [name for name in header if name != "step"], rows
