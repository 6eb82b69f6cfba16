"""Tolerances for rounding errors, for decisions about rank, span and equality.

The sum of k products in a scalar product has an error of about k units in the last place, relative
to the product of the two vectors' lengths. The solution of a linear system, or a length computed
from its square, keeps half of the digits, so the tolerance is the square root of :func:`rounding`.
"""

import math

import torch
from torch import Tensor


def rounding(dtype: torch.dtype, terms: int) -> float:
    """Return the largest relative error to expect in a sum of ``terms`` products, at most 0.01.

    Args:
        dtype: Precision to which the factors of the products are rounded.
        terms: Number of summed products; for a rank, the longer side of the matrix.
    """
    return min(terms * torch.finfo(dtype).eps, 0.01)


def same(a: Tensor, b: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Return whether two tensors agree in half of the digits of their dtype.

    The tolerance is relative to the largest finite entry. NaN equals NaN; infinity equals itself.
    ``dtype`` is the precision of the computation, by default that of ``a``.
    """
    size = max((float(x.nan_to_num(0, 0, 0).abs().max()) for x in (a, b) if x.numel()), default=0.0)
    close = math.sqrt(torch.finfo(dtype or a.dtype).eps) * size
    return a.shape == b.shape and torch.allclose(a, b, rtol=0.0, atol=close, equal_nan=True)
