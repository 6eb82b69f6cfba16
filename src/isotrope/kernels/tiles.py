"""Forms blocks of similarities, and computes their sums, products and largest entries.

Every pass over similarities in linear memory uses these blocks of rows. If a view is compared with
itself, a block has only the columns from its first row on. All blocks share one buffer.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from isotrope.core.views import lengths
from isotrope.kernels.negative_mask import NegativeMask

TILE_BYTES = 1 << 24  # size of a block of similarities, nearly that of a core's cache
# least and most rows of a block. Fewer rows slow the products down; more take memory (88 x 65,536
# are 23 MB) or gain nothing
LEAST, MOST = 88, 512
# on a GPU each block starts some sixty kernels, a millisecond in which it multiplies 4,096 x 4,096
# (benchmarks/gpu.csv), so a block is as large as memory allows
GPU_TILE_BYTES = 1 << 29
_CACHED = 256  # rows of embeddings that stay in the cache for several operations
_STRIP_BYTES = 1 << 20  # size of a part of a block that stays in the cache with its results
# with fewer columns, addmm adds term by term to its output: ten times the rounding error of mm
_NARROW = 16
_CHUNK = 64  # columns in a chunk; smaller chunks leave more maxima to search, larger more entries
_SUMMED = 4096  # rows of a product in bfloat16, which is then added in the dtype of the sum


def blocks(first: int, last: int, height: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``height`` rows, from ``first`` to ``last``."""
    for start in range(first, last, max(1, height)):
        yield slice(start, min(start + height, last))


def height(columns: int, like: Tensor, most: int | None = None) -> int:
    """Return the number of rows of a block.

    Args:
        columns: Number of columns of the block.
        like: Tensor with the dtype and the device of the block.
        most: Largest number of rows of a block on a CPU; None means ``MOST``.
    """
    dtype = like.dtype
    if like.device.type != "cpu":
        return max(LEAST, GPU_TILE_BYTES // max(1, columns * dtype.itemsize))
    limit, room = MOST, TILE_BYTES
    if dtype == torch.bfloat16:  # larger blocks need fewer sums in float32, which are slow
        limit, room = 2 * limit, 2 * room
    if most is not None:
        limit = min(limit, most)
    return min(limit, max(LEAST, room // max(1, columns * dtype.itemsize)))


def strips(tile: Tensor) -> Iterator[slice]:
    """Yield slices of a block's rows that are small enough for a core's cache."""
    if tile.device.type != "cpu":
        return blocks(0, len(tile), len(tile))
    return blocks(0, len(tile), max(1, _STRIP_BYTES // (tile.shape[1] * tile.element_size())))


def total(tile: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Return the sums of a block along ``dim``, added up in ``dtype``."""
    if tile.dtype == dtype:
        return tile.sum(dim=dim)
    # torch would copy the whole block
    parts = [tile[rows].to(dtype).sum(dim=dim) for rows in blocks(0, len(tile), 64)]
    return torch.cat(parts) if dim == 1 else torch.stack(parts).sum(dim=0)


def add_product(into: Tensor, tile: Tensor, rows: Tensor) -> None:
    """Add the product of the transposed ``tile`` with ``rows`` to ``into``, in place."""
    if tile.dtype != into.dtype:
        rows = rows.to(tile.dtype)
        for start in range(0, len(into), _SUMMED):
            into[start : start + _SUMMED].add_(tile[:, start : start + _SUMMED].T @ rows)
    elif into.shape[1] < _NARROW:
        into.add_(tile.T @ rows)
    else:
        into.addmm_(tile.T, rows)


class Vectors:
    """Embeddings that are used as unit vectors.

    With ``copied`` or ``half``, a copy with unit length is stored. Otherwise only the norms are
    stored, and each block of products is divided by the norms.

    Args:
        raw: Embeddings, n x d.
        half: Whether the copy is in bfloat16, which rounds the products.
        copied: Whether to store a copy with unit length.
        unit: Whether the rows of ``raw`` have unit length already.

    Attributes:
        data: The copy, or ``raw`` without one, n x d; products are formed with it.
        divided: Whether products with ``data`` are then divided by ``norm``.
    """

    def __init__(
        self, raw: Tensor, *, half: bool = False, copied: bool = False, unit: bool = False
    ) -> None:
        self.raw, self.data = raw, raw
        self.divided = not (copied or half or unit)
        self._norm = None if unit else lengths(raw)
        self._ready = unit or (copied and not half)  # whether ``data`` has the exact unit rows
        if half:
            self.data = torch.empty_like(raw, dtype=torch.bfloat16)
            for part in blocks(0, len(raw), 2048):
                self.data[part] = self.rows(part)
        elif copied and not unit:
            self.data = raw / self.norm

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def norm(self) -> Tensor:
        """Lengths of the rows of ``raw``, n x 1; not available with ``unit``."""
        assert self._norm is not None, "unit vectors are not divided by their lengths"
        return self._norm

    def rows(self, where: slice | Tensor) -> Tensor:
        """Return the unit vectors of some rows."""
        return self.data[where] if self._ready else self.raw[where] / self.norm[where]

    def multiply(self, rows: Tensor, out: Tensor, start: int = 0) -> None:
        """Write the products of unit rows with the vectors from row ``start`` on into ``out``."""
        torch.mm(rows.to(out.dtype), self.data[start:].T, out=out)
        if self.divided:
            out.div_(self.norm[start:].T)

    def combine(self, tile: Tensor, start: int = 0) -> Tensor:
        """Return ``tile`` times the vectors from row ``start`` on; overwrite ``tile``."""
        if self.divided:
            tile.div_(self.norm[start:].T)
        combined: Tensor = tile @ self.data[start:]
        return combined.to(self.raw.dtype)

    def to_raw(self, gradient: Tensor) -> None:
        """Turn, in place, the gradient of the unit vectors into that of the ``raw`` vectors."""
        most = _CACHED if self.raw.device.type == "cpu" else len(self)
        for rows in blocks(0, len(self), most):
            self.project(gradient[rows], self.rows(rows), rows)

    def project(self, gradient: Tensor, unit: Tensor, rows: slice) -> None:
        """Turn, in place, the gradient of some unit rows into that of these rows of ``raw``."""
        along = (gradient * unit).sum(dim=1, keepdim=True)
        gradient.addcmul_(unit, along, value=-1).div_(self.norm[rows])


class Tiles:
    """Blocks of dot products of rows with columns, one after the other in one buffer."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most  # rows of a block, see ``height``
        self._buffer: Tensor | None = None

    def of(
        self,
        rows: Vectors,
        columns: Sequence[Vectors],
        mask: NegativeMask | None,
        scaled: Callable[[Tensor], Tensor] | None = None,
        *,
        triangle: bool = False,
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield slices of rows, their unit vectors, and their products with all columns.

        A block has the dtype of the columns and is overwritten by the next block.

        Args:
            rows: Vectors of the rows.
            columns: Vectors of the columns, from one or more sources.
            mask: Sets columns that are not negatives to -inf; None if all are negatives.
            scaled: Function applied to unit rows before the product.
            triangle: Whether a view is compared with itself. Blocks then begin at the diagonal.
        """
        width = sum(len(x) for x in columns)
        data = columns[0].data
        for where in blocks(0, len(rows), height(width, data, self._most)):
            first = where.start if triangle else 0
            unit = rows.rows(where)
            tile = self._room(len(unit), width - first, data)
            factors, at = unit if scaled is None else scaled(unit), 0
            for x in columns:
                x.multiply(factors, tile[:, at : at + len(x) - first], first)
                at += len(x)
            if mask is not None:
                mask.fill_excluded(tile, where, first)
            yield where, unit, tile

    def _room(self, rows: int, columns: int, like: Tensor) -> Tensor:
        """Return a buffer for a block; it overwrites the block before."""
        if self._buffer is None or self._buffer.numel() < rows * columns:
            self._buffer = like.new_empty(rows * columns)
        return self._buffer[: rows * columns].view(rows, columns)


def similarity_tiles(mask: NegativeMask) -> Iterator[Tensor]:
    """Yield the similarities of B anchors, B x c; -inf where a column is not a negative."""
    anchors = Vectors(mask.views.anchors, unit=True)
    columns = [Vectors(x, unit=True) for x in mask.columns]
    for _, _, tile in Tiles().of(anchors, columns, mask):
        yield tile


def chunked_topk(tile: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest entries of every row (B x k, largest first) and their columns (B x k).

    If entries are equal, the lower column comes first. If a row has fewer than k entries
    above -inf, the missing entries are -inf, with column -1. ``tile`` is overwritten and restored.
    """
    columns, device = tile.shape[1], tile.device
    # torch finds a maximum about twenty times as fast as its position
    tops, within = _chunk_maxima(tile), torch.arange(min(_CHUNK, columns), device=device)
    largest: list[tuple[Tensor, Tensor]] = []
    for left in reversed(range(k)):
        chunk = tops.argmax(dim=1, keepdim=True)  # the first index at ties, here and below
        # in a short chunk the last column replaces missing columns
        inside = (chunk * _CHUNK + within).clamp_(max=columns - 1)
        entries = tile.gather(1, inside)
        place = entries.argmax(dim=1, keepdim=True)
        largest.append((entries.gather(1, place), inside.gather(1, place)))
        if left:
            tile.scatter_(1, largest[-1][1], -torch.inf)
            tops.scatter_(1, chunk, tile.gather(1, inside).amax(dim=1, keepdim=True))
    for value, column in reversed(largest):  # a row with too few entries found a column twice
        tile.scatter_(1, column, value)
    values, which = (torch.cat(x, dim=1) for x in zip(*largest, strict=True))
    return values, which.masked_fill_(values == -torch.inf, -1)


def _chunk_maxima(tile: Tensor) -> Tensor:
    """The maximum of every chunk of columns; the last chunk may be short."""
    whole = tile.shape[1] // _CHUNK * _CHUNK
    tops = tile[:, :whole].view(len(tile), whole // _CHUNK, _CHUNK).amax(dim=2)
    if whole == tile.shape[1]:
        return tops
    return torch.cat([tops, tile[:, whole:].amax(dim=1, keepdim=True)], dim=1)
