"""Prepares the operands of the kernels: the rows of one matrix and the columns of another.

``Rows`` holds vectors in kernel format, ``RowColumnBlock`` says which rows are compared with which
columns and which pairs are not negatives, ``RowStatistics`` holds the result for each row or
column. Any number of rows and any d: rows are padded with zeros to whole slices of d, and columns
beyond the last one are masked.

Excluded pairs: ``offset``, the column of a row's own positive (or itself); equal ``groups``; no
further negative is excluded. A block that excludes everything is never made.

Several GPUs. *Gathered*, as now (``paradigm.separable``): each process receives all m = pn keys and
compares its n rows with them, n x m with the offset of the process; the gradients of the columns go
back by the gather's own backward pass. 8 n m d for one direction and 16 for both, which are two
blocks there; every process computes objectives that are not separable (NT-Xent, MIO) whole. 2 m d
numbers are received and as many sent.

*Ring*, designed and not built, for keys that do not fit and to lose no symmetry: anchors stay,
blocks of keys travel from process to process. Each pass is p blocks of n x n, with the block's
statistics of columns (first pass) or sums of gradients (second pass) in tow; after a round they are
home, complete, and the formula is called. 8 n m d for one direction and for both. Inside a view a
pair of blocks is met once, so half a round is enough: 4 n m d for each view. Two
``RowStatistics`` are joined in any order and gradients add up: nothing in the kernels changes.
While a block is met the next one is on its way: in the second pass 6 n n d operations against
6 n d bytes, bfloat16 keys and their sums, so from n of some thousands on nobody should wait.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from isotrope.kernels.tiles import blocks
from isotrope_triton.tiles import LAST

NOWHERE: int = LAST.value
SHORT = 128  # numbers of a vector that is loaded once for a tile
PASSED = 8192  # rows of embeddings that are passed over at a time, number by number
LEAST = 16  # the smallest dimension of a matrix that the kernels multiply


class Rows:
    """Vectors in kernel format: padded, and scaled by a power of two.

    Attributes:
        raw: n x d as given.
        groups: n integers or None.
        sums: the format of sums.
        width: numbers of a row of ``data`` and of sums: d, or somewhat more.
        data: n x width, each row times its power of two, zeros behind.
        power: n.
        exact: n, reciprocals of the lengths of the rows of ``data`` in float64; 0 for a row without
            direction, NaN where there are no numbers.
        reciprocal: the same in the format of sums.
    """

    def __init__(
        self,
        raw: Tensor,
        *,
        groups: Tensor | None = None,
        as_is: bool = False,
    ) -> None:
        """Make the kernels' copy.

        Args:
            raw: n x d embeddings.
            groups: n integers or None.
            as_is: use the vectors as they are, of unit length or not.
        """
        d = raw.shape[1]
        self.raw, self.groups = raw, None if groups is None else groups.to(torch.int64)
        self.sums = torch.promote_types(raw.dtype, torch.float32)
        self.width = max(LEAST, 1 << (d - 1).bit_length()) if d <= SHORT else -(-d // 64) * 64
        norm = torch.linalg.vector_norm(raw, dim=1, dtype=torch.float64)
        ones = torch.ones_like(norm)
        if as_is:
            power, self.exact = ones, ones + 0 * norm
        else:  # as core.views.unit has it: too short is dead, too long is not a number
            dead = norm <= max(1e-12, torch.finfo(self.sums).tiny)
            norm = norm.masked_fill(norm > torch.finfo(self.sums).max ** 0.5, torch.nan)
            exponent = torch.frexp(norm.where(norm.isfinite() & ~dead, 1.0))[1]
            power = torch.ldexp(ones, -exponent)
            self.exact = (norm * power).masked_fill(dead, torch.inf).reciprocal()
        self.power, self.reciprocal = power.to(self.sums), self.exact.to(self.sums)
        self.data = torch.zeros((len(raw), self.width), dtype=raw.dtype, device=raw.device)
        # a power of two changes no digit
        self.data[:, :d] = raw if as_is else raw * self.power[:, None].to(raw.dtype)

    def __len__(self) -> int:
        return len(self.raw)

    def numbers(self, where: slice | Tensor) -> Tensor:
        """Some rows of ``data`` in the format of sums."""
        return self.data[where].to(self.sums)

    def unit(self, where: slice | Tensor) -> Tensor:
        """Some unit vectors, of width numbers."""
        vectors: Tensor = self.numbers(where) * self.reciprocal[where, None]
        return vectors

    def by_raw(self, sums: Tensor) -> Tensor:
        """Turn sums (of ``passes.spread``) into the gradient of ``raw``; they are used."""
        for rows in blocks(0, len(self), PASSED):
            x, part = self.numbers(rows), sums[rows]
            square = (x * x).sum(dim=1, keepdim=True)  # not what the reciprocal is rounded to
            along = (part * x).sum(dim=1, keepdim=True) / square.where(square > 0, 1.0)
            part.addcmul_(x, along, value=-1).mul_(self.power[rows, None])
        return sums[:, : self.raw.shape[1]].to(self.raw.dtype).contiguous()

    def by_unit(self, sums: Tensor) -> Tensor:
        """Turn sums into the gradients of the unit vectors; 0 for a row without direction."""
        by = self.reciprocal.masked_fill(self.reciprocal == 0, torch.inf)
        gradients: Tensor = sums[:, : self.raw.shape[1]] / by[:, None]
        return gradients

    def zeros(self) -> Tensor:
        """Sums of nothing, n x width."""
        return torch.zeros((len(self), self.width), dtype=self.sums, device=self.raw.device)


@dataclass(frozen=True)
class RowColumnBlock:
    """Rows, the columns that they are compared with, and which pairs are not negatives.

    Attributes:
        rows: the vectors of the rows.
        columns: the vectors of the columns; the same object if a view is compared with itself.
        offset: the column that is not a negative of row 0; for row 1 it is the next one, and so on.
            None if every column is a negative.
        upper: of a view compared with itself, the pairs i < j only: a vector's statistics are those
            of its row joined with those of its column.
        moved: the vectors that push the columns and the vectors that push the rows, if they are not
            the compared ones.
    """

    rows: Rows
    columns: Rows
    offset: int | None = None
    upper: bool = False
    moved: tuple[Rows, Rows] | None = None

    def swapped(self) -> "RowColumnBlock":
        """Return the block with rows and columns exchanged."""
        offset = None if self.offset is None else -self.offset
        moved = None if self.moved is None else self.moved[::-1]
        return replace(self, rows=self.columns, columns=self.rows, offset=offset, moved=moved)

    def in_both_orders(self) -> "RowColumnBlock":
        """Return a triangle as the whole square, each pair in both orders, without its diagonal.

        Other blocks are returned unchanged.
        """
        return replace(self, upper=False, offset=0) if self.upper else self

    @property
    def grouped(self) -> bool:
        """Whether pairs of equal groups are excluded."""
        return self.rows.groups is not None and self.columns.groups is not None


class Factors(NamedTuple):
    """Factors of the weights of rows or columns: slope at (exponent - ``shift``) times ``factor``.

    Attributes:
        factor: n.
        shift: n; None where exponents need none.
    """

    factor: Tensor
    shift: Tensor | None = None


@dataclass(frozen=True)
class RowStatistics:
    """Statistics of each row over some columns.

    Attributes:
        top: n, the largest exponent; None if it was not computed.
        mass: n, the sum over the negatives; if ``shifted``, in units of 2^top.
        place: n, the first column with the largest exponent, ``NOWHERE`` if there is none.
        shifted: see ``mass``.
    """

    top: Tensor | None
    mass: Tensor | None
    place: Tensor | None
    shifted: bool = False

    @classmethod
    def empty(cls, rows: Rows) -> "RowStatistics":
        """Return the statistics of rows without columns."""
        none = torch.zeros_like(rows.reciprocal)
        top = torch.full_like(none, -torch.inf)
        return cls(top, none, torch.full_like(none, NOWHERE, dtype=torch.int32), shifted=True)

    @classmethod
    def join(cls, parts: "Sequence[RowStatistics]") -> "RowStatistics":
        """Join the statistics of the same rows over several sets of columns."""
        return _map(torch.stack, parts).reduce()

    @classmethod
    def concatenate(cls, parts: "Sequence[RowStatistics]") -> "RowStatistics":
        """Concatenate the statistics of several sets of rows."""
        return _map(torch.cat, parts)

    def reduce(self) -> "RowStatistics":
        """Join statistics of shape k x n over their first dimension."""
        top, mass, place = self.top, self.mass, self.place
        if self.top is not None:
            top = self.top.amax(dim=0)
            if mass is not None and self.shifted:
                mass = mass * torch.exp2(self.top - finite(top))
            if place is not None:
                place = place.where(self.top == top, NOWHERE).amin(dim=0)
                place = place.masked_fill(top == -torch.inf, NOWHERE)
        return RowStatistics(top, None if mass is None else mass.sum(dim=0), place, self.shifted)

    @property
    def tops(self) -> Tensor:
        """The largest exponents; they must have been computed."""
        assert self.top is not None
        return self.top

    def factors(self, by: Tensor, whole: "RowStatistics", *, of_logarithm: bool = True) -> Factors:
        """Turn derivatives by the statistics over all columns into factors for these columns.

        Args:
            by: the derivatives.
            whole: the statistics over all columns, of which these are a part.
            of_logarithm: whether the derivatives are by the logarithm of the sum.
        """
        if of_logarithm:
            assert whole.mass is not None
            by = torch.where(whole.mass == 0, 0.0, by / whole.mass)
        if not self.shifted:
            return Factors(by)
        return Factors(by * torch.exp2(self.tops - finite(whole.tops)), finite(self.tops))

    def head(self, count: int) -> "RowStatistics":
        """Return the statistics of the first rows."""
        return _map(lambda x: x[0][..., :count], [self])

    def counted_from(self, first: int) -> "RowStatistics":
        """Return the same statistics with the first column numbered ``first``."""
        if self.place is None:
            return self
        return replace(self, place=self.place.where(self.place == NOWHERE, self.place + first))


def _map(
    function: Callable[[tuple[Tensor, ...]], Tensor], parts: Sequence[RowStatistics]
) -> RowStatistics:
    """Apply a function to the tops, the masses and the places of all parts."""
    columns = zip(*((x.top, x.mass, x.place) for x in parts), strict=True)
    top, mass, place = (None if x[0] is None else function(x) for x in columns)
    return RowStatistics(top, mass, place, parts[0].shifted)


def finite(top: Tensor) -> Tensor:
    """Replace the maximum of no columns by 0, because e^{-inf - -inf} is not a number."""
    return top.masked_fill(top == -torch.inf, 0.0)
