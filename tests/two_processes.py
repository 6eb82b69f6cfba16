"""Work in two real processes that torch.distributed joins: who tests it says what each does."""

import multiprocessing
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.patience import MINUTES


def on_two(work: Callable[..., object], folder: Path, *given: object) -> list[Any]:
    """Return what ``work(rank, *given)`` returns on either rank; it is imported there by name."""
    # forks of one process that has imported what they need; spawned ones would each import it
    multiprocessing.set_forkserver_preload(["tests.two_processes", work.__module__])
    mp.start_processes(_joined, (work, folder, given), nprocs=2, start_method="forkserver")
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def _joined(
    rank: int, work: Callable[..., object], folder: Path, given: tuple[object, ...]
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(folder / "meeting"), 2),
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=MINUTES),
    )
    torch.save(work(rank, *given), folder / f"{rank}.pt")
    dist.barrier()  # neither process closes a connection that the other one still reads
    dist.destroy_process_group()
    # gloo's threads may still hold tensors; torch aborts if they let go while Python shuts down
    os._exit(0)
