"""Finds a backend in another package.

The package declares an entry point in the group ``isotrope.backends`` under the backend's name. The
entry point loads a module (or an object) with the functions of :class:`Extension`. An example is
``isotrope-triton`` (``kernels-triton/`` in the repository).
"""

import functools
from importlib.metadata import entry_points
from typing import Protocol, cast

from torch import Tensor

from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.kernels.job import Gradients, Job
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.surrogate_sums import SurrogatePairs

_INSTALL = {"triton": "pip install ./kernels-triton in a checkout of isotrope"}


class Extension(Protocol):
    """Functions that a backend's package provides."""

    def refusal(self, x: Tensor, /) -> InputError | None:
        """Return the error to raise for embeddings that it cannot take."""

    def pairs(self, views: Views, /, *, raw: Views | None) -> Pairs:
        """Return row statistics, as ``kernels.choose.pairs`` does."""

    def surrogate_pairs(self, pairs: Pairs, /) -> SurrogatePairs | None:
        """Return pairs in which only the anchors have gradients, as ``kernels.choose`` does."""

    def value_and_gradients(
        self, job: Job, /, *, directions: int, wanted: tuple[bool, ...]
    ) -> tuple[Tensor, Gradients]:
        """Return a formula's value and the gradients of anchors, positives and negatives."""


@functools.cache
def extension(name: str) -> Extension:
    """Load the backend of that name.

    Raises:
        InputError: no installed package provides it.
    """
    found = entry_points(group="isotrope.backends", name=name)
    if not found:
        raise InputError(
            f"the backend {name!r} is a separate package, which is not installed: {_INSTALL[name]}"
        )
    return cast("Extension", next(iter(found)).load())
