"""Computes exact products of a Hessian with vectors, by differentiating the gradient once more.

:func:`extremes` finds the eigenvalues at both ends from some tens of products. SciPy's
``LinearOperator`` takes ``hessian @ v`` wherever more of the spectrum is needed.

The Hessian is that of one number, the objective of one fixed batch (or the mean over several), as a
function of parameters or of embeddings. The whole batch's loss is differentiated, because losses
that couple the rows of a batch would be another function if it were cut in pieces.

- Views, dropout masks and crops are fixed: every random number comes from a fixed seed.
- Batch norms are in the mode the module is in: with batch statistics in training mode, whose
  derivatives are part of the Hessian. Running statistics are left as they were.
- What the objective or the method holds constant (stopped gradients, moving averages, a queue, the
  detached parts of a composed objective) is constant here too. It is the second derivative of the
  loss with these held where they are, which is symmetric; training moves them along.
- Weight decay is no part of it unless ``decay`` is given, which is added to the diagonal.
- The loss is computed by the eager backend and attention by torch's math backend: the fused forms
  have no second derivatives.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from isotrope.core.errors import InputError, needs_extra
from isotrope.core.views import Views
from isotrope.paradigm.objective import Objective

# the terms of a loss, whose mean it is: one Views for most methods
Terms = Callable[[], Views | Sequence[Views]]

_SAME = 1e-3  # relative distance of two values of one loss: an accelerator may add in any order


class Hessian:
    """The Hessian of a scalar by some tensors, as a linear operator: ``hessian @ v``.

    Args:
        losses: functions that return a scalar with a graph, the same at every call; the Hessian is
            that of their mean.
        parameters: the tensors by which to differentiate, in this order; N numbers in all.
        decay: added to the diagonal; one number, or one for each parameter.
        keep_graph: keep the graph of the gradient, so that a product is one backward pass through
            it; otherwise every product recomputes the gradient, in the memory of a product.

    Attributes:
        size: N.
        loss: the mean, with the decay's share (half of it times the squared norm).
        gradient: N, of the same.

    Raises:
        InputError: no parameters or no losses, a decay for each of another number of parameters,
            or a loss that is not finite.
    """

    def __init__(
        self,
        losses: Sequence[Callable[[], Tensor]],
        parameters: Iterable[Tensor],
        *,
        decay: float | Sequence[float] = 0.0,
        keep_graph: bool = True,
    ) -> None:
        self.parameters = list(parameters)
        if not self.parameters or not losses:
            raise InputError(
                f"a Hessian needs parameters and a loss; found {len(self.parameters)} parameters "
                f"that want a gradient and {len(losses)} losses"
            )
        self.size = sum(p.numel() for p in self.parameters)
        self._decay = _each(decay, len(self.parameters))
        self._losses = list(losses)
        self._graphs: list[list[Tensor]] | None = [] if keep_graph else None
        total, self.gradient = 0.0, self._decayed(_flat([p.detach() for p in self.parameters]))
        self._values = []
        for loss in self._losses:
            value, pieces = self._graph(loss)
            self._values.append(value)
            total += value / len(losses)
            self.gradient += _flat([g.detach() for g in pieces]) / len(losses)
            if self._graphs is not None:
                self._graphs.append(pieces)
        squares = [float(p.detach().square().sum()) for p in self.parameters]
        self.loss = total + sum(d * s for d, s in zip(self._decay, squares, strict=True)) / 2

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters, and so of vectors."""
        return self.parameters[0].dtype

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.parameters[0].device

    def __matmul__(self, vector: Tensor) -> Tensor:
        """Return the product with a vector of N numbers, without history."""
        if vector.shape != (self.size,):
            raise ValueError(
                f"the Hessian has {self.size} rows; found a vector of shape {tuple(vector.shape)}"
            )
        v = vector.detach().to(self.device, self.dtype)
        product = self._decayed(v)
        for pieces in self._gradients():
            product += self._directed(pieces, v) / len(self._losses)
        return product

    def dense(self) -> Tensor:
        """Return all N x N entries, by N products."""
        unit = torch.eye(self.size, dtype=self.dtype, device=self.device)
        return torch.stack([self @ row for row in unit])

    def _gradients(self) -> Iterator[list[Tensor]]:
        """Yield each loss's gradient with its graph."""
        if self._graphs is not None:
            yield from self._graphs
            return
        for loss, before in zip(self._losses, self._values, strict=True):
            value, pieces = self._graph(loss)
            if abs(value - before) > _SAME * max(abs(before), 1e-6):
                raise InputError(
                    f"the loss changed from {before:g} to {value:g}: it draws random numbers or "
                    "has state; fix both inside the function, or keep the graph"
                )
            yield pieces

    def _graph(self, loss: Callable[[], Tensor]) -> tuple[float, list[Tensor]]:
        """Return a loss's value and its gradient, which can be differentiated again."""
        with torch.enable_grad():
            value = loss()
            if not torch.isfinite(value):
                raise InputError(
                    f"the loss is {value.item():g} here, so that there is no Hessian; look at the "
                    "checkpoint and at the batch"
                )
            pieces = torch.autograd.grad(
                value, self.parameters, create_graph=True, allow_unused=True, materialize_grads=True
            )
        return value.item(), list(pieces)

    def _directed(self, pieces: list[Tensor], v: Tensor) -> Tensor:
        """Return the derivative of a gradient along ``v``."""
        along = torch.split(v, [p.numel() for p in self.parameters])
        # a gradient without a graph is constant
        curved = [
            (g, part.view_as(g)) for g, part in zip(pieces, along, strict=True) if g.requires_grad
        ]
        if not curved:
            return torch.zeros_like(v)
        products = torch.autograd.grad(
            [g for g, _ in curved],
            self.parameters,
            [part for _, part in curved],
            retain_graph=self._graphs is not None,
            allow_unused=True,
        )
        return torch.cat(
            [
                v.new_zeros(p.numel()) if h is None else h.reshape(-1)
                for p, h in zip(self.parameters, products, strict=True)
            ]
        )

    def _decayed(self, v: Tensor) -> Tensor:
        if not any(self._decay):
            return torch.zeros_like(v)
        parts = torch.split(v, [p.numel() for p in self.parameters])
        return torch.cat([d * part for d, part in zip(self._decay, parts, strict=True)])


def parameter_hessian(
    objective: Objective,
    views: Terms | Sequence[Terms],
    module: nn.Module,
    *,
    seed: int = 0,
    decay: float | Sequence[float] = 0.0,
    keep_graph: bool = True,
) -> Hessian:
    """Return the Hessian of an objective by the parameters of a module.

    Args:
        objective: Any objective that is not a surrogate.
        views: returns the ``Views`` of a batch as raw embeddings, or several of them, over which
            the loss is the mean; for the mean over several batches, one such function for each.
        module: all that has parameters and buffers in ``views``; those that want a gradient are
            meant. Modes are as they are.
        seed: the seed of torch's random numbers in ``views``.
        decay: see :class:`Hessian`.
        keep_graph: see there.

    Raises:
        InputError: see :class:`Hessian`; or a surrogate, whose components are held constant, so
            its Hessian is not the derivative of its gradient.
    """
    batches = [views] if callable(views) else list(views)
    device = next((p.device for p in module.parameters()), torch.device("cpu"))

    def loss_of(terms: Terms) -> Callable[[], Tensor]:
        def loss() -> Tensor:
            with _undisturbed(module), _seeded(seed, device), sdpa_kernel(SDPBackend.MATH):
                return _mean(objective, terms())

        return loss

    wanted = [p for p in module.parameters() if p.requires_grad]
    return Hessian(
        [loss_of(terms) for terms in batches], wanted, decay=decay, keep_graph=keep_graph
    )


def embedding_hessian(
    objective: Objective, views: Views | Sequence[Views], *, keep_graph: bool = True
) -> Hessian:
    """Return the Hessian of an objective by its raw embeddings: anchors, positives, negatives.

    Args:
        objective: Any objective that is not a surrogate.
        views: raw embeddings, n x d, m x d and q x d, whose history is ignored; N = (n + m + q) d.
            With several views the loss is their mean, and each has its own embeddings.
        keep_graph: see :class:`Hessian`.
    """
    several = [views] if isinstance(views, Views) else list(views)
    free = [batch.map(lambda x: x.detach().clone().requires_grad_()) for batch in several]
    sides = [side for batch in free for side in (batch.anchors, batch.positives, batch.negatives)]
    rows = [side for side in sides if side is not None]
    return Hessian([lambda: _mean(objective, free)], rows, keep_graph=keep_graph)


def extremes(hessian: Hessian, *, tolerance: float = 1e-3, seed: int = 0) -> tuple[float, float]:
    """Return the smallest and the largest eigenvalue, by SciPy's ``eigsh``.

    Args:
        hessian: The operator; it needs at least three rows.
        tolerance: The relative error of the eigenvalues.
        seed: The seed of the vector that the iteration starts from.

    Raises:
        MissingExtra: SciPy is not installed.
    """
    with needs_extra("train", "scipy"):
        from scipy.sparse.linalg import LinearOperator, eigsh

    def product(v: np.ndarray) -> np.ndarray:
        found: np.ndarray = (hessian @ torch.from_numpy(v.ravel())).double().cpu().numpy()
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
            f"{type(objective).__name__} is a surrogate: its components are held constant, so its "
            "Hessian is not the derivative of its gradient; take one with a loss of its own"
        )
    several = [terms] if isinstance(terms, Views) else list(terms)
    return torch.stack([objective.loss(v, backend="eager") for v in several]).mean()


@contextlib.contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw from a fixed seed, and leave the random state as it was."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices, device_type=device.type if devices else "cuda"):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def _undisturbed(module: nn.Module) -> Iterator[None]:
    """Let forward passes write into copies of the buffers: running statistics stay as they are.

    The buffers are exchanged, not restored: writing into them would spoil a graph that holds them.
    """
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


def _each(decay: float | Sequence[float], count: int) -> list[float]:
    if not isinstance(decay, Sequence):
        return [float(decay)] * count
    if len(decay) != count:
        raise InputError(
            f"a decay for each parameter: found {len(decay)} numbers for {count} parameters"
        )
    return [float(d) for d in decay]


def _flat(pieces: Sequence[Tensor]) -> Tensor:
    return torch.cat([piece.reshape(-1) for piece in pieces])
