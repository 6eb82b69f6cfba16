"""Cuts the two passes over a block of similarities into tiles that fit, and launches the kernels.

``reduce_block`` computes the statistics of its rows and columns, ``spread`` adds the gradients that
its weights cause (see ``triton.tiles``). Rows are processed in panels; the columns of a panel are
shared between programs.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from isotrope_triton import tiles
from isotrope_triton.operands import (
    NOWHERE,
    SHORT,
    Factors,
    RowColumnBlock,
    Rows,
    RowStatistics,
)
from isotrope_triton.tiles import INTERPRETED, NONE

PANEL = 4096  # rows whose sums, and those of the columns at hand, stay in the second-level cache
WAVES = 4  # programs for each multiprocessor: with fewer, some have no work at the end
ROOMY = 200 << 10  # bytes of shared memory from which the large tiles fit

_SUMS = {torch.float32: tl.float32, torch.float64: tl.float64}


class _Kernel(Protocol):
    """A kernel of Triton, launched by the grid of its programs."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]: ...


@dataclass(frozen=True)
class Tiling:
    """How a block is cut, and how a program is run.

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


def reduce_block(
    block: RowColumnBlock,
    kind: tl.constexpr,
    scale: float,
    *,
    shifted: bool = False,
    top: bool = False,
    place: bool = False,
    columns: bool = False,
    taken: Tensor | None = None,
) -> tuple[RowStatistics, RowStatistics | None]:
    """Return the statistics of the rows of a block and, on request, of its columns.

    Args:
        block: the rows and columns to compare.
        kind: the summed function of the similarities, ``NONE`` for no sum.
        scale: the exponent (of 2) of a similarity of 1, or the power.
        shifted: whether sums of exponentials are in units of the largest one of each row.
        top: whether to return the largest exponents.
        place: whether to return their columns, too.
        columns: whether to return the statistics of the columns, too.
        taken: n x t, columns that are excluded for each row besides those that ``block`` excludes.
    """
    rows, others = block.rows, block.columns
    cut = tiling(rows, careful=shifted or place or block.grouped)
    top, summed, device = top or place or shifted, kind is not NONE, rows.data.device
    width = -(-len(others) // cut.columns) * cut.columns if columns else 0
    row_parts, column_parts = [], []
    for panel in _panels(block, cut):
        height = panel.blocks * cut.rows
        row_statistics = torch.empty(2, panel.chunks, height, dtype=rows.sums, device=device)
        at = torch.empty(panel.chunks, height, dtype=torch.int32, device=device)
        # columns before the diagonal of a triangle are compared with no row
        met = torch.zeros(2, panel.blocks, width, dtype=rows.sums, device=device)
        met[0] = -torch.inf
        met_at = torch.full((panel.blocks, width), NOWHERE, dtype=torch.int32, device=device)
        arguments = _arguments(block, cut, panel, scale)
        arguments |= {
            "of_rows": row_statistics,
            "row_places": at,
            "of_columns": met,
            "column_places": met_at,
        }
        arguments |= {"taken": at if taken is None else taken.to(torch.int32).contiguous()}
        arguments |= {"TAKEN": 0 if taken is None else taken.shape[1]}
        arguments |= {
            "SUM": kind,
            "SHIFTED": shifted,
            "TOP": top,
            "PLACE": place,
            "COLUMNS": columns,
        }
        arguments |= {"TERMS": 16 if rows.sums == torch.float64 else 8}
        _launch(tiles.statistics, (panel.blocks, panel.chunks), cut, arguments)
        of_rows, of_columns = (
            RowStatistics(
                x[0] if top else None, x[1] if summed else None, y if place else None, shifted
            )
            for x, y in ((row_statistics, at), (met, met_at))
        )
        row_parts.append(of_rows.reduce().head(len(rows) - panel.first * cut.rows))
        if columns:
            column_parts.append(of_columns.reduce().head(len(others)))
    return RowStatistics.concatenate(row_parts), RowStatistics.join(
        column_parts
    ) if columns else None


def spread(
    block: RowColumnBlock,
    slope: tl.constexpr,
    scale: float,
    rows: Factors | None,
    columns: Factors | None,
    into_rows: Tensor | None,
    into_columns: Tensor | None,
) -> None:
    """Add the gradients that the weights of the pairs cause to the sums of rows and columns.

    A sum is the gradient of the unit vector times the reciprocal of its length (or of the length of
    the vector that ``block.moved`` puts in its place). In a triangle both sums are of the same
    vectors, and both must be passed.

    Args:
        block: the rows and columns that are compared.
        slope: the kind of sum (see ``reduce_block``) whose slopes are the weights.
        scale: as in ``reduce_block``.
        rows: the factors of the rows, if they have any.
        columns: the factors of the columns, if they have any.
        into_rows: n x width; None if the gradients of the rows are not needed.
        into_columns: m x width; None if the gradients of the columns are not needed.
    """
    if not _in_order(block):
        if into_rows is not None or into_columns is not None:
            _spread(block, slope, scale, (rows, columns), (into_rows, into_columns), owned=False)
        return
    if into_rows is not None:
        into = (into_rows, None)
        _spread(block.in_both_orders(), slope, scale, (rows, columns), into, owned=True)
    if into_columns is not None and not block.upper:
        into = (into_columns, None)
        _spread(block.swapped(), slope, scale, (columns, rows), into, owned=True)


def _in_order(block: RowColumnBlock) -> bool:
    """Whether sums have one order; atomic ones do not, nor are there any of float64."""
    return block.rows.sums == torch.float64 or torch.are_deterministic_algorithms_enabled()


def _spread(
    block: RowColumnBlock,
    slope: tl.constexpr,
    scale: float,
    factors: tuple[Factors | None, Factors | None],
    into: tuple[Tensor | None, Tensor | None],
    *,
    owned: bool,
) -> None:
    """Launch the kernel for each panel; ``owned`` rows are added to by one program only."""
    shifted = any(x is not None and x.shift is not None for x in factors)
    rows, width = block.rows, block.rows.width
    cut = tiling(rows, careful=owned or shifted or block.grouped)
    if owned:  # the more of a sum a program holds, the fewer times similarities are formed
        cut = replace(cut, depth=next(x for x in (128, 64, 32, 16) if width % x == 0))
    p, q = block.moved or (rows, block.columns)
    wanted = [x is not None for x in into]
    arguments: dict[str, Any] = {
        "p": TensorDescriptor.from_tensor(p.data, [cut.rows, cut.depth]),
        "q": TensorDescriptor.from_tensor(q.data, [cut.columns, cut.depth]),
        "rp": p.reciprocal,
        "rq": q.reciprocal,
    }
    for name, sums, height in zip(
        ("into_rows", "into_columns"), into, (cut.rows, cut.columns), strict=True
    ):
        like = rows.data if sums is None else sums
        arguments[name] = TensorDescriptor.from_tensor(like, [height, cut.depth])
    for letter, name, factor in zip("uv", ("row_shift", "column_shift"), factors, strict=True):
        arguments[letter] = rows.reciprocal if factor is None else factor.factor
        arguments[name] = (
            arguments[letter] if factor is None or factor.shift is None else factor.shift
        )
        arguments[letter.upper()] = factor is not None
    arguments |= {"SLOPE": slope, "SHIFTED": shifted, "SAME": block.moved is None}
    arguments |= {"ROWS": wanted[0], "COLUMNS": wanted[1], "OWNED": owned}
    arguments |= {"HELD": owned or cut.depth == width, "DEPTH": cut.depth, "STAGES": cut.pushed}
    arguments |= {"BFLOAT16": rows.data.dtype == torch.bfloat16}
    for panel in _panels(block, cut, chunked=not owned):
        grid = (panel.blocks, panel.chunks, width // cut.depth if owned else 1)
        _launch(tiles.spread, grid, cut, _arguments(block, cut, panel, scale) | arguments)


class _Panel(NamedTuple):
    """Some blocks of rows, and how the blocks of columns are shared between programs.

    Attributes:
        first: block of rows.
        blocks: of rows.
        lowest: the first block of columns that any of them is compared with.
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


def _panels(block: RowColumnBlock, cut: Tiling, *, chunked: bool = True) -> Iterator[_Panel]:
    """Cut a block into panels, one launch each."""
    device = block.rows.data.device
    programs = WAVES
    if device.type == "cuda":
        programs *= torch.cuda.get_device_properties(device).multi_processor_count
    count, highest = (
        -(-len(x) // size) for x, size in ((block.rows, cut.rows), (block.columns, cut.columns))
    )
    high = max(1, PANEL // cut.rows)
    for first in range(0, count, high):
        here = min(high, count - first)
        lowest = first * cut.rows // cut.columns if block.upper else 0
        met = highest - lowest
        together = max(1, met * here // programs) if chunked else met
        yield _Panel(first, here, lowest, highest, -(-met // together), together)


def _arguments(block: RowColumnBlock, cut: Tiling, panel: _Panel, scale: float) -> dict[str, Any]:
    """Return the arguments that both kernels have."""
    rows, columns = block.rows, block.columns
    groups = (rows.groups, columns.groups) if block.grouped else (rows.reciprocal,) * 2
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
        "offset": block.offset or 0,
        "first": panel.first,
        "lowest": panel.lowest,
        "highest": panel.highest,
        "blocks": panel.together,
        "WIDTH": rows.width,
        "SLICE": cut.slice,
        "BLOCK_M": cut.rows,
        "BLOCK_N": cut.columns,
        "ACC": _SUMS[rows.sums],
        "DIAGONAL": block.offset is not None,
        "UPPER": block.upper,
        "GROUPED": block.grouped,
        "PRECISION": _precision(rows.data.dtype),
        "INTERPRETED": INTERPRETED,
    }


def _launch(kernel: _Kernel, grid: tuple[int, ...], cut: Tiling, arguments: dict[str, Any]) -> None:
    device = arguments["rx"].device
    here = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    with here:  # a kernel starts on the current device
        kernel[grid](**arguments, num_warps=cut.warps, num_stages=cut.stages)


def tiling(rows: Rows, *, careful: bool) -> Tiling:
    """Choose tiles that fit, by what the compiler says for sm_90, sm_89 and sm_80; none was timed.

    Args:
        rows: of the block.
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
