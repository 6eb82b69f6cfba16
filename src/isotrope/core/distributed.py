"""Gathers, sums and compares tensors of the processes of a training, and finds shards of them.

If no process group is initialised, there is one process, and each tensor is returned as it is.
The backend is gloo on CPUs and NCCL on GPUs. :func:`process_group` reads environment variables
that torchrun or :mod:`isotrope.training.launch` sets.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from isotrope.core.autograd import Context, apply
from isotrope.core.errors import LostProcess
from isotrope.core.rounding import WITHOUT_FLOAT64, at_least_float
from isotrope.core.views import Views

# the first process reads the corpus and scores the encoder while the others wait for it
_PATIENCE = timedelta(days=1)
T = TypeVar("T")


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


def launched_processes() -> tuple[int, int]:
    """Return two numbers: processes of the whole run, and processes of the run on this machine."""
    if not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
        return 1, 1
    world = int(os.environ["WORLD_SIZE"])
    return world, int(os.environ.get("LOCAL_WORLD_SIZE", world))


@contextmanager
def process_group(device: str) -> Iterator[None]:
    """Join the process group that environment variables describe; leave it when the block ends.

    Args:
        device: ``"cpu"``, or ``"cuda"`` for the GPU whose number is in ``LOCAL_RANK``.
    """
    if launched_processes()[0] == 1 or world_size() > 1:
        yield
        return
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", timeout=_PATIENCE)
    try:
        yield
    finally:
        dist.destroy_process_group()


def is_peer_failure(error: BaseException) -> bool:
    """Return True if an error shows that another process of the run has ended."""
    if dist.is_available() and isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and ("gloo" in str(error) or "NCCL" in str(error))


def barrier(device: torch.device | str = "cpu") -> None:
    """Wait until every process has called this function."""
    all_reduce_max(0, device)


def of_first(work: Callable[[], T]) -> T:
    """Return in every process what ``work`` returns in the first one; no other process calls it.

    Raises:
        LostProcess: ``work`` failed in the first process, where its own error is raised.
    """
    shared: list[list[T] | None] = [None]
    try:
        if rank() == 0:
            shared = [[work()]]
    finally:
        if world_size() > 1:
            dist.broadcast_object_list(shared)
    if shared[0] is None:
        raise LostProcess("see the error of the first process: it could not begin")
    return shared[0][0]


def all_reduce_max(value: int, device: torch.device | str = "cpu") -> int:
    """Return the largest of the values that the processes pass.

    Args:
        value: The value of this process.
        device: Device of the tensor that the processes exchange; NCCL needs a GPU.
    """
    if world_size() == 1:
        return value
    shared = torch.tensor(value, device=device)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return int(shared)


def all_reduce_sum(x: Tensor) -> Tensor:
    """Return the sum of all processes' ``x``, detached."""
    x = x.detach().clone()
    if world_size() > 1:
        dist.all_reduce(x)
    return x


def rows_of(n: int) -> slice:
    """Return the slice of ``n`` rows that this process computes; all shares are about equal.

    >>> rows_of(8)
    slice(0, 8, None)
    """
    each, more = divmod(n, world_size())
    start = rank() * each + min(rank(), more)
    return slice(start, start + each + (rank() < more))


def local_part(x: Tensor) -> Tensor:
    """Return this process's part of a tensor that FSDP shards; empty if its memory was freed."""
    own: Tensor = x.to_local() if hasattr(x, "to_local") else x
    return own if own.untyped_storage().nbytes() else own.new_empty(0)


def local_norm(x: Tensor) -> float:
    """Return the norm of :func:`local_part`, without a copy of the part in float64."""
    wide = torch.float32 if x.device.type in WITHOUT_FLOAT64 else torch.float64
    return float(torch.linalg.vector_norm(local_part(x), dtype=wide))


class GlobalBatch(NamedTuple):
    """A batch with the rows of all processes.

    Attributes:
        views: Anchors, positives and additional negatives of all processes, ordered by rank.
        rows: Slice that selects the anchors of this process from the anchors in ``views``.
        fewest: Number of anchors of the process that has the fewest.
    """

    views: Views
    rows: slice
    fewest: int


def all_gather_views(views: Views) -> GlobalBatch:
    """Join the ``views`` of all processes into one batch.

    In each process, the views must have one positive for every anchor. The numbers of anchors and
    of additional negatives may differ between processes. A number in ``groups`` must mean the same
    group in all processes. Gradients pass through: a row receives the sum of its gradients from the
    losses of all processes. Rows in half precision become float32, so the sum is in float32.
    """
    n = len(views.anchors)
    if len(views.positives) != n:
        raise ValueError(
            f"pass the views of this process only, with one positive for each anchor; found {n} "
            f"anchors and {len(views.positives)} positives"
        )
    if world_size() == 1:
        return GlobalBatch(views, slice(0, n), n)
    negatives = views.anchors[:0] if views.negatives is None else views.negatives
    own = torch.tensor([n, len(negatives)], device=views.anchors.device)
    counts = [row.tolist() for row in _all_gather(own, [2] * world_size())]
    rows = at_least_float(torch.cat([views.anchors, views.positives, negatives]))
    gathered = apply(_Gather, tuple[Tensor, ...], rows, [2 * m + q for m, q in counts])
    parts = [part.split([m, m, q]) for part, (m, q) in zip(gathered, counts, strict=True)]
    anchors, positives, negatives = (torch.cat(view) for view in zip(*parts, strict=True))
    sizes = [m for m, _ in counts]
    groups = None if views.groups is None else torch.cat(_all_gather(views.groups, sizes))
    more = negatives if len(negatives) else None
    whole = Views(anchors, positives, more, groups=groups, in_batch=views.in_batch)
    start = sum(sizes[: rank()])
    return GlobalBatch(whole, slice(start, start + n), min(sizes))


def _all_gather(x: Tensor, rows: list[int]) -> list[Tensor]:
    """Return the ``x`` of every process; ``rows`` has the number of rows of each process."""
    padded = x.new_zeros((max(rows), *x.shape[1:]))
    padded[: len(x)] = x
    parts = [torch.empty_like(padded) for _ in rows]
    dist.all_gather(parts, padded)
    return [part[:many] for part, many in zip(parts, rows, strict=True)]


class _Gather(torch.autograd.Function):
    """Gathers the rows of all processes; backward sums a row's gradients over the processes."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, rows: list[int]) -> tuple[Tensor, ...]:
        ctx.rows = rows
        return tuple(_all_gather(x, rows))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = torch.cat(gradients)
        dist.all_reduce(gradient)
        return torch.split(gradient, ctx.rows)[rank()], None
