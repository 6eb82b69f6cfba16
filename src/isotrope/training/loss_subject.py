"""The subject of ``isotrope check``: a loss in its initial state, and a small encoder.

Each call begins with a fresh copy of the loss, so that no call changes the result of the next.
"""

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isotrope.core.errors import InputError
from isotrope.training.gradient_cache import cached

DIMENSIONS = 16
"""Default number of dimensions of the embeddings that a loss receives."""
ROWS, _INPUTS = 24, 12
SIZES = ("chunk_size", "mini_batch_size", "micro_batch_size", "block_size")
"""Names of parameters or attributes that set the size of the chunks of a loss."""
MISSING = object()

Loss = Callable[..., Tensor]


class LossAndGradients(NamedTuple):
    """The value of a loss, and the gradients of the weights of encoder and loss."""

    value: Tensor
    gradients: list[Tensor]


def required_of(loss: Loss) -> list[inspect.Parameter]:
    """Return the parameters without a default."""
    every = parameters_of(loss).values()
    return [p for p in every if p.default is p.empty and p.kind is not p.VAR_KEYWORD]


def parameters_of(loss: Loss) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function, or those of a module's forward."""
    return inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters


class Subject:
    """A loss in its initial state, and a small encoder that makes its embeddings."""

    def __init__(self, loss: Loss, dimensions: int = DIMENSIONS) -> None:
        self.loss, self.dimensions = loss, dimensions
        self.options: dict[str, Any] = {}
        self.parameters = parameters_of(loss)
        self.views = 3 if len(required_of(loss)) > 2 else 2
        self.needs_float32 = False  # it refuses float64 if it keeps float32 tensors
        try:
            self.run()
        except Exception as error:  # a later call reports the error
            self.needs_float32 = isinstance(error, RuntimeError) and "double" in str(error).lower()

    def fresh(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> Loss:
        """Return the loss in its initial state, and seed the random numbers."""
        torch.manual_seed(seed)
        if not isinstance(self.loss, nn.Module):
            return self.loss
        fresh = copy.deepcopy(self.loss)
        return fresh if self.needs_float32 else fresh.to(dtype)

    def called(self, loss: Loss, views: list[Tensor]) -> Tensor:
        """Call the loss in its own dtype."""
        given = views[: self.views]
        if not self.needs_float32:
            return loss(*given, **self.options)
        return loss(*(x.float() for x in given), **self.options).double()

    def inputs(self) -> tuple[nn.Module, list[Tensor]]:
        """Return an encoder, and the inputs of anchors, positives and negatives."""
        numbers = torch.Generator().manual_seed(0)
        layer = nn.Linear(_INPUTS, self.dimensions)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=numbers))
        x, noise, other = (torch.randn(ROWS, _INPUTS, generator=numbers) for _ in range(3))
        encoder = nn.Sequential(layer, nn.Tanh()).double()
        return encoder, [view.double() for view in (x, x + 0.5 * noise, other)]

    def run(
        self, rows: slice | Tensor = slice(None), *, caching: bool = False, seed: int = 0
    ) -> LossAndGradients:
        """Call the loss on some rows and backward(), unless the loss has called it itself."""
        loss, (encoder, inputs) = self.fresh(seed=seed), self.inputs()

        def embedded(x: Tensor) -> Tensor:
            parts = [(part,) for part in x.split(7)]
            return torch.cat(cached(encoder, parts)) if caching else encoder(x)

        value = self.called(loss, [embedded(x[rows]) for x in inputs])
        if not isinstance(value, Tensor) or value.numel() != 1:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"the loss returns {shape}, not a scalar")
        if value.requires_grad:
            value.backward()
        if all(p.grad is None for p in encoder.parameters()):
            raise InputError("remove detach(): no gradient reaches the embeddings")
        own = loss.parameters() if isinstance(loss, nn.Module) else ()
        parameters = [*encoder.parameters(), *own]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        return LossAndGradients(value.detach(), gradients)

    def value(self, views: list[Tensor]) -> float:
        """Return the value of the loss for given embeddings."""
        return float(self.called(self.fresh(), views).detach())

    def by_embeddings(self, views: list[Tensor]) -> LossAndGradients:
        """Return the value of the loss and its gradients with respect to the embeddings."""
        leaves = [x.detach().clone().requires_grad_() for x in views]
        value = self.called(self.fresh(views[0].dtype), leaves)
        if value.requires_grad:  # otherwise the loss has called backward itself
            value.backward()
        gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]
        return LossAndGradients(value.detach().double(), [g.double() for g in gradients])

    def setting(self, name: str) -> object:
        """Return a parameter's default, or else an attribute of the loss, or else ``MISSING``."""
        if name in self.parameters:
            return self.parameters[name].default
        return getattr(self.loss, name, MISSING) if isinstance(self.loss, nn.Module) else MISSING

    def varied(self, name: str, value: float) -> "Subject":
        """Return the loss with another value of a setting."""
        other = copy.copy(self)
        if name in self.parameters:
            other.options = {name: value}
        else:
            other.loss = copy.deepcopy(self.loss)
            setattr(other.loss, name, value)
        return other


def distance(result: LossAndGradients, reference: LossAndGradients) -> float:
    """Return the largest relative difference of values and of gradients; infinite for NaN."""
    size = max([float(g.abs().max()) for g in reference.gradients], default=0.0) or 1.0
    errors = [float((result.value - reference.value).abs()) / (1 + float(reference.value.abs()))]
    for a, b in zip(result.gradients, reference.gradients, strict=True):
        errors.append(float((a - b).abs().max()) / size)
    return math.inf if any(map(math.isnan, errors)) else max(errors)
