"""Adds the types that torch's autograd functions lack."""

from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

MARK = "isotrope"
"""The key of a node's metadata under which a loss stores its inputs."""

Context: TypeAlias = Any
"""Context from ``forward`` to ``backward``, which takes any attribute."""

Outputs = TypeVar("Outputs")


def apply(
    function: type[torch.autograd.Function], outputs: type[Outputs], *inputs: object
) -> Outputs:
    """Call an autograd function."""
    return cast("Outputs", function.apply(*inputs))


def marked(value: Tensor, content: object) -> Tensor:
    """Store content at the graph node that computed a value, and return the value."""
    if not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active():
        node: Any = value.grad_fn
        if node is not None:
            node.metadata[MARK] = content
    return value
