"""Meetings: the rows of one matrix against those of another, launched as kernels.

``Rows`` are vectors as the kernels want them, ``Meeting`` says who meets whom and which pairs are
no negatives, ``reduced`` and ``spread`` are the two passes (see ``triton_tiles``). Any number of
rows and any d: rows are padded with zeros to whole slices of d, what lies beyond the last row is
masked.

Excluded pairs: ``offset``, the column of a row's own positive (or itself); equal ``groups``; for
further negatives nothing. A meeting that excludes everything is not held.

Several GPUs. *Gathered*: each process holds its n anchors and gathers the m = pn keys; the meeting
is n x m with the offset of the process, columns' sums are of all keys and go back by the gather's
own reduce-scatter. 2 m d numbers are received and as many sent. This is what ``Views.offset`` is
for, and runs with one GPU and with several. *Ring*, where m keys do not fit: anchors stay, blocks
of keys travel from process to process, p meetings of n x n in each of the two passes, with the
block's statistics of columns (first pass) or sums of gradients (second pass) in tow. A ``Found``
can be joined with another in any order, gradients add up: nothing in the kernels changes, and the
next block is on its way while one is met, for 8 n m d operations take longer than 4 n d numbers.
Symmetric objectives need no more: statistics of columns come home with their block after the first
round. It is designed, not built.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from isotrope.kernels import triton_tiles
from isotrope.kernels.sweeps import blocks
from isotrope.kernels.triton_tiles import EXP, INTERPRETED, LAST, NONE, POWER, SOFTPLUS

__all__ = [
    "EXP",
    "NONE",
    "NOWHERE",
    "PASSED",
    "POWER",
    "SOFTPLUS",
    "Factors",
    "Found",
    "Meeting",
    "Rows",
    "finite",
    "reduced",
    "spread",
]

NOWHERE: int = LAST.value
PANEL = 4096  # rows whose sums, and those of the columns at hand, stay in the second-level cache
WAVES = 4  # programs for each multiprocessor: with fewer, some have no work at the end
ROOMY = 200 << 10  # bytes of shared memory from which the large tiles fit
SHORT = 128  # numbers of a vector that is loaded once for a tile
PASSED = 8192  # rows of embeddings that are passed over at a time, number by number
LEAST = 16  # numbers of a side of what is multiplied

_SUMS = {torch.float32: tl.float32, torch.float64: tl.float64}


@dataclass(frozen=True)
class Tiling:
    """How a meeting is cut, and how a program is run.

    Attributes:
        rows: of a tile, a power of two from 16 on.
        columns: the same.
        slice: numbers of each vector that are multiplied at a time for similarities.
        depth: numbers of each sum that are added at a time.
        warps: of a program.
        stages: slices on their way at once.
        pushed: the same of what is multiplied with weights.
    """

    rows: int
    columns: int
    slice: int
    depth: int
    warps: int = 8
    stages: int = 3
    pushed: int = 1


class Rows:
    """Vectors as the kernels meet them.

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
        given: bool = False,
    ) -> None:
        """Make the kernels' copy.

        Args:
            raw: n x d embeddings.
            groups: n integers or None.
            given: they go in as they are, of unit length or not.
        """
        d = raw.shape[1]
        self.raw, self.groups = raw, None if groups is None else groups.to(torch.int64)
        self.sums = torch.promote_types(raw.dtype, torch.float32)
        self.width = max(LEAST, 1 << (d - 1).bit_length()) if d <= SHORT else -(-d // 64) * 64
        norm = torch.linalg.vector_norm(raw, dim=1, dtype=torch.float64)
        one = torch.ones_like(norm)
        if given:
            power, self.exact = one, one + 0 * norm
        else:  # as core.views.unit has it: too short is dead, too long is no number
            dead = norm <= max(1e-12, torch.finfo(self.sums).tiny)
            norm = norm.masked_fill(norm > torch.finfo(self.sums).max ** 0.5, torch.nan)
            exponent = torch.frexp(norm.where(norm.isfinite() & ~dead, 1.0))[1]
            power = torch.ldexp(one, -exponent)
            self.exact = (norm * power).masked_fill(dead, torch.inf).reciprocal()
        self.power, self.reciprocal = power.to(self.sums), self.exact.to(self.sums)
        self.data = torch.zeros((len(raw), self.width), dtype=raw.dtype, device=raw.device)
        # a power of two changes no digit
        self.data[:, :d] = raw if given else raw * self.power[:, None].to(raw.dtype)

    def __len__(self) -> int:
        return len(self.raw)

    def numbers(self, where: slice | Tensor) -> Tensor:
        """Some rows of ``data`` in the format of sums."""
        return self.data[where].to(self.sums)

    def unit(self, where: slice | Tensor) -> Tensor:
        """Some unit vectors, of width numbers."""
        found: Tensor = self.numbers(where) * self.reciprocal[where, None]
        return found

    def by_raw(self, sums: Tensor) -> Tensor:
        """Turn sums (see ``spread``) into the gradient of ``raw``; they are used up."""
        for rows in blocks(0, len(self), PASSED):
            x, part = self.numbers(rows), sums[rows]
            square = (x * x).sum(dim=1, keepdim=True)  # not what the reciprocal is rounded to
            along = (part * x).sum(dim=1, keepdim=True) / square.where(square > 0, 1.0)
            part.addcmul_(x, along, value=-1).mul_(self.power[rows, None])
        return sums[:, : self.raw.shape[1]].to(self.raw.dtype).contiguous()

    def by_unit(self, sums: Tensor) -> Tensor:
        """Turn sums into what the unit vectors received; 0 for a row without direction."""
        by = self.reciprocal.masked_fill(self.reciprocal == 0, torch.inf)
        found: Tensor = sums[:, : self.raw.shape[1]] / by[:, None]
        return found

    def zeros(self) -> Tensor:
        """Sums of nothing, n x width."""
        return torch.zeros((len(self), self.width), dtype=self.sums, device=self.raw.device)


@dataclass(frozen=True)
class Meeting:
    """Rows, the columns that they meet, and which pairs are no negatives.

    Attributes:
        rows: one side.
        columns: the other; the same object where a view meets itself.
        offset: the column that is no negative of row 0; of row 1 it is the next. None without any.
        upper: of a view with itself, i < j only: what a row finds among the columns behind it and
            what it finds as a column before them belong together.
        moved: what pushes the columns and what pushes the rows, if not what is compared.
    """

    rows: Rows
    columns: Rows
    offset: int | None = None
    upper: bool = False
    moved: tuple[Rows, Rows] | None = None

    def swapped(self) -> "Meeting":
        """The columns as rows."""
        offset = None if self.offset is None else -self.offset
        moved = None if self.moved is None else self.moved[::-1]
        return replace(self, rows=self.columns, columns=self.rows, offset=offset, moved=moved)

    def whole(self) -> "Meeting":
        """The same with each pair in both orders."""
        return replace(self, upper=False, offset=0) if self.upper else self

    @property
    def grouped(self) -> bool:
        """Whether equal groups are no negatives."""
        return self.rows.groups is not None and self.columns.groups is not None


class Factors(NamedTuple):
    """What the weights of a side are: slope times ``factor``, of an exponent less ``shift``.

    Attributes:
        factor: n.
        shift: n; None where exponents need none.
    """

    factor: Tensor
    shift: Tensor | None = None


@dataclass(frozen=True)
class Found:
    """What each row found among some columns.

    Attributes:
        top: n, the largest exponent; None if nobody asked.
        mass: n, the sum over the negatives; if ``shifted``, in units of 2^top.
        place: n, the first column with the largest exponent, ``NOWHERE`` if there is none.
        shifted: see ``mass``.
    """

    top: Tensor | None
    mass: Tensor | None
    place: Tensor | None
    shifted: bool = False

    @classmethod
    def nothing(cls, rows: Rows) -> "Found":
        """What rows find where there are no columns."""
        none = torch.zeros_like(rows.reciprocal)
        top = torch.full_like(none, -torch.inf)
        return cls(top, none, torch.full_like(none, NOWHERE, dtype=torch.int32), shifted=True)

    @classmethod
    def joined(cls, parts: "Sequence[Found]") -> "Found":
        """What rows found among the columns of all parts."""
        return _map(torch.stack, parts).reduced()

    @classmethod
    def behind(cls, parts: "Sequence[Found]") -> "Found":
        """What the rows of all parts found, one behind the other."""
        return _map(torch.cat, parts)

    def reduced(self) -> "Found":
        """The findings of k x n, joined to n."""
        top, mass, place = self.top, self.mass, self.place
        if self.top is not None:
            top = self.top.amax(dim=0)
            if mass is not None and self.shifted:
                mass = mass * torch.exp2(self.top - finite(top))
            if place is not None:
                place = place.where(self.top == top, NOWHERE).amin(dim=0)
                place = place.masked_fill(top == -torch.inf, NOWHERE)
        return Found(top, None if mass is None else mass.sum(dim=0), place, self.shifted)

    @property
    def tops(self) -> Tensor:
        """The largest exponents, which somebody asked for."""
        assert self.top is not None
        return self.top

    def factors(self, by: Tensor, whole: "Found", *, of_logarithm: bool = True) -> Factors:
        """Turn derivatives by what rows found among all columns into factors of slopes here.

        Args:
            by: the derivatives.
            whole: what was found among all columns, these among them.
            of_logarithm: they are by the logarithm of the sum.
        """
        if of_logarithm:
            assert whole.mass is not None
            by = torch.where(whole.mass == 0, 0.0, by / whole.mass)
        if not self.shifted:
            return Factors(by)
        return Factors(by * torch.exp2(self.tops - finite(whole.tops)), finite(self.tops))

    def first(self, count: int) -> "Found":
        """What the first rows found."""
        return _map(lambda x: x[0][..., :count], [self])

    def counted_from(self, first: int) -> "Found":
        """The same where the first column has this number."""
        if self.place is None:
            return self
        return replace(self, place=self.place.where(self.place == NOWHERE, self.place + first))


def _map(function: Any, parts: Sequence[Found]) -> Found:  # noqa: ANN401 - of lists of tensors
    """Apply a function to the tops, the masses and the places of all parts."""
    columns = zip(*((x.top, x.mass, x.place) for x in parts), strict=True)
    top, mass, place = (None if x[0] is None else function(x) for x in columns)
    return Found(top, mass, place, parts[0].shifted)


def finite(top: Tensor) -> Tensor:
    """0 in place of the maximum of nothing: e^{-inf - -inf} is no number."""
    return top.masked_fill(top == -torch.inf, 0.0)


def reduced(
    meeting: Meeting,
    kind: tl.constexpr,
    scale: float,
    *,
    shifted: bool = False,
    top: bool = False,
    place: bool = False,
    columns: bool = False,
    taken: Tensor | None = None,
) -> tuple[Found, Found | None]:
    """Return what rows found and, on request, what columns found.

    Args:
        meeting: who meets whom.
        kind: what is summed, ``NONE`` for nothing.
        scale: the exponent (of 2) of a similarity of 1, or the power.
        shifted: sums of exponentials are in units of the largest of each row.
        top: the largest exponents are wanted.
        place: and where they are.
        columns: what columns found is wanted, too.
        taken: n x t, columns that do not count for a row, besides.
    """
    rows, others = meeting.rows, meeting.columns
    cut = tiling(rows, careful=shifted or place or meeting.grouped)
    top, summed, device = top or place or shifted, kind is not NONE, rows.data.device
    width = -(-len(others) // cut.columns) * cut.columns if columns else 0
    own, theirs = [], []
    for panel in _panels(meeting, cut):
        height = panel.blocks * cut.rows
        found = torch.empty(2, panel.chunks, height, dtype=rows.sums, device=device)
        at = torch.empty(panel.chunks, height, dtype=torch.int32, device=device)
        # columns before the diagonal of a triangle meet no one
        met = torch.zeros(2, panel.blocks, width, dtype=rows.sums, device=device)
        met[0] = -torch.inf
        met_at = torch.full((panel.blocks, width), NOWHERE, dtype=torch.int32, device=device)
        given = _given(meeting, cut, panel, scale)
        given |= {"of_rows": found, "row_places": at, "of_columns": met, "column_places": met_at}
        given |= {"taken": at if taken is None else taken.to(torch.int32).contiguous()}
        given |= {"TAKEN": 0 if taken is None else taken.shape[1]}
        given |= {"SUM": kind, "SHIFTED": shifted, "TOP": top, "PLACE": place, "COLUMNS": columns}
        given |= {"TERMS": 16 if rows.sums == torch.float64 else 8}
        _launch(triton_tiles.statistics, (panel.blocks, panel.chunks), cut, given)
        of_rows, of_columns = (
            Found(x[0] if top else None, x[1] if summed else None, y if place else None, shifted)
            for x, y in ((found, at), (met, met_at))
        )
        own.append(of_rows.reduced().first(len(rows) - panel.first * cut.rows))
        if columns:
            theirs.append(of_columns.reduced().first(len(others)))
    return Found.behind(own), Found.joined(theirs) if columns else None


def spread(
    meeting: Meeting,
    slope: tl.constexpr,
    scale: float,
    rows: Factors | None,
    columns: Factors | None,
    into_rows: Tensor | None,
    into_columns: Tensor | None,
) -> None:
    """Add what the weights of the pairs do to the sums of rows and columns.

    A sum is what the unit vector receives times the reciprocal (of what moves, where others do). In
    a triangle both sums are of the same vectors, and both are given.

    Args:
        meeting: who meets whom.
        slope: of what the weights are the slope, as it was summed.
        scale: as in ``reduced``.
        rows: the factors of the rows, if they have some.
        columns: those of the columns.
        into_rows: n x width, or None where they are not wanted.
        into_columns: m x width.
    """
    if not _in_order(meeting):
        if into_rows is not None or into_columns is not None:
            _spread(meeting, slope, scale, (rows, columns), (into_rows, into_columns), owned=False)
        return
    if into_rows is not None:
        into = (into_rows, None)
        _spread(meeting.whole(), slope, scale, (rows, columns), into, owned=True)
    if into_columns is not None and not meeting.upper:
        into = (into_columns, None)
        _spread(meeting.swapped(), slope, scale, (columns, rows), into, owned=True)


def _in_order(meeting: Meeting) -> bool:
    """Whether sums have one order; atomic ones do not, nor are there any of float64."""
    return meeting.rows.sums == torch.float64 or torch.are_deterministic_algorithms_enabled()


def _spread(
    meeting: Meeting,
    slope: tl.constexpr,
    scale: float,
    factors: tuple[Factors | None, Factors | None],
    into: tuple[Tensor | None, Tensor | None],
    *,
    owned: bool,
) -> None:
    """Launch the kernel for each panel; ``owned`` rows are added to by one program only."""
    shifted = any(x is not None and x.shift is not None for x in factors)
    rows, width = meeting.rows, meeting.rows.width
    cut = tiling(rows, careful=owned or shifted or meeting.grouped)
    if owned:  # the more of a sum a program holds, the fewer times similarities are formed
        cut = replace(cut, depth=next(x for x in (128, 64, 32, 16) if width % x == 0))
    p, q = meeting.moved or (rows, meeting.columns)
    wanted = [x is not None for x in into]
    given: dict[str, Any] = {
        "p": TensorDescriptor.from_tensor(p.data, [cut.rows, cut.depth]),
        "q": TensorDescriptor.from_tensor(q.data, [cut.columns, cut.depth]),
        "rp": p.reciprocal,
        "rq": q.reciprocal,
    }
    for name, sums, height in zip(
        ("into_rows", "into_columns"), into, (cut.rows, cut.columns), strict=True
    ):
        like = rows.data if sums is None else sums
        given[name] = TensorDescriptor.from_tensor(like, [height, cut.depth])
    for letter, name, one in zip("uv", ("row_shift", "column_shift"), factors, strict=True):
        given[letter] = rows.reciprocal if one is None else one.factor
        given[name] = given[letter] if one is None or one.shift is None else one.shift
        given[letter.upper()] = one is not None
    given |= {"SLOPE": slope, "SHIFTED": shifted, "SAME": meeting.moved is None}
    given |= {"ROWS": wanted[0], "COLUMNS": wanted[1], "OWNED": owned}
    given |= {"HELD": owned or cut.depth == width, "DEPTH": cut.depth, "STAGES": cut.pushed}
    given |= {"BFLOAT16": rows.data.dtype == torch.bfloat16}
    for panel in _panels(meeting, cut, chunked=not owned):
        grid = (panel.blocks, panel.chunks, width // cut.depth if owned else 1)
        _launch(triton_tiles.spread, grid, cut, _given(meeting, cut, panel, scale) | given)


class _Panel(NamedTuple):
    """Some blocks of rows, and how the blocks of columns are shared between programs.

    Attributes:
        first: block of rows.
        blocks: of rows.
        lowest: the first block of columns that any of them meets.
        highest: the one after the last.
        chunks: programs for each block of rows.
        together: blocks of columns of a program.
    """

    first: int
    blocks: int
    lowest: int
    highest: int
    chunks: int
    together: int


def _panels(meeting: Meeting, cut: Tiling, *, chunked: bool = True) -> Iterator[_Panel]:
    """Cut a meeting into launches."""
    device = meeting.rows.data.device
    programs = WAVES
    if device.type == "cuda":
        programs *= torch.cuda.get_device_properties(device).multi_processor_count
    count, highest = (
        -(-len(x) // side) for x, side in ((meeting.rows, cut.rows), (meeting.columns, cut.columns))
    )
    high = max(1, PANEL // cut.rows)
    for first in range(0, count, high):
        here = min(high, count - first)
        lowest = first * cut.rows // cut.columns if meeting.upper else 0
        met = highest - lowest
        together = max(1, met * here // programs) if chunked else met
        yield _Panel(first, here, lowest, highest, -(-met // together), together)


def _given(meeting: Meeting, cut: Tiling, panel: _Panel, scale: float) -> dict[str, Any]:
    """What both kernels are told."""
    rows, columns = meeting.rows, meeting.columns
    groups = (rows.groups, columns.groups) if meeting.grouped else (rows.reciprocal,) * 2
    return {
        "x": TensorDescriptor.from_tensor(rows.data, [cut.rows, cut.slice]),
        "y": TensorDescriptor.from_tensor(columns.data, [cut.columns, cut.slice]),
        "rx": rows.reciprocal,
        "ry": columns.reciprocal,
        "gx": groups[0],
        "gy": groups[1],
        "scale": torch.full((1,), scale, dtype=rows.sums, device=rows.data.device),
        "n": len(rows),
        "m": len(columns),
        "offset": meeting.offset or 0,
        "first": panel.first,
        "lowest": panel.lowest,
        "highest": panel.highest,
        "blocks": panel.together,
        "WIDTH": rows.width,
        "SLICE": cut.slice,
        "BLOCK_M": cut.rows,
        "BLOCK_N": cut.columns,
        "ACC": _SUMS[rows.sums],
        "DIAGONAL": meeting.offset is not None,
        "UPPER": meeting.upper,
        "GROUPED": meeting.grouped,
        "PRECISION": _precision(rows.data.dtype),
        "INTERPRETED": INTERPRETED,
    }


def _launch(kernel: Any, grid: tuple[int, ...], cut: Tiling, given: dict[str, Any]) -> None:  # noqa: ANN401
    device = given["rx"].device
    here = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    with here:  # a kernel starts on the current device
        kernel[grid](**given, num_warps=cut.warps, num_stages=cut.stages)


def tiling(rows: Rows, *, careful: bool) -> Tiling:
    """Choose tiles that fit, by what the compiler says for sm_90, sm_89 and sm_80; none was timed.

    Args:
        rows: of the meeting.
        careful: with shifts, groups or places, whose numbers need registers too.
    """
    dtype, width, room = rows.data.dtype, rows.width, ROOMY
    if rows.data.device.type == "cuda":
        properties = torch.cuda.get_device_properties(rows.data.device)
        room = getattr(properties, "shared_memory_per_block_optin", 0)
    if dtype == torch.float64:
        cut = Tiling(32, 32, 16, 16, warps=4, stages=2)
    elif dtype == torch.float32 and _precision(dtype) == "ieee":  # without tensor cores
        cut = Tiling(64, 64, 32, 32, stages=2)
    elif room < ROOMY:
        cut = Tiling(64, 64, 32, 32, warps=4, stages=2)
    elif dtype == torch.float32:
        cut = Tiling(128, 128, 32, 32)
    elif width <= SHORT:
        cut = Tiling(128, 128, width, width, stages=2)
    else:
        cut = Tiling(128, 128 if careful else 256, 64, 64)
    return replace(cut, slice=min(cut.slice, width), depth=min(cut.depth, width))


def _precision(dtype: torch.dtype) -> str:
    """What float32 factors may be rounded to: what torch may round its own to."""
    exact = dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
    return "ieee" if exact else "tf32"
