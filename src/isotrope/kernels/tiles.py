"""What the passes over similarities share: the job, unit vectors without copies, the blocks."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.rowblock import Layout
from isotrope.kernels.statistics import Formula, Key, Known, Questions, Unfused

__all__ = [
    "COPIED",
    "LEAST",
    "LN2",
    "MOST",
    "TILE_BYTES",
    "UNSHIFTED",
    "Gradients",
    "Job",
    "Tiles",
    "Vectors",
    "blocks",
    "height",
    "total",
]

# of anchors, positives, further negatives and temperature
Gradients = list[Tensor | None]

TILE_BYTES = 1 << 24  # of one block of similarities: nearly the cache of a core
# rows of a block: fewer slow the products down, more would take room (96 x 65,536 are 24 MB) or
# gain nothing
LEAST, MOST = 96, 512
COPIED = 1 << 25  # bytes of columns that are copied once with unit length, at most
CACHED = 256  # rows of embeddings that are passed over several times
# torch's exp2 takes a third of the time of its exp on processors that are not Intel's; float32 has
# ln 2 to 3e-9, which its product with a temperature would not be
LN2 = math.log(2)
UNSHIFTED = 30.0  # 1 / tau up to which e^{s/tau} needs no shift: e^30 N fits, so does its inverse


@dataclass(frozen=True)
class Job:
    """What is to be computed: raw views, a formula, what it asks, and how values are reduced.

    Attributes:
        coupling: how the anchors depend on each other, as the objective declares.
        learnt: what wants a gradient besides the embeddings; ``questions.learnt`` is the same
            where it is the temperature of the statistics.
        half: products in bfloat16, of sums of functions; what chooses a column is never rounded.
    """

    views: Views
    formula: Formula
    questions: Questions
    coupling: Coupling
    mean: bool
    learnt: Tensor | None
    half: bool = False

    def columns(self, *raw: Tensor) -> "list[Vectors]":
        """The vectors that rows are compared with, copied if there is room for copies of all."""
        copied = sum(x.numel() * x.element_size() for x in raw) <= COPIED
        half = self.half and not {"hardest", "mixed"} & self.questions.kinds
        return [Vectors(x, half=half, copied=copied) for x in raw]

    @property
    def temperature(self) -> float:
        """The one of all exponentials.

        Raises:
            Unfused: there are two.
        """
        found = {t for (kind, _), t in self.questions.temperatures.items() if kind != "hardest"}
        if len(found) > 1:
            raise Unfused("two temperatures")
        return found.pop() if found else 1.0

    @property
    def by_temperature(self) -> bool:
        """Whether the temperature of the statistics wants a gradient."""
        return self.questions.learnt is not None

    def counts(self) -> dict[Against, Tensor]:
        """The number of negatives of each row, by what is asked."""
        return {against: Layout(self.views, against).counts() for against in self.questions.counts}

    @property
    def base(self) -> float:
        """Of what :meth:`exponents` are, its logarithm: 2 where exponentials are wanted, or e."""
        return LN2 if {"logsumexp", "softplus"} & self.questions.kinds else 1.0

    def exponents(self, unit: Tensor) -> Tensor:
        """Return unit rows scaled: base^(product with a column) is e^{s/tau}."""
        scaled = unit / self.temperature
        return scaled if self.base == 1 else scaled.div_(self.base)

    def evaluate(
        self,
        positive: Tensor,
        values: dict[Key, Tensor],
        counts: dict[Against, Tensor],
        rows: int,
    ) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """Call the formula on statistics of some anchors of a batch of ``rows``.

        Returns:
            What adds up to the value, n or one number, its derivatives by ``positive`` and by the
            statistics in order, and that by ``learnt`` where nothing but the formula has it.

        Raises:
            Unfused: there are no derivatives, or the formula asks what it did not ask before.
        """
        leaves = [x.detach().requires_grad_() for x in (positive, *values.values())]
        given = dict(zip(values, leaves[1:], strict=True))
        wanted = leaves if self.learnt is None else [*leaves, self.learnt]
        with torch.enable_grad():
            found = self.formula(Known(self.questions, leaves[0], given, counts))
        if not found.requires_grad:
            raise Unfused("nothing of the formula has a derivative")
        shared = rows if self.mean and found.ndim else 1
        each = torch.full_like(found, 1 / shared)
        by = torch.autograd.grad(found, wanted, each, allow_unused=True)
        filled = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, by, strict=True)]
        learnt = None if self.learnt is None else filled.pop()
        return found.detach() / shared, filled, learnt


class Vectors:
    """Rows of raw embeddings as unit vectors.

    As columns they are copied once with unit length, or in bfloat16, or their norms are kept aside
    and folded into the block. Rows are made as they are asked for.
    """

    def __init__(self, raw: Tensor, *, half: bool = False, copied: bool = False) -> None:
        self.norm = _divisors(raw)
        self.raw, self.lean, self.data = raw, not (copied or half), raw
        if half:
            self.data = torch.empty_like(raw, dtype=torch.bfloat16)
            for part in blocks(0, len(raw), 2048):
                self.data[part] = self.rows(part)
        elif copied:
            self.data = raw / self.norm

    def __len__(self) -> int:
        return len(self.raw)

    def rows(self, where: slice | Tensor) -> Tensor:
        if self.data is self.raw or self.data.dtype != self.raw.dtype:
            return self.raw[where] / self.norm[where]
        return self.data[where]

    def against(self, rows: Tensor, out: Tensor, start: int = 0) -> None:
        """Write the products of unit rows with these vectors, from ``start`` on, into ``out``."""
        torch.mm(rows.to(out.dtype), self.data[start:].T, out=out)
        if self.lean:
            out.div_(self.norm[start:].T)

    def push(self, tile: Tensor, start: int = 0) -> Tensor:
        """Return ``tile`` times these unit vectors, from ``start`` on; the tile is used up."""
        if self.lean:
            tile.div_(self.norm[start:].T)
        pushed: Tensor = tile @ self.data[start:]
        return pushed.to(self.raw.dtype)

    def by_raw(self, gradient: Tensor) -> None:
        """Turn the gradient of the unit vectors, in place, into that of the raw ones."""
        for rows in blocks(0, len(self), CACHED):
            self.project(gradient[rows], self.rows(rows), rows)

    def project(self, gradient: Tensor, unit: Tensor, rows: slice) -> None:
        """The same of some unit vectors at hand: what lies along them goes, in place."""
        along = (gradient * unit).sum(dim=1, keepdim=True)
        gradient.addcmul_(unit, along, value=-1).div_(self.norm[rows])


def _divisors(raw: Tensor) -> Tensor:
    """Return what rows are divided by, n x 1: as core.views.unit does, for it rounds only once."""
    norm: Tensor = torch.linalg.vector_norm(raw, dim=1, keepdim=True)
    least = max(1e-12, torch.finfo(raw.dtype).tiny)
    if raw.device.type == "cpu":  # elsewhere looking means waiting
        low, high = (float(x) for x in torch.aminmax(norm))
        if low > least and high < float("inf"):  # no dead row, none beyond the numbers, no NaN
            return norm
    dead = norm <= least
    return norm.masked_fill(norm == torch.inf, torch.nan).masked_fill(dead, torch.inf)


def blocks(first: int, last: int, height: int) -> Iterator[slice]:
    """Yield slices of at most ``height`` from ``first`` to ``last``."""
    for start in range(first, last, height):
        yield slice(start, min(start + height, last))


def total(tile: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Return the sums of a block along ``dim``, added up in ``dtype``."""
    if tile.dtype == dtype:
        return tile.sum(dim=dim)
    # torch would make a copy of the whole block
    parts = [tile[rows].to(dtype).sum(dim=dim) for rows in blocks(0, len(tile), 64)]
    return torch.cat(parts) if dim == 1 else torch.stack(parts).sum(dim=0)


def height(columns: int, dtype: torch.dtype) -> int:
    """The number of rows of a block."""
    most, room = MOST, TILE_BYTES
    if dtype == torch.bfloat16:  # fewer sums in float32, which cost what they do not save
        most, room = 2 * most, 2 * room
    return min(most, max(LEAST, room // (columns * dtype.itemsize)))


class Tiles:
    """Blocks of s / tau in one buffer, in the number format of the products."""

    def __init__(self, like: Tensor, columns: int) -> None:
        self.height = height(columns, like.dtype)
        self._buffer = like.new_empty(0)

    def empty(self, rows: int, columns: int) -> Tensor:
        """Return room for a block; the one before is gone."""
        if self._buffer.numel() < rows * columns:
            self._buffer = self._buffer.new_empty(rows * columns)
        return self._buffer[: rows * columns].view(rows, columns)

    def across(self, rows: Tensor, sources: "list[Vectors]") -> Tensor:
        """Return the products of rows with all columns, one source beside the other."""
        tile, at = self.empty(len(rows), sum(len(x) for x in sources)), 0
        for x in sources:
            x.against(rows, tile[:, at : at + len(x)])
            at += len(x)
        return tile
