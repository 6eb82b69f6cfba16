"""Precision of computations: wider dtypes, and tolerances for rounding errors.

The tolerances decide about rank, span and equality. A scalar product of k terms has a rounding
error of about k eps (eps: the precision of the dtype), relative to the product of the two vectors'
lengths. A solution of a linear system, and a length computed from its square, keep half of the
digits; their tolerance is the root of :func:`rounding`.
"""

import math

import torch
from torch import Tensor

WITHOUT_FLOAT64 = {"mps"}  # types of devices: Apple's GPUs


def exact(x: Tensor) -> Tensor:
    """Return x in float64, or in float32 if its device has no float64."""
    return x.float() if x.device.type in WITHOUT_FLOAT64 else x.double()


def at_least_float(x: Tensor) -> Tensor:
    """Return ``x`` in float32, or unchanged if its dtype is wider."""
    return x.float() if x.dtype.itemsize < 4 else x


def rounding(dtype: torch.dtype, terms: int) -> float:
    """Return the largest relative error to expect in a sum of ``terms`` products, at most 0.01.

    Args:
        dtype: Precision to which the factors of the products are rounded.
        terms: Number of summed products; for a rank, the longer side of the matrix.
    """
    return min(terms * torch.finfo(dtype).eps, 0.01)


def same(a: Tensor, b: Tensor) -> bool:
    """Return True if two tensors of one dtype have one shape and agree in half of their digits.

    The tolerance is relative to the largest finite entry. NaN equals NaN; infinity equals itself.
    """
    size = max((float(x.nan_to_num(0, 0, 0).abs().max()) for x in (a, b) if x.numel()), default=0.0)
    close = math.sqrt(torch.finfo(a.dtype).eps) * size
    return a.shape == b.shape and torch.allclose(a, b, rtol=0.0, atol=close, equal_nan=True)
