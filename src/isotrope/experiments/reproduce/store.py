"""Store: what cells came to, a line of JSON each, appended as they finish.

One file for each kind of work, in a folder that can be kept in a repository: a run that was stopped
goes on where it stood, on another machine too. A line that a stop cut short is dropped.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from isotrope.core.errors import InputError
from isotrope.core.files import writable
from isotrope.core.result import Result
from isotrope.experiments.reproduce.cell import Cell

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
        self._found: dict[str, Result] = {}
        for file in sorted(self.folder.glob("*.jsonl")):
            self._found.update(_lines(file))

    def find(self, cell: Cell) -> Result | None:
        """Return what a cell came to, or None."""
        return self._found.get(cell.key)

    def keep(self, cell: Cell, result: Result) -> None:
        """Append a result, and flush it to the disk.

        Raises:
            InputError: the place cannot be written.
        """
        asked = {"work": cell.work, "settings": dict(cell.settings), "seed": cell.seed}
        plain = json.loads(result.to_json())  # as every reader will see it
        line = json.dumps({"key": cell.key, "cell": asked, "result": plain}, ensure_ascii=False)
        path = self.folder / f"{cell.work}.jsonl"
        with writable(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            whole = _whole(path)
            with path.open("ab") as handle:
                handle.truncate(whole)
                handle.write(line.encode() + b"\n")
                handle.flush()
                os.fsync(handle.fileno())
        self._found[cell.key] = Result(**plain)


def _whole(path: Path) -> int:
    """How many bytes of a file are whole lines."""
    content = path.read_bytes() if path.is_file() else b""
    return content.rfind(b"\n") + 1


def _lines(file: Path) -> Iterator[tuple[str, Result]]:
    try:
        lines = file.read_bytes()[: _whole(file)].decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            found = json.loads(line)
            yield str(found["key"]), Result(**found["result"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(
                f"{file}:{number} is not a result of a cell ({error}); was it edited? Delete the "
                "line to measure it anew"
            ) from error
