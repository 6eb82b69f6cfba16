"""Runner: runs the jobs that have no result yet, several at a time, and stores every result."""

import functools
import importlib
import itertools
import pkgutil
import re
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import torch

from isotrope.core import (
    Diverged,
    InputError,
    MissingExtra,
    Result,
    format_duration,
    nearest,
    provenance,
)
from isotrope.training import each
from papers import measurements
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob
from papers.machinery.store import JobStore

Tell = Callable[[str], None]


def missing_data(jobs: Iterable[PaperJob], sources: DataRegistry) -> dict[PaperJob, list[str]]:
    """Resolve every name of every job; return the requirements missing on this machine."""
    missing_by_job = {}
    for job in jobs:
        try:
            missing_by_job[job] = _measurement_of(job).check(job, sources)
        except MissingExtra:
            raise
        except InputError as error:
            raise InputError(f"{job.label}: {error}") from error
    return missing_by_job


def run(
    jobs: Sequence[PaperJob],
    store: JobStore,
    sources: DataRegistry,
    runs: Path,
    *,
    processes: int = 1,
    minutes: float | None = None,
    tell: Tell = lambda line: None,
) -> dict[PaperJob, str]:
    """Run the jobs without a stored result, in order; every result is stored at once.

    A job that cannot be done does not keep the others from being done. A training that diverges
    has a result that says so, and is not tried again.
    """
    wanted = list(dict.fromkeys(jobs))
    waiting = [job for job in wanted if store.find(job) is None]
    if not waiting:
        return {}
    failed: dict[PaperJob, str] = {}
    left = dict.fromkeys(waiting)
    begun: list[PaperJob] = []
    start = time.monotonic()

    def in_time(job: PaperJob) -> bool:
        if minutes is not None and time.monotonic() - start >= 60 * minutes:
            return False
        begun.append(job)
        return True

    with store.writing():
        for job in wanted:
            if store.find(job) is not None:  # killed after it was kept
                shutil.rmtree(runs / job.key, ignore_errors=True)
        tell(
            f"{_counted(len(waiting), 'job')} to run, {len(wanted) - len(waiting)} there already"
            + (f", {processes} at a time" if processes > 1 else "")
            + _estimate(left, store, processes)
        )
        task = functools.partial(_measure, sources=sources, runs=runs)
        with closing(each(task, itertools.takewhile(in_time, waiting), processes)) as finished:
            for job, result in finished:
                del left[job]
                if isinstance(result, InputError):
                    failed[job] = str(result)
                    came = f"failed: {result}"
                else:
                    store.keep(job, result)
                    shutil.rmtree(runs / job.key, ignore_errors=True)
                    came = format_duration(float(result.provenance["seconds"]))
                    if diverged := result.details.get("diverged"):
                        came += f", {diverged}"
                place = f"[{len(waiting) - len(left)}/{len(waiting)}]"
                passed = format_duration(time.monotonic() - start)
                more = _estimate(left, store, processes)
                tell(f"{place} {job.label}: {came} ({passed} so far{more})")
    if len(begun) < len(waiting):
        tell(
            f"no more jobs after {minutes:g} minutes: {len(waiting) - len(begun)} left; the same "
            "command goes on"
        )
    return failed


def _estimate(left: Iterable[PaperJob], store: JobStore, processes: int) -> str:
    """Say how long jobs will take, by those of the same work that the store has."""
    took = store.seconds
    durations = list(itertools.chain(*took.values()))
    jobs = list(left)
    if not durations or not jobs:
        return ""
    total = sum(statistics.fmean(took.get(job.measurement, durations)) for job in jobs)
    return f", about {format_duration(total / processes)} to go"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _measure(job: PaperJob, sources: DataRegistry, runs: Path) -> Result:
    """Measure one job; its provenance says how long it took, waiting for cores included."""
    start, used = time.monotonic(), time.process_time()
    torch.manual_seed(job.seed)
    result: Result
    try:
        # standard output is for tables: what libraries say there is no part of them
        with redirect_stdout(sys.stderr):
            result = _measurement_of(job).run(job, sources, runs / job.key)
    except Diverged as error:
        metrics: dict[str, float | int | str | None] = {}
        details = {"diverged": str(error)}
        result = Result(job.measurement, job.title, metrics, details, provenance(seed=job.seed))
    took = {
        "command": ["python", "-m", "papers", *map(_without_folder, sys.argv[1:])],
        "seconds": round(time.monotonic() - start, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
        "threads": torch.get_num_threads(),
        "machine": _machine(),
    }
    return replace(result, provenance={**result.provenance, **took}, items={})


def _without_folder(argument: str) -> str:
    """An argument of the command without where this machine has its data: results are shared."""
    flag, equals, value = argument.rpartition("=")
    return flag + equals + (Path(value).name if Path(value).is_absolute() else value)


@functools.cache
def _machine() -> str:
    """The kind of processor, or of GPU."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        lines = ""
    model = re.search(r"model name\s*: *(.+)", lines)
    return model.group(1).strip() if model else str(provenance()["processor"])


def _measurement_of(job: PaperJob) -> ModuleType:
    names = [module.name for module in pkgutil.iter_modules(measurements.__path__)]
    if job.measurement not in names:
        raise InputError(f"there is no work {job.measurement!r}{nearest(job.measurement, names)}")
    return importlib.import_module(f"{measurements.__name__}.{job.measurement}")
