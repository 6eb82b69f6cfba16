"""Multiplies vectors by the Hessian of a loss, exactly, by second derivatives.

:func:`extremes` finds the smallest and the largest eigenvalue from a few dozen products. For more
eigenvalues, pass ``hessian @ v`` to SciPy as a ``LinearOperator``.

The Hessian is that of the loss of one fixed batch, or of the mean loss of several batches. A batch
is not split into parts, because the loss of a row may depend on the other rows.

- Views, dropout masks and crops are fixed, because every random number has a fixed seed.
- Batch norms keep their mode (training or evaluation). In training mode, the Hessian includes the
  derivatives of the batch statistics. Running statistics do not change.
- Values that the objective or the method holds constant (stopped gradients, moving averages, a
  queue, the detached parts of a composed objective) are constant here too. The Hessian is the
  second derivative of the loss at the present values, and is symmetric.
- Weight decay is not included.
- The eager backend computes the loss, and torch's math backend computes attention, because the
  fused kernels of other backends have no second derivatives.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from isotrope.core.autograd import seeded
from isotrope.core.errors import InputError, needs_extra
from isotrope.core.views import Views
from isotrope.paradigm.objective import Objective

# views whose mean loss is the loss of a batch; most methods have one
Terms = Callable[[], Views | Sequence[Views]]


class Hessian:
    """The Hessian of a scalar with respect to some tensors, as a linear operator: ``hessian @ v``.

    The autograd graph of the gradient stays in memory. A product is one backward pass through it.

    Args:
        losses: Functions that each return a scalar. The Hessian is that of the scalars' mean.
        parameters: Tensors with N numbers in all. The mean is differentiated by these numbers.

    Attributes:
        size: Number N of rows and columns of the Hessian.
        loss: Mean of the losses.
        gradient: Gradient of ``loss``, N numbers.

    Raises:
        InputError: There are no parameters or losses, or a loss is not finite.
    """

    def __init__(
        self, losses: Sequence[Callable[[], Tensor]], parameters: Iterable[Tensor]
    ) -> None:
        self.parameters = list(parameters)
        if not self.parameters or not losses:
            raise InputError(
                "give at least one loss, and one parameter that requires a gradient; found "
                f"{len(losses)} losses and {len(self.parameters)} parameters"
            )
        self.size = sum(p.numel() for p in self.parameters)
        values, self._graphs = zip(*map(self._graph, losses), strict=True)
        self.loss = sum(values) / len(values)
        gradients = [_flat([g.detach() for g in pieces]) for pieces in self._graphs]
        self.gradient = torch.stack(gradients).mean(dim=0)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters and of vectors."""
        return self.gradient.dtype

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.gradient.device

    def __matmul__(self, vector: Tensor) -> Tensor:
        """Return the product with a vector of N numbers, detached."""
        if vector.shape != (self.size,):
            raise ValueError(
                f"give a vector of {self.size} numbers; found the shape {tuple(vector.shape)}"
            )
        v = vector.detach().to(self.gradient)
        return torch.stack([self._directed(pieces, v) for pieces in self._graphs]).mean(dim=0)

    def _graph(self, loss: Callable[[], Tensor]) -> tuple[float, list[Tensor]]:
        """Return a loss's value and its gradient, which can be differentiated again."""
        with torch.inference_mode(mode=False), torch.enable_grad():
            value = loss()
            if not torch.isfinite(value):
                raise InputError(
                    f"give a batch and parameters with a finite loss: the loss is {value.item():g}"
                )
            pieces = torch.autograd.grad(
                value, self.parameters, create_graph=True, allow_unused=True, materialize_grads=True
            )
        return value.item(), list(pieces)

    def _directed(self, pieces: list[Tensor], v: Tensor) -> Tensor:
        """Return the derivative of a gradient along ``v``."""
        along = torch.split(v, [p.numel() for p in self.parameters])
        # a gradient without a graph is constant, so its derivative is 0
        both = zip(pieces, along, strict=True)
        curved = [(g, part.view_as(g)) for g, part in both if g.requires_grad]
        if not curved:
            return torch.zeros_like(v)
        products = torch.autograd.grad(
            [g for g, _ in curved],
            self.parameters,
            [part for _, part in curved],
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        return _flat(products)


def parameter_hessian(
    objective: Objective, views: Terms | Sequence[Terms], module: nn.Module, *, seed: int = 0
) -> Hessian:
    """Return the Hessian of an objective with respect to the parameters of a module.

    Args:
        objective: Objective that is defined by a loss, not by a gradient as results of ``modify``.
        views: Function that returns the unnormalised embeddings of a batch: one ``Views``, or
            several ``Views`` whose losses are averaged. For several batches: a list of functions.
        module: Module with all parameters and buffers that ``views`` uses. The Hessian is for the
            parameters that require a gradient. The mode (training or evaluation) does not change.
        seed: Seed of torch's random numbers in ``views``.

    Raises:
        InputError: The module has no parameter that requires a gradient, there is no batch, a loss
            is not finite, or the objective is defined by its gradient.
    """
    batches = [views] if callable(views) else list(views)
    device = next((p.device for p in module.parameters()), torch.device("cpu"))

    def loss_of(terms: Terms) -> Callable[[], Tensor]:
        def loss() -> Tensor:
            with _undisturbed(module), seeded(seed, device), sdpa_kernel(SDPBackend.MATH):
                return _mean(objective, terms())

        return loss

    wanted = [p for p in module.parameters() if p.requires_grad]
    return Hessian([loss_of(terms) for terms in batches], wanted)


def extremes(hessian: Hessian, *, tolerance: float = 1e-3, seed: int = 0) -> tuple[float, float]:
    """Return the smallest and the largest eigenvalue, as a tuple, by SciPy's ``eigsh``.

    Args:
        hessian: Hessian with at least three rows.
        tolerance: Relative error of the eigenvalues.
        seed: Seed of the random vector from which the iteration starts.
    """
    with needs_extra("train"):
        from scipy.sparse.linalg import LinearOperator, eigsh

    def product(v: np.ndarray) -> np.ndarray:
        found: np.ndarray = (hessian @ torch.from_numpy(v.ravel())).cpu().double().numpy()
        return found

    operator = LinearOperator((hessian.size,) * 2, matvec=product, dtype=np.float64)
    start = np.random.default_rng(seed).normal(size=hessian.size)
    low, high = sorted(
        eigsh(operator, k=2, which="BE", tol=tolerance, v0=start, return_eigenvectors=False)
    )
    return float(low), float(high)


def _mean(objective: Objective, terms: Views | Sequence[Views]) -> Tensor:
    if objective.holds == "everything":
        raise InputError(
            f"use another objective, such as InfoNCE: {type(objective).__name__} is defined by a "
            "gradient, not by a loss, so it has no Hessian"
        )
    several = [terms] if isinstance(terms, Views) else list(terms)
    return torch.stack([objective.loss(v, backend="eager") for v in several]).mean()


@contextlib.contextmanager
def _undisturbed(module: nn.Module) -> Iterator[None]:
    """Let forward passes write into copies of the buffers: running statistics do not change."""
    # The buffers are replaced and not restored, because writing into them would break the graph.
    owners = [(part, name) for part in module.modules() for name in part._buffers]
    before = [part._buffers[name] for part, name in owners]
    copies = {id(b): b.clone() for b in before if b is not None}
    try:
        for (part, name), buffer in zip(owners, before, strict=True):
            part._buffers[name] = None if buffer is None else copies[id(buffer)]
        yield
    finally:
        for (part, name), buffer in zip(owners, before, strict=True):
            part._buffers[name] = buffer


def _flat(pieces: Sequence[Tensor]) -> Tensor:
    return torch.cat([piece.reshape(-1) for piece in pieces])
