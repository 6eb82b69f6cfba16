"""Helpers for torch: types for autograd, objects attached to graph nodes, seeds, softplus."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MARK = "isotrope"
"""The key of a node's metadata under which a loss stores its inputs."""

Context: TypeAlias = Any
"""Context from ``forward`` to ``backward``; it can hold any attribute."""

Outputs = TypeVar("Outputs")


def apply(
    function: type[torch.autograd.Function], outputs: type[Outputs], *inputs: object
) -> Outputs:
    """Call an autograd function."""
    return cast("Outputs", function.apply(*inputs))


def marked(value: Tensor, content: object) -> Tensor:
    """Attach an object to the autograd node that computed ``value``, and return ``value``."""
    if not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active():
        node: Any = value.grad_fn
        if node is not None:
            node.metadata[MARK] = content
    return value


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """Restore the training or evaluation mode of all submodules at the end of the block."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's generators (CPU and GPU) in the block; restore their states afterwards."""
    with torch.random.fork_rng(devices=[device] if device and device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x) elementwise, twice differentiable; the value at -inf is 0.

    For x > 20, ``torch.nn.functional.softplus`` returns x, so its second derivative is exactly 0.
    Here, x is returned only if e^x would overflow.
    """
    return F.softplus(x, threshold=700.0 if x.dtype == torch.float64 else 80.0)
