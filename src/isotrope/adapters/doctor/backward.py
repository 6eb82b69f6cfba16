"""Receives each loss of a training step as its backward pass begins, whoever calls it."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor


@contextlib.contextmanager
def losses_of_backward(received: Callable[[Tensor], object]) -> Iterator[None]:
    """Call ``received`` with each loss on which this thread calls ``backward()`` in the block.

    Every way leads to ``torch.autograd.backward``: a trainer's, that of accelerate or DeepSpeed,
    and the first pass of a gradient cache. It is what it was after the block, also if that raises.
    Backward passes within another, as of a checkpoint, are not those of a loss.

    Args:
        received: takes a loss with a graph; it must not raise.
    """
    original, thread, inside = torch.autograd.backward, threading.get_ident(), False

    @functools.wraps(original)
    def backward(tensors: Any, *arguments: Any, **named: Any) -> None:
        nonlocal inside
        if inside or threading.get_ident() != thread:
            return original(tensors, *arguments, **named)
        losses = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if len(losses) == 1 and losses[0].numel() == 1 and losses[0].grad_fn is not None:
            received(losses[0])
        inside = True
        try:
            return original(tensors, *arguments, **named)
        finally:
            inside = False

    torch.autograd.backward = backward
    try:
        yield
    finally:
        if torch.autograd.backward is backward:
            torch.autograd.backward = original
