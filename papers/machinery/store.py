"""Store: what cells came to, a line of JSON each, appended as they finish.

One file for each kind of work, in a folder that can be kept in a repository: a run that was stopped
goes on where it stood, on another machine too. A line that a stop cut short is dropped.
"""

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from isotrope.core.errors import InputError
from isotrope.core.files import os_errors_as_input_errors
from isotrope.core.lock import exclusive_lock
from isotrope.core.result import Result
from papers.machinery.job import Cell

__all__ = ["Store"]


class Store:
    """Results by cell.

    Args:
        folder: made when the first result is kept.

    Raises:
        InputError: a line that is not a result, other than an unfinished last one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._found: dict[Cell, Result] = {}
        for file in sorted(self.folder.glob("*.jsonl")):
            self._found.update(_lines(file))

    def find(self, cell: Cell) -> Result | None:
        """Return what a cell came to, or None."""
        return self._found.get(cell)

    @property
    def seconds(self) -> dict[str, list[float]]:
        """How long the cells took, by their work."""
        found: dict[str, list[float]] = {}
        for cell, result in self._found.items():
            if isinstance(took := result.provenance.get("seconds"), int | float):
                found.setdefault(cell.work, []).append(float(took))
        return found

    def writing(self) -> AbstractContextManager[None]:
        """Keep others that write here out until the end.

        Raises:
            InputError: another process is writing, or the place cannot be written.
        """
        doing = f"measuring into {self.folder.parent}"
        return exclusive_lock(self.folder, doing, " (--show looks at what there is)")

    def keep(self, cell: Cell, result: Result) -> None:
        """Append a result, and flush it to the disk.

        Raises:
            InputError: the place cannot be written.
        """
        asked = {"work": cell.work, "settings": dict(cell.settings), "seed": cell.seed}
        plain = json.loads(result.to_json())  # as every reader will see it
        told = {"key": cell.key, "title": cell.title, "cell": asked, "result": plain}
        line = json.dumps(told, ensure_ascii=False, allow_nan=False)
        path = self.folder / f"{cell.work}.jsonl"
        with os_errors_as_input_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if path.exists() else "x+b") as handle:
                handle.truncate(_whole(handle))
                handle.seek(0, os.SEEK_END)
                handle.write(line.encode() + b"\n")
                handle.flush()
                os.fsync(handle.fileno())
        self._found[cell] = Result(**plain)


def _whole(handle: BinaryIO) -> int:
    """How many bytes of a file are whole lines."""
    end = handle.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 2**16)
        handle.seek(start)
        if (place := handle.read(end - start).rfind(b"\n")) >= 0:
            return start + place + 1
        end = start
    return 0


def _lines(file: Path) -> Iterator[tuple[Cell, Result]]:
    try:
        with file.open("rb") as handle:
            size = _whole(handle)
            handle.seek(0)
            # no splitlines: a text may have other ends of lines in it
            lines = handle.read(size).decode("utf-8").split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            found = json.loads(line)
            # the key that its cell has now, not the one that stands there
            cell = Cell(**found["cell"], title=str(found.get("title", "")))
            result = Result(**found["result"])
            named = (cell.settings, result.metrics, result.details)
            if not all(isinstance(values, dict) for values in named):
                raise TypeError("settings, metrics and details are by name")
            yield cell, result
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{file}:{number} is not a result of a cell ({error}); was it edited? Delete the "
                "line to measure it anew"
            ) from error
