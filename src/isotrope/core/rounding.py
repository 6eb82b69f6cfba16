"""Tolerances for rounding errors, for decisions about rank, span and equality.

A sum of k products has an error of about k units in the last place, relative to the lengths of its
factors. The solution of a linear system, or a length computed from its square, keeps half of the
digits. If :func:`rounding` is the tolerance of the square, its square root is the tolerance of the
length.
"""

import math

import torch
from torch import Tensor


def rounding(dtype: torch.dtype, terms: int) -> float:
    """Return the relative error of a sum of ``terms`` products, 0.01 at most.

    Args:
        dtype: Precision to which the tested loss rounds its factors.
        terms: Number of summed products; for a rank, the longer side of the matrix.
    """
    return min(terms * torch.finfo(dtype).eps, 0.01)


def same(a: Tensor, b: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Return whether two tensors agree in half of the digits of their dtype.

    The tolerance is relative to the largest finite number. NaN equals NaN; infinity equals itself.
    ``dtype`` is the precision of the computation, by default that of ``a``.
    """
    size = max((float(x.nan_to_num(0, 0, 0).abs().max()) for x in (a, b) if x.numel()), default=0.0)
    close = math.sqrt(torch.finfo(dtype or a.dtype).eps) * size
    return a.shape == b.shape and torch.allclose(a, b, rtol=0.0, atol=close, equal_nan=True)
