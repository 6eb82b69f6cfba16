"""Which backend computes the row statistics, and why."""

from isotrope.core.errors import nearest
from isotrope.core.views import Views
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.rowblock import RowBlockPairs

__all__ = ["BACKENDS", "EAGER_BYTES", "choose", "pairs"]

BACKENDS: dict[str, type[EagerPairs]] = {"eager": EagerPairs, "rowblock": RowBlockPairs}

EAGER_BYTES = 1 << 26  # of similarities, up to which holding them all is quickest


def choose(views: Views, backend: str = "auto") -> tuple[str, str]:
    """Return the name of a backend for these views and the reason in words.

    Raises:
        ValueError: an unknown backend.
    """
    if backend == "auto":
        n, m = len(views.anchors), len(views.positives)
        size = n * m * views.anchors.element_size()
        what = f"{n} x {m} similarities are {size / 2**20:.3g} MB"
        if size <= EAGER_BYTES:
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
    return BACKENDS[name](views)
