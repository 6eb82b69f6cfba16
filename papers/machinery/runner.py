"""Runner: does the cells that are missing, several at a time, and keeps each as it finishes."""

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

from isotrope.core.durations import format_duration
from isotrope.core.errors import Diverged, InputError, MissingExtra, nearest
from isotrope.core.result import Result, provenance
from isotrope.training.launch import each
from papers import measurements
from papers.machinery.cell import Cell
from papers.machinery.places import Places
from papers.machinery.store import Store

__all__ = ["lacking", "run"]

Tell = Callable[[str], None]


def lacking(cells: Iterable[Cell], places: Places) -> dict[Cell, list[str]]:
    """Resolve every name of every cell; return what is not on this machine.

    Raises:
        InputError: a cell that could run nowhere: an unknown name, a setting out of its bounds.
    """
    found = {}
    for cell in cells:
        try:
            found[cell] = _work(cell).check(cell, places)
        except MissingExtra:
            raise
        except InputError as error:
            raise InputError(f"{cell.shown}: {error}") from error
    return found


def run(
    cells: Sequence[Cell],
    store: Store,
    places: Places,
    runs: Path,
    *,
    jobs: int = 1,
    minutes: float | None = None,
    tell: Tell = lambda line: None,
) -> dict[Cell, str]:
    """Do what the store does not have yet, in order; every result is kept at once.

    A cell that cannot be done does not keep the others from being done. A training that diverges
    has a result that says so, and is not tried again.

    Args:
        cells: equal ones are done once.
        store: takes the results.
        places: of data.
        runs: a folder for each unfinished cell lies here; it goes when the cell is done.
        jobs: cells at a time, each in a process of its own with its share of the cores.
        minutes: no cell is started after so many.
        tell: takes a line when it begins, for each finished cell, and for those that are left.

    Returns:
        Why cells failed, for those that did.

    Raises:
        InputError: another process is writing here, or nothing can be written.
        LostProcess: a process died, or was asked to stop; what was finished is kept.
        KeyboardInterrupt: Ctrl-C; what was finished is kept.
    """
    wanted = list(dict.fromkeys(cells))
    waiting = [cell for cell in wanted if store.find(cell) is None]
    if not waiting:
        return {}
    failed: dict[Cell, str] = {}
    left = dict.fromkeys(waiting)
    begun: list[Cell] = []
    start = time.monotonic()

    def in_time(cell: Cell) -> bool:
        if minutes is not None and time.monotonic() - start >= 60 * minutes:
            return False
        begun.append(cell)
        return True

    with store.writing():
        for cell in wanted:
            if store.find(cell) is not None:  # killed after it was kept
                shutil.rmtree(runs / cell.key, ignore_errors=True)
        tell(
            f"{_counted(len(waiting), 'cell')} to run, {len(wanted) - len(waiting)} there already"
            + (f", {jobs} at a time" if jobs > 1 else "")
            + _estimate(left, store, jobs)
        )
        task = functools.partial(_measured, places=places, runs=runs)
        with closing(each(task, itertools.takewhile(in_time, waiting), jobs)) as finished:
            for cell, result in finished:
                del left[cell]
                if isinstance(result, InputError):
                    failed[cell] = str(result)
                    came = f"failed: {result}"
                else:
                    store.keep(cell, result)
                    shutil.rmtree(runs / cell.key, ignore_errors=True)
                    came = format_duration(float(result.provenance["seconds"]))
                    if diverged := result.details.get("diverged"):
                        came += f", {diverged}"
                place = f"[{len(waiting) - len(left)}/{len(waiting)}]"
                passed = format_duration(time.monotonic() - start)
                more = _estimate(left, store, jobs)
                tell(f"{place} {cell.shown}: {came} ({passed} so far{more})")
    if len(begun) < len(waiting):
        tell(
            f"no more cells after {minutes:g} minutes: {len(waiting) - len(begun)} left; the same "
            "command goes on"
        )
    return failed


def _estimate(left: Iterable[Cell], store: Store, jobs: int) -> str:
    """Say how long cells will take, by those of the same work that the store has."""
    took = store.seconds
    every = list(itertools.chain(*took.values()))
    cells = list(left)
    if not every or not cells:
        return ""
    total = sum(statistics.fmean(took.get(cell.work, every)) for cell in cells)
    return f", about {format_duration(total / jobs)} to go"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _measured(cell: Cell, places: Places, runs: Path) -> Result:
    """Measure one cell; its provenance says how long it took, waiting for cores included."""
    start, used = time.monotonic(), time.process_time()
    torch.manual_seed(cell.seed)
    result: Result
    try:
        # standard output is for tables: what libraries say there is no part of them
        with redirect_stdout(sys.stderr):
            result = _work(cell).run(cell, places, runs / cell.key)
    except Diverged as error:
        metrics: dict[str, float | int | str | None] = {}
        details = {"diverged": str(error)}
        result = Result(cell.work, cell.title, metrics, details, provenance(seed=cell.seed))
    took = {
        "command": ["python", "-m", "papers", *map(_placeless, sys.argv[1:])],
        "seconds": round(time.monotonic() - start, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
        "threads": torch.get_num_threads(),
        "machine": _machine(),
    }
    return replace(result, provenance={**result.provenance, **took}, items={})


def _placeless(argument: str) -> str:
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
    named = re.search(r"model name\s*: *(.+)", lines)
    return named.group(1).strip() if named else str(provenance()["processor"])


def _work(cell: Cell) -> ModuleType:
    names = [module.name for module in pkgutil.iter_modules(measurements.__path__)]
    if cell.work not in names:
        raise InputError(f"there is no work {cell.work!r}{nearest(cell.work, names)}")
    return importlib.import_module(f"{measurements.__name__}.{cell.work}")
