"""Which backend computes the row statistics, and why.

Value and gradients together (``kernels.fused``) are quickest in blocks from about 64 rows on. A
formula that cannot be computed so asks for statistics one by one, and those are quickest from one
matrix as long as there is room for it.
"""

from isotrope.core.errors import nearest
from isotrope.core.views import Views
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.rowblock import RowBlockPairs

__all__ = ["BACKENDS", "EAGER_BYTES", "HELD_BYTES", "choose", "pairs"]

BACKENDS: dict[str, type[EagerPairs]] = {"eager": EagerPairs, "rowblock": RowBlockPairs}

# of similarities: below the first, all are held; up to the second, by formulas that are not fused
EAGER_BYTES, HELD_BYTES = 1 << 14, 1 << 26


def choose(views: Views, backend: str = "auto") -> tuple[str, str]:
    """Return the name of a backend for these views and the reason in words.

    Raises:
        ValueError: an unknown backend.
    """
    if backend == "auto":
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
    return backend, "asked for"


def pairs(views: Views, backend: str = "auto") -> Pairs:
    """Return the row statistics of ``views``, which are already in the objective's space."""
    name, _ = choose(views, backend)
    if backend == "auto" and _size(views) <= HELD_BYTES:
        name = "eager"
    return BACKENDS[name](views)


def _size(views: Views) -> int:
    """Bytes of all similarities across the views."""
    return len(views.anchors) * len(views.positives) * views.anchors.element_size()
