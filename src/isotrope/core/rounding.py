"""Tolerances for rounding: they decide on rank, span and equality.

A sum of k products has an error of about k units in the last place, relative to the lengths of its
factors. A solution, or a length computed from its square, keeps half of these digits. Comparing
squared lengths with :func:`rounding` therefore compares lengths with its square root.
"""

import math

import torch
from torch import Tensor


def rounding(dtype: torch.dtype, terms: int) -> float:
    """Return the relative error of a sum of ``terms`` products, 0.01 at most.

    Args:
        dtype: Precision to which the loss under test rounds its factors.
        terms: The longer side of a matrix, as in the tolerance of a rank.
    """
    return min(terms * torch.finfo(dtype).eps, 0.01)


def same(a: Tensor, b: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Return whether two tensors are equal in half of their digits, relative to the largest number.

    NaN equals NaN. ``dtype`` is the precision of the computation, by default their own.
    """
    size = max((float(x.nan_to_num(0).abs().max()) for x in (a, b) if x.numel()), default=0.0)
    close = math.sqrt(torch.finfo(dtype or a.dtype).eps) * size
    return a.shape == b.shape and torch.allclose(a, b, rtol=0.0, atol=close, equal_nan=True)
