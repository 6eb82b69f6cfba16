"""JobStore: stores the result of every job as a line of JSON, appended when the job finishes.

There is one file for each kind of measurement, in a folder that can be committed: a run that was
stopped goes on where it stood, on another machine too. A line that a stop cut short is dropped.
"""

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from isotrope.core import InputError, Result, exclusive_lock
from papers.machinery.job import PaperJob


class JobStore:
    """The results of jobs, on disk.

    Args:
        folder: where they are; it is made when the first result is kept.

    Raises:
        InputError: a line is not a result (an unfinished last one is no error).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._results: dict[PaperJob, Result] = {}
        for file in sorted(self.folder.glob("*.jsonl")):
            self._results.update(_read_results(file))

    def find(self, job: PaperJob) -> Result | None:
        """Return the result of a job; None if it has not been run."""
        return self._results.get(job)

    @property
    def seconds(self) -> dict[str, list[float]]:
        """How long the jobs took, by measurement."""
        seconds: dict[str, list[float]] = {}
        for job, result in self._results.items():
            if isinstance(took := result.provenance.get("seconds"), int | float):
                seconds.setdefault(job.measurement, []).append(float(took))
        return seconds

    def writing(self) -> AbstractContextManager[None]:
        """Return a lock that keeps other writers out."""
        activity = f"measuring into {self.folder.parent}"
        return exclusive_lock(self.folder, activity, " (--show looks at what there is)")

    def keep(self, job: PaperJob, result: Result) -> None:
        """Append a result, and flush it to the disk."""
        # files that are committed call a job "cell" and its measurement "work"
        identity = {"work": job.measurement, "settings": dict(job.settings), "seed": job.seed}
        plain = json.loads(result.to_json())  # as every reader will see it
        row = {"key": job.key, "title": job.title, "cell": identity, "result": plain}
        line = json.dumps(row, ensure_ascii=False, allow_nan=False)
        path = self.folder / f"{job.measurement}.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "x+b") as handle:
            handle.truncate(_size_of_whole_lines(handle))
            handle.seek(0, os.SEEK_END)
            handle.write(line.encode() + b"\n")
            handle.flush()
            os.fsync(handle.fileno())
        self._results[job] = Result(**plain)


def _size_of_whole_lines(handle: BinaryIO) -> int:
    """Count the bytes of a file up to the end of its last complete line."""
    end = handle.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 2**16)
        handle.seek(start)
        if (last := handle.read(end - start).rfind(b"\n")) >= 0:
            return start + last + 1
        end = start
    return 0


def _read_results(file: Path) -> Iterator[tuple[PaperJob, Result]]:
    try:
        with file.open("rb") as handle:
            size = _size_of_whole_lines(handle)
            handle.seek(0)
            # no splitlines: a text may have other ends of lines in it
            lines = handle.read(size).decode("utf-8").split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            yield _parse(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{file}:{number} is not a result of a job ({error}); was it edited? Delete the "
                "line to measure it anew"
            ) from error


def _parse(row: dict[str, Any]) -> tuple[PaperJob, Result]:
    identity = dict(row["cell"])
    # the key is computed from the job, and not read from the line
    job = PaperJob(identity.pop("work"), **identity, title=str(row.get("title", "")))
    result = Result(**row["result"])
    if not all(isinstance(v, dict) for v in (job.settings, result.metrics, result.details)):
        raise TypeError("settings, metrics and details are by name")
    return job, result
