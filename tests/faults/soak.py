"""A long run of a tiny model: memory and open files at a tenth of it and at its end."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.trials import ROOT, environment


@dataclass(frozen=True)
class Sample:
    """A look at a running process: the step it has logged last, MiB of memory, open files."""

    step: int
    memory: float
    files: int


@dataclass(frozen=True)
class Soaked:
    """What a long run needed.

    Attributes:
        steps: of it.
        early: memory after warm-up (a tenth of the run), in MiB: the median of 4% of the run.
        late: the median of its last 5%.
        most: the largest.
        files: most open ones after warm-up, and of the last 5%.
        seconds: it took.
    """

    steps: int
    early: float
    late: float
    most: float
    files: tuple[int, int]
    seconds: float

    @property
    def growth(self) -> float:
        """Share by which memory has grown since warm-up."""
        return self.late / self.early - 1

    @property
    def flat(self) -> bool:
        """Whether neither memory nor files have grown: a few are open where one is written."""
        return self.growth < 0.02 and self.files[1] <= self.files[0] + 5


def soak(
    arguments: list[str], output: Path, *, steps: int, warm: float = 0.1, patience: float = 0.2
) -> Soaked:
    """Train, look at the process again and again, and diagnose the run at the end.

    Args:
        arguments: of the command line.
        output: the run folder that they name.
        steps: of the run.
        warm: share of the run after which memory must not grow.
        patience: seconds between two looks.

    Raises:
        AssertionError: the run, or its diagnosis, fails.
    """
    began, samples = time.monotonic(), []
    # a pipe that nobody reads is full after some thousand lines
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "isotrope", *arguments],
            env=environment(),
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
        )
        while process.poll() is None:
            if (sample := _look(process.pid, output / "metrics.csv")) is not None:
                samples.append(sample)
            time.sleep(patience)
        said.seek(0)
        assert process.returncode == 0, said.read()[-4000:]
    seconds = time.monotonic() - began
    asked = [sys.executable, "-m", "isotrope", "diagnose", str(output)]
    found = subprocess.run(asked, env=environment(), capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stderr
    early = [s for s in samples if abs(s.step / steps - warm) <= 0.02]
    late = [s for s in samples if s.step >= 0.95 * steps]
    return Soaked(
        steps,
        statistics.median(s.memory for s in early),
        statistics.median(s.memory for s in late),
        max(s.memory for s in samples),
        (max(s.files for s in early), max(s.files for s in late)),
        seconds,
    )


def _look(process: int, metrics: Path) -> Sample | None:
    """Return how a process stands, or None where it has not logged a step yet, or has ended."""
    place = Path("/proc") / str(process)
    try:
        with metrics.open("rb") as handle:
            handle.seek(max(0, os.fstat(handle.fileno()).st_size - 2000))
            step = int(handle.read().splitlines()[-1].split(b",")[0])
        pages = int((place / "statm").read_text().split()[1])
        files = len(list((place / "fd").iterdir()))
    except (OSError, ValueError, IndexError):
        return None
    return Sample(step, pages * os.sysconf("SC_PAGE_SIZE") / 2**20, files)
