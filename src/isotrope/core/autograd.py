"""Adds to torch's autograd: typed calls, marks on nodes, kept modes and seeds, a smooth softplus.

The Doctor finds the inputs of a loss by the mark of its node (``paradigm.graph_reading``).
:func:`modes_kept` and :func:`seeded` restore the modes of modules and torch's generators.
"""

import functools
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

InputGradients: TypeAlias = tuple[Tensor | None, ...]
"""Result of ``backward``: the gradient of each input, or None."""

T = TypeVar("T")


def apply(function: type[torch.autograd.Function], outputs: type[T], *inputs: object) -> T:
    """Call an autograd function, whose outputs have the type ``outputs``."""
    return cast("T", function.apply(*inputs))


# older versions of torch lack it; there, a first backward pass ends every mark
_graph_is_kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: False)


def _is_transformed() -> bool:
    """Return whether torch.compile or functorch traces the code; nodes take no hooks there."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def marked(value: Tensor, content: object) -> Tensor:
    """Attach an object to the node that computed ``value`` until autograd frees the graph."""
    if not _is_transformed():
        node: Any = value.grad_fn
        if node is not None:
            node.metadata[MARK] = content
            node.register_hook(functools.partial(_unmark, node.metadata))
    return value


def _unmark(metadata: dict[str, object], *_: object) -> None:
    if not _graph_is_kept():
        metadata.pop(MARK, None)  # a loss that is kept would keep its inputs


def nodes(value: Tensor, *inputs: Tensor | None) -> Iterator[Any]:
    """Yield the nodes of autograd that compute ``value``, without those that compute ``inputs``."""
    # a node may have several outputs, such as the parts of a split; an edge leads to one of them
    ends = {(x.grad_fn, x.output_nr) for x in inputs if x is not None}
    ahead, seen = [(value.grad_fn, value.output_nr)], {None}
    while ahead:
        edge: Any = ahead.pop()
        node = edge[0]
        if edge not in ends and node not in seen:
            seen.add(node)
            yield node
            ahead += node.next_functions


def unrounded(value: Tensor, *inputs: Tensor | None) -> Tensor:
    """Within autocast, exclude the backward pass to ``inputs`` from it; return ``value``."""
    if torch.is_autocast_enabled(value.device.type) and not _is_transformed():
        off = functools.partial(_off, value.device.type)
        for node in nodes(value, *inputs):
            if not hasattr(node, "variable"):  # a leaf keeps its node, and would keep each hook
                node.register_prehook(off)
    return value


def _off(device: str, _: object) -> None:
    torch.set_autocast_enabled(device, False)  # autograd restores the state after each node


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """At the end of the block, give every submodule the mode back that it had at the start."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's random generators for the block; then restore those of CPU and ``device``."""
    forked = [device] if device and device.type in ("cuda", "mps") else []
    with torch.random.fork_rng(forked, device_type=forked[0].type if forked else "cuda"):
        torch.manual_seed(seed)
        yield


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x) of each element; the second derivative is also right for large x.

    ``torch.nn.functional.softplus`` returns x for x > 20, so its second derivative is 0 there.
    This function returns x only for x > 80 (in float64, x > 700).
    """
    return F.softplus(x, threshold=700.0 if x.dtype == torch.float64 else 80.0)


def places_of_large(gradient: Tensor) -> Tensor:
    """Return the places of up to 1,000 large values (n) of a gradient, int64.

    About a million values are searched if the gradient is longer, as that of a table of words.
    """
    stride = max(1, len(gradient) // 1_000_000)
    values = gradient[::stride].abs()
    return stride * values.topk(min(1_000, len(values))).indices
