"""Forms blocks of similarities, chooses their height, and multiplies them with the other side.

Every pass over similarities in linear memory takes its blocks from here: all columns side by side,
or the upper triangle of a view against itself. One buffer holds one block after another.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from isotrope.kernels.mask import Mask

TILE_BYTES = 1 << 24  # of one block of similarities: nearly the cache of a core
# rows of a block: fewer slow the products down, more would take room (88 x 65,536 are 23 MB) or
# gain nothing
LEAST, MOST = 88, 512
_CACHED = 256  # rows of embeddings that are passed over several times
_STRIP_BYTES = 1 << 20  # of a block, with as much again for what is computed of it
# so narrow an addmm adds term by term to what is there: ten times the rounding of a product
_NARROW = 16
_SUMMED = 4096  # rows of a product in bfloat16 before it is added in the format of the sum


def blocks(first: int, last: int, height: int) -> Iterator[slice]:
    """Yield slices of at most ``height`` from ``first`` to ``last``."""
    for start in range(first, last, height):
        yield slice(start, min(start + height, last))


def height(columns: int, dtype: torch.dtype, most: int | None = None) -> int:
    """Return the number of rows of a block.

    Args:
        columns: The columns of the block.
        dtype: The dtype of its entries.
        most: fewer rows than ``MOST``, where less is better.
    """
    limit, room = MOST, TILE_BYTES
    if dtype == torch.bfloat16:  # fewer sums in float32, which cost what they do not save
        limit, room = 2 * limit, 2 * room
    if most is not None:
        limit = min(limit, most)
    return min(limit, max(LEAST, room // max(1, columns * dtype.itemsize)))


def strips(tile: Tensor) -> Iterator[slice]:
    """Yield rows of a block that stay in a core's near cache while they are passed over."""
    if tile.device.type != "cpu":
        return blocks(0, len(tile), len(tile))
    return blocks(0, len(tile), max(1, _STRIP_BYTES // (tile.shape[1] * tile.element_size())))


def total(tile: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Return the sums of a block along ``dim``, added up in ``dtype``."""
    if tile.dtype == dtype:
        return tile.sum(dim=dim)
    # torch would make a copy of the whole block
    parts = [tile[rows].to(dtype).sum(dim=dim) for rows in blocks(0, len(tile), 64)]
    return torch.cat(parts) if dim == 1 else torch.stack(parts).sum(dim=0)


def add_product(into: Tensor, tile: Tensor, rows: Tensor) -> None:
    """Add ``tile``^T ``rows`` to ``into``, in place; of a bfloat16 tile, a product at a time."""
    if tile.dtype != into.dtype:
        rows = rows.to(tile.dtype)
        for start in range(0, len(into), _SUMMED):
            into[start : start + _SUMMED].add_(tile[:, start : start + _SUMMED].T @ rows)
    elif into.shape[1] < _NARROW:
        into.add_(tile.T @ rows)
    else:
        into.addmm_(tile.T, rows)


class Vectors:
    """Rows of embeddings as unit vectors.

    As columns of blocks they are copied once with unit length, or in bfloat16, or their norms are
    kept aside and folded into the block. As rows of blocks they are made when they are needed.

    Args:
        raw: n x d.
        half: their products are rounded to bfloat16.
        copied: there is room for a copy.
        unit: they have unit length already.
    """

    def __init__(
        self, raw: Tensor, *, half: bool = False, copied: bool = False, unit: bool = False
    ) -> None:
        self.raw, self.data = raw, raw
        self.divided = not (copied or half or unit)
        self.norm = raw[:, :0] if unit else _divisors(raw)
        self._ready = unit or (copied and not half)
        if half:
            self.data = torch.empty_like(raw, dtype=torch.bfloat16)
            for part in blocks(0, len(raw), 2048):
                self.data[part] = self.rows(part)
        elif copied and not unit:
            self.data = raw / self.norm

    def __len__(self) -> int:
        return len(self.raw)

    def rows(self, where: slice | Tensor) -> Tensor:
        """Return some unit vectors."""
        return self.data[where] if self._ready else self.raw[where] / self.norm[where]

    def multiply(self, rows: Tensor, out: Tensor, start: int = 0) -> None:
        """Write the products of unit rows with these vectors, from ``start`` on, into ``out``."""
        torch.mm(rows.to(out.dtype), self.data[start:].T, out=out)
        if self.divided:
            out.div_(self.norm[start:].T)

    def combine(self, tile: Tensor, start: int = 0) -> Tensor:
        """Return ``tile`` times these vectors, from ``start`` on; the tile is used up."""
        if self.divided:
            tile.div_(self.norm[start:].T)
        combined: Tensor = tile @ self.data[start:]
        return combined.to(self.raw.dtype)

    def to_raw(self, gradient: Tensor) -> None:
        """Turn the gradient of the unit vectors, in place, into that of the raw ones."""
        for rows in blocks(0, len(self), _CACHED):
            self.project(gradient[rows], self.rows(rows), rows)

    def project(self, gradient: Tensor, unit: Tensor, rows: slice) -> None:
        """Do the same for given unit vectors: remove the component along them, in place."""
        along = (gradient * unit).sum(dim=1, keepdim=True)
        gradient.addcmul_(unit, along, value=-1).div_(self.norm[rows])


def _divisors(raw: Tensor) -> Tensor:
    """Return what rows are divided by, n x 1: as core.views.unit does, for it rounds only once."""
    norm: Tensor = torch.linalg.vector_norm(raw, dim=1, keepdim=True)
    least = max(1e-12, torch.finfo(raw.dtype).tiny)
    if raw.device.type == "cpu" and len(raw):  # elsewhere looking means waiting
        low, high = (float(x) for x in torch.aminmax(norm))
        if low > least and high < float("inf"):  # no dead row, none beyond the numbers, no NaN
            return norm
    dead = norm <= least
    return norm.masked_fill(norm == torch.inf, torch.nan).masked_fill(dead, torch.inf)


class Tiles:
    """Blocks of products of rows with columns, one after the other in one buffer."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most  # rows of a block, see ``height``
        self._buffer: Tensor | None = None

    def of(
        self,
        rows: Vectors,
        columns: Sequence[Vectors],
        mask: Mask | None,
        scaled: Callable[[Tensor], Tensor] | None = None,
        *,
        triangle: bool = False,
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield which rows, their unit vectors, and their products with all columns.

        A block is in the number format of the columns, and gone when the next one is formed.

        Args:
            rows: the rows.
            columns: the sources of the columns, one after the other.
            mask: sets all but the negatives to -inf; None if all are negatives.
            scaled: turns unit rows into what is multiplied.
            triangle: the rows are the only columns, and each block begins at its own first one.
        """
        width = sum(len(x) for x in columns)
        data = columns[0].data
        for where in blocks(0, len(rows), height(width, data.dtype, self._most)):
            first = where.start if triangle else 0
            unit = rows.rows(where)
            tile = self._room(len(unit), width - first, data)
            factors, at = unit if scaled is None else scaled(unit), 0
            for x in columns:
                x.multiply(factors, tile[:, at : at + len(x) - first], first)
                at += len(x)
            if mask is not None:
                mask.exclude(tile, where, first)
            yield where, unit, tile

    def _room(self, rows: int, columns: int, like: Tensor) -> Tensor:
        """Return a buffer for a block; it overwrites the block before."""
        if self._buffer is None or self._buffer.numel() < rows * columns:
            self._buffer = like.new_empty(rows * columns)
        return self._buffer[: rows * columns].view(rows, columns)


def similarity_tiles(mask: Mask, temperature: float = 1.0) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of anchors of unit views, and s / temperature, -inf where there is no negative.

    Args:
        mask: The mask of the views.
        temperature: The divisor of the similarities.
    """
    anchors = Vectors(mask.views.anchors, unit=True)
    columns = [Vectors(x, unit=True) for x in mask.columns]
    for rows, _, tile in Tiles().of(anchors, columns, mask, lambda x: x / temperature):
        yield rows, tile
