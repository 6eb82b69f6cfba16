"""Gives the autograd functions of torch the types that torch leaves out."""

from typing import Any, TypeAlias, TypeVar, cast

import torch

__all__ = ["Context", "apply"]

Context: TypeAlias = Any
"""What ``forward`` leaves for ``backward``: torch gives it no type, for it takes any attribute."""

Outputs = TypeVar("Outputs")


def apply(
    function: type[torch.autograd.Function], outputs: type[Outputs], *inputs: object
) -> Outputs:
    """Call an autograd function.

    Args:
        function: A function whose ``forward`` takes ``inputs``.
        outputs: the type of what it returns.
        inputs: the arguments of ``forward`` without its context.
    """
    return cast("Outputs", function.apply(*inputs))
