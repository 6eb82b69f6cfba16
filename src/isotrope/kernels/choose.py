"""Which backend computes the row statistics, and why."""

from isotrope.core.errors import nearest
from isotrope.core.views import Views
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.pairs import Pairs

__all__ = ["BACKENDS", "choose", "pairs"]

BACKENDS: dict[str, type[EagerPairs]] = {"eager": EagerPairs}


def choose(views: Views, backend: str = "auto") -> tuple[str, str]:
    """Return the name of a backend for these views and the reason in words.

    Raises:
        ValueError: an unknown backend.
    """
    if backend == "auto":
        n, m = len(views.anchors), len(views.positives)
        return "eager", f"the only backend; it holds {n} x {m} similarities"
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
