"""Chooses the backend that computes the row statistics, and gives the reason.

Value and gradients together (``kernels.fused``) are quickest in blocks from about 180 rows on;
below, the calls count, of which one matrix and autograd need fewer (benchmarks/peers.py). A
formula that cannot be computed so asks for statistics one by one, and those are quickest from one
matrix as long as there is room for it.

``bfloat16`` is the row blocks with rounded factors in their matrix products, accumulated in
float32: about twice as fast where a processor multiplies bfloat16 (Zen 4, Sapphire Rapids, GPUs).
A similarity is rounded to eight bits, so an exponential is wrong by up to 1/(256 tau) of itself,
at random: gradients and values by up to 0.8% (benchmarks/bfloat16.py, 1,024 embeddings of 768
numbers; the table is docs/results/bfloat16.csv). It is never chosen, only taken on request, and
nothing is rounded for a formula that uses the hardest negative.

``triton`` is a package of its own (``kernels-triton/``), found by ``kernels.extension``: tiles of
similarities that never reach an NVIDIA GPU's memory. It has not been run on a GPU yet: so it is
never chosen either, only taken on request.
"""

from typing import cast

import torch

from isotrope.core.errors import NeedsEager, nearest
from isotrope.core.views import Views
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.extension import extension
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.rowblock import RowBlockPairs
from isotrope.kernels.surrogate_sums import BlockSums, SurrogatePairs, SurrogateSums

BACKENDS = ("eager", "rowblock", "bfloat16", "triton")

# of similarities: below the first, all are held; up to the second, by formulas that are not fused
EAGER_BYTES, HELD_BYTES = 1 << 17, 1 << 26
SHARED_BYTES = (
    1 << 17
)  # and up to here where both directions share the blocks (kernels.surrogate_sums)


def choose(views: Views, backend: str = "auto") -> tuple[str, str]:
    """Return the name of a backend for these views and the reason in words.

    Raises:
        ValueError: an unknown backend, or one that is not for these numbers or not installed.
        NeedsEager: another backend than that, under a transform of torch.func.
    """
    transformed: bool = torch._C._are_functorch_transforms_active()
    if backend == "auto":
        if transformed or torch.compiler.is_compiling():
            return "eager", "torch.func and torch.compile differentiate every operation themselves"
        n, m, size = len(views.anchors), len(views.positives), _size(views)
        what = f"{n} x {m} similarities are {size / 2**20:.3g} MB"
        if size < EAGER_BYTES:
            return "eager", f"{what}, held at once"
        return "rowblock", f"{what}, computed in blocks of rows"
    if backend not in BACKENDS:
        raise ValueError(
            f"unknown backend {backend!r}{nearest(backend, BACKENDS)}; known: auto, "
            + ", ".join(BACKENDS)
        )
    if backend != "eager" and transformed:
        raise NeedsEager(f"torch.func cannot go through the {backend} backend; use 'eager'")
    if backend == "bfloat16" and views.anchors.dtype == torch.float64:
        raise ValueError(
            "the bfloat16 backend rounds to 8 bits; found float64 embeddings: give float32 ones, "
            "or use backend='rowblock'"
        )
    if backend == "triton" and (refusal := extension("triton").refusal(views.anchors)) is not None:
        raise refusal
    return backend, "as set"


def pairs(
    views: Views, backend: str = "auto", *, held: int = HELD_BYTES, raw: Views | None = None
) -> Pairs:
    """Return the row statistics of ``views``, which are already in the objective's space.

    Args:
        views: The views in that space.
        backend: See :func:`choose`.
        held: bytes of similarities up to which ``"auto"`` holds them all.
        raw: the same before they were normalised, if that was in bfloat16: ``"triton"`` multiplies
            these, and divides by their norms.

    Raises:
        ValueError: an unknown backend.
    """
    name, _ = choose(views, backend)
    if backend == "auto" and _size(views) <= held:
        name = "eager"
    if name == "eager":
        return EagerPairs(views)
    if name == "triton":
        return extension("triton").pairs(views, raw=raw)
    return RowBlockPairs(views)  # bfloat16 rounds what is fused; single statistics stay exact


def surrogate_pairs(pairs: Pairs) -> SurrogatePairs | None:
    """Return pairs of the same direction of which only the anchors move.

    Both directions of a batch share what is computed. None where matrices are held.
    """
    if pairs.backend == "triton":
        return extension("triton").surrogate_pairs(pairs)
    if not isinstance(pairs, RowBlockPairs):
        return None
    if "sums" not in pairs.shared:
        views = pairs.views.detached()
        pairs.shared["sums"] = BlockSums(views.swapped() if pairs.direction else views)
    return SurrogatePairs(pairs, cast("SurrogateSums", pairs.shared["sums"]), pairs.direction)


def _size(views: Views) -> int:
    """Bytes of all similarities across the views."""
    return len(views.anchors) * len(views.positives) * views.anchors.element_size()
