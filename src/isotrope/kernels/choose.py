"""Chooses the backend that computes the row statistics, and gives the reason.

``eager`` forms the whole matrix of similarities and needs few calls of torch. ``eager`` is fastest
up to about 180 rows on a CPU (benchmarks/peers.py), and up to about 4,000 rows on a GPU
(benchmarks/gpu.csv). In larger batches, ``rowblock`` is fastest: ``kernels.fused`` computes value
and gradients together. If ``fused`` cannot compute a formula, each statistic is computed on its
own; then ``eager`` is fastest if the matrix fits into memory.

``bfloat16`` works like ``rowblock``, with matrix products in bfloat16 that are summed in float32.
It takes about half the time of ``rowblock`` on processors that multiply bfloat16 (Zen 4, Sapphire
Rapids, GPUs). It is used only on request, and rounds nothing in formulas with hardest or mixed
negatives. Errors are at most 1%, or 5% at a temperature of 0.01 (docs/results/bfloat16.csv).
"""

import torch

from isotrope.core.errors import NeedsEager, unknown
from isotrope.core.views import Views
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.rowblock import RowBlockPairs
from isotrope.kernels.surrogate_sums import SurrogatePairs

BACKENDS = ("eager", "rowblock", "bfloat16")

# largest matrix that is held, in bytes: always (CPU, GPU), for components, in an unfused loss
EAGER_BYTES, GPU_EAGER_BYTES, HELD_BYTES, SHARED_BYTES = 1 << 17, 1 << 26, 1 << 26, 1 << 17


def choose(views: Views, backend: str = "auto") -> tuple[str, str]:
    """Return the name of a backend for these views, and the reason for the choice.

    Raises:
        ValueError: ``backend`` is unknown, or is ``bfloat16`` for views in float64.
        NeedsEager: torch.func transforms the objective, and ``backend`` is neither auto nor eager.
    """
    transformed: bool = torch._C._are_functorch_transforms_active()
    if backend == "auto":
        if transformed or torch.compiler.is_compiling():
            return "eager", "torch.func and torch.compile differentiate every operation themselves"
        gpu = views.anchors.device.type != "cpu"
        # few anchors need no blocks, unless a queue or hard negatives are many
        size, whole = (_size(views, m) for m in (len(views.positives), views.columns))
        few = size <= GPU_EAGER_BYTES if gpu else size < EAGER_BYTES
        shape = f"{len(views.anchors)} x {views.columns}"
        what = f"the {shape} similarities take {whole / 2**20:.3g} MB"
        if few and whole <= (4 * HELD_BYTES if gpu else HELD_BYTES):
            return "eager", f"{what}, so all are held in memory"
        return "rowblock", f"{what}, so they are computed in blocks of rows"
    if backend not in BACKENDS:
        raise ValueError(unknown("unknown backend", backend, ["auto", *BACKENDS]))
    if backend != "eager" and transformed:
        raise NeedsEager(f"use backend='eager': the {backend} backend does not support torch.func")
    if backend == "bfloat16" and views.anchors.dtype == torch.float64:
        raise ValueError(
            "use float32 embeddings or backend='rowblock': the bfloat16 backend rounds to 8 "
            "bits, and these embeddings are float64"
        )
    return backend, "chosen by the user"


def pairs(views: Views, backend: str = "auto", *, held: int = HELD_BYTES) -> Pairs:
    """Return an object that computes row statistics of the similarities of ``views``.

    Args:
        views: The vectors that the objective compares, such as unit vectors.
        backend: Name of a backend, as for :func:`choose`.
        held: Size in bytes up to which ``backend="auto"`` keeps the whole matrix in memory.
    """
    name, _ = choose(views, backend)
    if backend == "auto" and _size(views, views.columns) <= held:
        name = "eager"
    if name == "eager":
        return EagerPairs(views)
    return RowBlockPairs(views)  # bfloat16 rounds only fused formulas; single statistics stay exact


def surrogate_pairs(pairs: Pairs) -> SurrogatePairs | None:
    """Return a copy of ``pairs`` in which only the anchors have gradients; None for ``eager``.

    The sums over the compared vectors are computed once for both directions of the batch.
    """
    if not isinstance(pairs, RowBlockPairs):
        return None
    return SurrogatePairs(pairs, pairs.sums, pairs.direction)


def _size(views: Views, columns: int) -> int:
    """Bytes of the anchors' similarities with columns; those of half precision are float32."""
    return len(views.anchors) * columns * max(4, views.anchors.element_size())
