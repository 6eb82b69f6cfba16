"""Which backend computes the row statistics, and why.

Value and gradients together (``kernels.fused``) are quickest in blocks from about 64 rows on. A
formula that cannot be computed so asks for statistics one by one, and those are quickest from one
matrix as long as there is room for it.

``bfloat16`` is the row blocks with rounded factors in their matrix products, accumulated in
float32: about twice as fast where a processor multiplies bfloat16 (Zen 4, Sapphire Rapids, GPUs).
A similarity is rounded to eight bits, so an exponential is wrong by up to 1/(256 tau) of itself,
at random: gradients and values by up to 0.8% (benchmarks/bfloat16.py, 1,024 embeddings of 768
numbers; the table is docs/results/bfloat16.csv). It is never chosen, only asked for, and where the
hardest negative is asked nothing is rounded.
"""

import torch

from isotrope.core.errors import NeedsEager, nearest
from isotrope.core.views import Views
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.rowblock import RowBlockPairs

__all__ = ["BACKENDS", "EAGER_BYTES", "HELD_BYTES", "SHARED_BYTES", "choose", "pairs"]

BACKENDS: dict[str, type[EagerPairs]] = {
    "eager": EagerPairs,
    "rowblock": RowBlockPairs,
    "bfloat16": RowBlockPairs,  # the rounding is of what is fused; single statistics stay exact
}

# of similarities: below the first, all are held; up to the second, by formulas that are not fused
EAGER_BYTES, HELD_BYTES = 1 << 14, 1 << 26
SHARED_BYTES = 1 << 17  # and up to here where both directions share the blocks (kernels.pushes)


def choose(views: Views, backend: str = "auto") -> tuple[str, str]:
    """Return the name of a backend for these views and the reason in words.

    Raises:
        ValueError: an unknown backend, or one that is not for these numbers.
        NeedsEager: another backend than that, under a transform of torch.func.
    """
    transformed: bool = torch._C._are_functorch_transforms_active()
    if backend == "auto":
        if transformed:
            return "eager", "torch.func differentiates every operation itself"
        n, m, size = len(views.anchors), len(views.positives), _size(views)
        what = f"{n} x {m} similarities are {size / 2**20:.3g} MB"
        if size < EAGER_BYTES:
            return "eager", f"{what}: all are held"
        return "rowblock", f"{what}: computed in blocks of rows"
    if backend not in BACKENDS:
        raise ValueError(
            f"unknown backend {backend!r}{nearest(backend, BACKENDS)}; known: auto, "
            + ", ".join(BACKENDS)
        )
    if backend != "eager" and transformed:
        raise NeedsEager(f"torch.func cannot go through the {backend} backend; ask for 'eager'")
    if backend == "bfloat16" and views.anchors.dtype == torch.float64:
        raise ValueError(
            "the bfloat16 backend rounds to 8 bits; found float64 embeddings: give float32 ones, "
            "or ask for backend='rowblock'"
        )
    return backend, "asked for"


def pairs(views: Views, backend: str = "auto", *, held: int = HELD_BYTES) -> Pairs:
    """Return the row statistics of ``views``, which are already in the objective's space.

    Args:
        views: in that space.
        backend: as for :func:`choose`.
        held: bytes of similarities up to which ``"auto"`` holds them all.

    Raises:
        ValueError: an unknown backend.
    """
    name, _ = choose(views, backend)
    if backend == "auto" and _size(views) <= held:
        name = "eager"
    return BACKENDS[name](views)


def _size(views: Views) -> int:
    """Bytes of all similarities across the views."""
    return len(views.anchors) * len(views.positives) * views.anchors.element_size()
