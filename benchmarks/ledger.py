"""Tables of results, to which a benchmark adds the rows that it measures."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from isotrope.core.files import atomic_replace


def read(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV, none of one that is not there."""
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def write(file: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write a CSV, completely or not at all; a value that a row lacks is empty."""
    with atomic_replace(file) as new, new.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, columns, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)
