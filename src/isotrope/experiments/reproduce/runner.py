"""Runner: does the cells that are missing, several at a time, and keeps each as it finishes."""

import importlib
import itertools
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import torch

from isotrope.core.errors import InputError, LostProcess
from isotrope.core.result import Result
from isotrope.experiments.reproduce.cell import Cell
from isotrope.experiments.reproduce.places import Places
from isotrope.experiments.reproduce.store import Store

__all__ = ["lacking", "run"]

Tell = Callable[[str], None]


def lacking(cells: Sequence[Cell], places: Places) -> dict[Cell, list[str]]:
    """Resolve every name of every cell; return what is not on this machine.

    Raises:
        InputError: a cell that could run nowhere: an unknown name, a setting out of its bounds.
    """
    return {cell: _work(cell).check(cell, places) for cell in cells}


def run(
    cells: Sequence[Cell],
    store: Store,
    places: Places,
    runs: Path,
    *,
    jobs: int = 1,
    minutes: float | None = None,
    tell: Tell = lambda line: None,
) -> None:
    """Do what the store does not have yet, in order; every result is kept at once.

    Args:
        cells: equal ones are done once.
        store: takes the results.
        places: of data.
        runs: a folder for each unfinished cell lies here; it goes when the cell is done.
        jobs: cells at a time, each a process of its own with its share of the cores.
        minutes: no cell is started after so many.
        tell: takes a line for each finished cell.

    Raises:
        InputError: a cell that cannot be done; others that were running are kept first.
        LostProcess: a process died: those that finished are kept.
    """
    waiting = [cell for cell in dict.fromkeys(cells) if store.find(cell) is None]
    done, start = 0, time.monotonic()

    def late() -> bool:
        return minutes is not None and time.monotonic() - start > 60 * minutes

    def keep(cell: Cell, result: Result) -> None:
        nonlocal done
        done += 1
        store.keep(cell, result)
        shutil.rmtree(runs / cell.key, ignore_errors=True)
        seconds = result.provenance["seconds"]
        tell(f"[{done}/{len(waiting)}] {cell.shown}: {seconds:.0f} s")

    if jobs == 1:
        for cell in waiting:
            if late():
                break
            keep(cell, _measured(cell, places, runs / cell.key))
        return
    _side_by_side(itertools.takewhile(lambda _: not late(), waiting), places, runs, jobs, keep)


def _side_by_side(
    waiting: Iterator[Cell],
    places: Places,
    runs: Path,
    jobs: int,
    keep: Callable[[Cell, Result], None],
) -> None:
    threads = max(1, (os.cpu_count() or 1) // jobs)
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=torch.set_num_threads,
        initargs=(threads,),
    )
    running: dict[Future[Result], Cell] = {}
    failed: InputError | None = None
    try:
        while True:
            while failed is None and len(running) < jobs and (cell := next(waiting, None)):
                running[pool.submit(_measured, cell, places, runs / cell.key)] = cell
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell = running.pop(future)
                try:
                    keep(cell, future.result())
                except InputError as error:
                    failed = error
    except BrokenProcessPool as error:
        raise LostProcess(
            "a process that measured a cell has died (out of memory?); what was finished is kept: "
            "run the same command again, with a smaller --jobs"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
    if failed is not None:
        raise failed


def _measured(cell: Cell, places: Places, folder: Path) -> Result:
    """Measure one cell; its provenance says how long it took, waiting for cores included."""
    start, used = time.monotonic(), time.process_time()
    torch.manual_seed(cell.seed)
    result: Result = _work(cell).run(cell, places, folder)
    took = {
        "seconds": round(time.monotonic() - start, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
        "threads": torch.get_num_threads(),
    }
    return replace(result, provenance={**result.provenance, **took}, items={})


def _work(cell: Cell):  # noqa: ANN202 - a module with check and run
    try:
        return importlib.import_module(f"isotrope.experiments.works.{cell.work}")
    except ModuleNotFoundError as error:
        raise InputError(f"there is no work {cell.work!r}") from error
