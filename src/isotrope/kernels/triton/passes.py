"""The two passes over a meeting: cut into tiles that fit, and launched as kernels.

``reduced`` collects what rows and columns find, ``spread`` adds what the weights do to them (see
``triton.tiles``). Rows go by in panels; the columns of a panel are shared between programs.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from isotrope.kernels.triton import tiles
from isotrope.kernels.triton.operands import (
    NOWHERE,
    SHORT,
    Factors,
    RowColumnBlock,
    Rows,
    RowStatistics,
)
from isotrope.kernels.triton.tiles import INTERPRETED, NONE

__all__ = ["reduced", "spread"]

PANEL = 4096  # rows whose sums, and those of the columns at hand, stay in the second-level cache
WAVES = 4  # programs for each multiprocessor: with fewer, some have no work at the end
ROOMY = 200 << 10  # bytes of shared memory from which the large tiles fit

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


def reduced(
    meeting: RowColumnBlock,
    kind: tl.constexpr,
    scale: float,
    *,
    shifted: bool = False,
    top: bool = False,
    place: bool = False,
    columns: bool = False,
    taken: Tensor | None = None,
) -> tuple[RowStatistics, RowStatistics | None]:
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
        _launch(tiles.statistics, (panel.blocks, panel.chunks), cut, given)
        of_rows, of_columns = (
            RowStatistics(
                x[0] if top else None, x[1] if summed else None, y if place else None, shifted
            )
            for x, y in ((found, at), (met, met_at))
        )
        own.append(of_rows.reduced().first(len(rows) - panel.first * cut.rows))
        if columns:
            theirs.append(of_columns.reduced().first(len(others)))
    return RowStatistics.behind(own), RowStatistics.joined(theirs) if columns else None


def spread(
    meeting: RowColumnBlock,
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


def _in_order(meeting: RowColumnBlock) -> bool:
    """Whether sums have one order; atomic ones do not, nor are there any of float64."""
    return meeting.rows.sums == torch.float64 or torch.are_deterministic_algorithms_enabled()


def _spread(
    meeting: RowColumnBlock,
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
        _launch(tiles.spread, grid, cut, _given(meeting, cut, panel, scale) | given)


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


def _panels(meeting: RowColumnBlock, cut: Tiling, *, chunked: bool = True) -> Iterator[_Panel]:
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


def _given(meeting: RowColumnBlock, cut: Tiling, panel: _Panel, scale: float) -> dict[str, Any]:
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
    dtype, width = rows.data.dtype, rows.width
    if dtype == torch.float64:
        cut = Tiling(32, 32, 16, 16, warps=4, stages=2)
    elif dtype == torch.float32 and _precision(dtype) == "ieee":  # without tensor cores
        cut = Tiling(64, 64, 32, 32, stages=2)
    elif _room(rows.data.device) < ROOMY:
        cut = Tiling(64, 64, 32, 32, warps=4, stages=2)
    elif dtype == torch.float32:
        cut = Tiling(128, 128, 32, 32)
    elif width <= SHORT:
        cut = Tiling(128, 128, width, width, stages=2)
    else:
        cut = Tiling(128, 128 if careful else 256, 64, 64)
    return replace(cut, slice=min(cut.slice, width), depth=min(cut.depth, width))


def _room(device: torch.device) -> int:
    """Bytes of shared memory that a program may have."""
    if device.type != "cuda":
        return ROOMY
    return getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0)


def _precision(dtype: torch.dtype) -> str:
    """What float32 factors may be rounded to: what torch may round its own to."""
    exact = dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
    return "ieee" if exact else "tf32"
