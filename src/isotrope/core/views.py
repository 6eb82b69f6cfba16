"""Defines :class:`Views`, the input of every objective: anchors, positives and negatives."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from isotrope.core.autograd import Context, InputGradients, apply
from isotrope.core.errors import InputError


def unit(x: Tensor, eps: float = 1e-12) -> Tensor:
    """Return the rows of ``x`` (n x d) divided by their Euclidean norm.

    A row whose norm is below ``eps``, or below the smallest normal number of the dtype, becomes
    zero and receives zero gradient. NaN stays NaN. A row whose norm overflows becomes NaN.
    """
    if torch._C._are_functorch_transforms_active():
        return x / lengths(x, eps)  # torch.func differentiates every operation itself
    return apply(_Unit, tuple[Tensor, Tensor], x, eps)[0]


def lengths(x: Tensor, eps: float = 1e-12) -> Tensor:
    """Return the divisors (n x 1) of :func:`unit`: norms of rows, or infinity for short rows."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True).nan_to_num(torch.nan, torch.nan)
    # a row that is too short is divided by infinity, and so is its gradient
    return torch.threshold(norm, max(eps, torch.finfo(x.dtype).tiny), torch.inf)


def across_unit(gradient: Tensor, unit: Tensor, norm: Tensor) -> Tensor:
    """Return the gradient for x, given the ``gradient`` for ``unit`` = x / ``norm``."""
    along = (gradient * unit).sum(dim=-1, keepdim=True)
    return torch.addcmul(gradient, unit, along, value=-1).div_(norm)


class _Unit(torch.autograd.Function):
    """Divides rows by their norms; autograd's own gradient would pass over x ten times.

    The norms are an output too, so that second derivatives can go through both saved tensors. The
    context is a parameter of ``forward``: with ``setup_context`` torch inspects signatures at each
    call, which costs as much as the division of 64 rows.
    """

    @staticmethod
    def forward(ctx: Context, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        norm = lengths(x, eps)
        result = (x / norm, norm)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*result)
        ctx.save_for_forward(*result)
        return result

    @staticmethod
    def backward(ctx: Context, by_unit: Tensor | None, by_norm: Tensor | None) -> InputGradients:
        unit, norm = ctx.saved_tensors
        # only second derivatives use the norms
        gradient = None if by_norm is None else unit * by_norm
        if by_unit is not None:
            across = across_unit(by_unit, unit, norm)
            gradient = across if gradient is None else gradient + across
        return gradient, None

    @staticmethod
    def jvp(ctx: Context, change: Tensor, _: None) -> tuple[Tensor, Tensor]:
        unit, norm = ctx.saved_tensors
        along = (change * unit).sum(dim=-1, keepdim=True)
        return torch.addcmul(change, unit, along, value=-1) / norm, along


def standard(x: Tensor, eps: float = 1e-5) -> Tensor:
    """Return the columns of ``x`` (n x d) with mean 0 and variance 1 over the batch.

    This is batch normalisation without learnt scale and shift. The variance is the sum of squares
    divided by n; ``eps`` is added to the variance. A constant column becomes 0.
    """
    return F.batch_norm(x, None, None, training=True, eps=eps)


def _groups(groups: object, m: int, device: torch.device) -> Tensor:
    """Return groups as a tensor of m integers on the device."""
    try:
        tensor = torch.as_tensor(groups, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            "number groups by numpy.unique(groups, return_inverse=True)[1]: groups must be integers"
        ) from None
    if tensor.shape != (m,):
        raise ValueError(
            f"groups must have one integer for each positive, shape {(m,)}; "
            f"found shape {tuple(tensor.shape)}"
        )
    if tensor.is_floating_point():
        raise ValueError(f"give groups.long(): groups must be integers; found {tensor.dtype}")
    return tensor


@dataclass(frozen=True)
class Views:
    """The embeddings of a batch: anchors, their positives, and additional negatives.

    Attributes:
        anchors: Embeddings of one view, n x d.
        positives: Embeddings of the other view, m x d. The positive of anchor i is row
            ``offset + i``. m exceeds n if the positives of several processes were gathered.
        negatives: None, or additional negatives of all anchors, q x d: hard negatives or a queue.
        offset: Row of ``positives`` with the positive of anchor 0.
        groups: Group of each row of ``positives``, m integers. Two rows of the same group
            (near-identical texts) are never pushed apart. None if there are no groups.
        in_batch: Whether rows of the batch are negatives. If False, only ``negatives`` are, as in
            MoCo.
    """

    anchors: Tensor
    positives: Tensor
    negatives: Tensor | None = None
    offset: int = 0
    groups: Tensor | None = None
    in_batch: bool = True

    def __post_init__(self) -> None:
        """Check types, shapes and dtypes; groups in a list or an array become a tensor."""
        if self._is_plain():
            return
        views = {"anchors": self.anchors, "positives": self.positives}
        views |= {} if self.negatives is None else {"negatives": self.negatives}
        for name, view in views.items():
            if not isinstance(view, Tensor):
                raise InputError(
                    f"{name} must be a tensor, n x d; found {type(view).__name__}: convert it "
                    "with torch.as_tensor"
                )
            if view.layout is not torch.strided:
                raise InputError(f"{name} must be dense; found {view.layout}: call .to_dense()")
        self._check_shapes()
        if self.groups is not None:
            groups = _groups(self.groups, len(self.positives), self.anchors.device)
            object.__setattr__(self, "groups", groups)
        if not self.anchors.is_floating_point():
            raise ValueError(f"convert embeddings with .float(); found {self.anchors.dtype}")
        dtypes = {view.dtype for view in views.values()}
        if len(dtypes) == 1:
            return
        if not dtypes <= {torch.float16, torch.bfloat16, torch.float32}:
            found = " and ".join(sorted(map(str, dtypes)))
            raise ValueError(f"convert the views to one dtype; found {found}")
        for name, view in views.items():  # autocast leaves a queue in float32
            object.__setattr__(self, name, view.float())

    def _is_plain(self) -> bool:
        """Whether most batches' few checks find no fault; all checks would slow small batches."""
        a, p = self.anchors, self.positives
        if self.negatives is not None or self.groups is not None or self.offset != 0:
            return False
        if not (isinstance(a, Tensor) and isinstance(p, Tensor)):
            return False
        are_alike = a.shape == p.shape and a.dtype == p.dtype and a.layout is p.layout
        is_matrix = a.ndim == 2 and a.shape[0] > 0 and a.layout is torch.strided
        return are_alike and is_matrix and a.is_floating_point()

    def _check_shapes(self) -> None:
        a, p, q = self.anchors.shape, self.positives.shape, self.negatives
        if len(a) != 2 or len(p) != 2:
            raise ValueError(
                "anchors and positives must be matrices (n x d); found shapes "
                f"{tuple(a)} and {tuple(p)}"
            )
        n, d = a
        if n == 0 or self.offset < 0:
            raise ValueError(
                f"give at least one anchor, and an offset of 0 or more; found {n} anchors and the "
                f"offset {self.offset}"
            )
        if p[1] != d or p[0] < self.offset + n:
            raise ValueError(
                f"positives must have {d} columns, as the anchors have, and at least offset + {n} "
                f"rows; found the shape {tuple(p)} and offset {self.offset}"
            )
        if q is not None and (q.ndim != 2 or q.shape[1] != d):
            raise ValueError(
                f"negatives must be a matrix with {d} columns, as the anchors have; found the "
                f"shape {tuple(q.shape)}"
            )

    @property
    def rows(self) -> slice:
        """The slice that selects the positives of the anchors from ``positives``."""
        return slice(self.offset, self.offset + len(self.anchors))

    @property
    def columns(self) -> int:
        """The number of positives and additional negatives."""
        return len(self.positives) + (0 if self.negatives is None else len(self.negatives))

    @property
    def own(self) -> Tensor:
        """The positive of each anchor, n x d."""
        square = self.anchors.shape[0] == self.positives.shape[0]
        # not sliced if possible, because the gradient of a slice is a copy
        return self.positives if square else self.positives[self.rows]

    @property
    def own_groups(self) -> Tensor | None:
        """The group of each anchor (n integers), or None."""
        return None if self.groups is None else self.groups[self.rows]

    def among_positives(self) -> "Views":
        """Views in which the anchors' positives (n x d) serve as anchors and as positives."""
        positives = self.own
        return replace(
            self, anchors=positives, positives=positives, offset=0, groups=self.own_groups
        )

    def unit(self) -> "Views":
        """The same views with every row on the unit sphere."""
        return self.map(unit)

    def map(self, function: Callable[[Tensor], Tensor]) -> "Views":
        """The same views after ``function`` was applied to each of their matrices separately."""
        return Views(
            function(self.anchors),
            function(self.positives),
            None if self.negatives is None else function(self.negatives),
            *(self.offset, self.groups, self.in_batch),
        )

    def swapped(self) -> "Views":
        """Views with anchors and positives exchanged; there must be a positive for each anchor."""
        if len(self.anchors) != len(self.positives):
            raise ValueError(
                f"pass as many positives as anchors; found {len(self.anchors)} anchors and "
                f"{len(self.positives)} positives"
            )
        return replace(self, anchors=self.positives, positives=self.anchors)

    def detached(self) -> "Views":
        """The same numbers without autograd history."""
        return self.map(Tensor.detach)
