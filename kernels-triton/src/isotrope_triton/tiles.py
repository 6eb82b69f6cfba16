"""The two kernels of the triton backend, whose tiles of similarities never leave the GPU's cores.

All pairwise work is done on *blocks*: the rows of one matrix against the rows of another, or a view
against itself. A program forms tiles of one block, reduces them or multiplies with them, and
discards them; device memory holds vectors of length n, the embeddings and their gradients.

- ``statistics`` reduces: of each row, and in the same pass of each column, the sum of e^{s/tau}, of
  log(1 + e^{s/tau}) or of s^p over the negatives, the largest similarity and where it is. Each
  program writes what it found of its rows and columns; the sums of programs are added afterwards,
  so that nothing depends on their order. 2 n m d floating-point operations.
- ``spread`` forms the tiles again, turns them into weights W_ij = slope(s_ij) (u_i + v_j), where u
  and v are what the formula's derivatives make of rows and columns, and multiplies them with the
  columns (gradients of the rows) and, transposed, with the rows (gradients of the columns). 6 n m
  d: formed once for both.

Together 8 n m d for one direction and 8 for both, since rows and columns share both passes. A view
against itself is symmetric, so a block may be ``UPPER``: pairs i < j only, each of which serves its
row and its column, 4 n^2 d. The 2N views of NT-Xent are one block of both views and one within each
view: 8 + 4 + 4 = 16 n^2 d, which are 4 M^2 d of M = 2n rows. Less than 8 in one direction would
need a whole row of tiles at a time, which no core holds.

Sums of gradients. A program compares some rows with several tiles of columns. Other programs add to
the sums of the same columns at the same time, so they are added atomically (a reduction in the
second-level cache, ``cp.reduce`` where there is one). So is what it does to the rows, unless d is
so small that the rows' sums stay in registers over all its columns (``HELD``). Atomic sums of
float32 depend on the order in their last bits. Where that is not wanted (``OWNED``:
torch.use_deterministic_algorithms, float64) a program holds ``DEPTH`` numbers of its rows' sums
over all columns and no one else adds to them; columns become the rows of a second launch. That
costs similarities once more for every ``DEPTH``.

Numbers. Factors are bfloat16 or float32 (float64, to check with), sums float32 (float64). Vectors
come with the length of a power of two less than 1 and the reciprocal of it, which is multiplied
into the tile: a similarity of bfloat16 vectors is exact but for the summation. Exponents are powers
of 2. Where e^{s/tau} fits float32 whatever s is, nothing is shifted; else each row and column has
its own maximum, found on the way (``SHIFTED``), and a weight is at most its u or v. A weight is
rounded to the format of the vectors before it is multiplied: of bfloat16 by up to 1/512 of itself,
at random. Rows and columns beyond the last are zeros with the reciprocal 0.

Traffic. A spread tile of M x N pairs reads (M + N) d numbers twice and adds (M + N) d sums once:
with M x N = 128 x 256 and bfloat16 64 operations for each byte of the second-level cache, twice
what device memory would have to deliver without it. Rows go by in panels of 4,096 whose sums stay
in that cache.

The interpreter (``TRITON_INTERPRET=1``) multiplies the bits of bfloat16 instead of its values, cuts
instead of rounding, and has no reductions in memory: ``INTERPRETED`` does these three in its own
way.
"""

import math

import triton
import triton.language as tl

INTERPRETED = triton.knobs.runtime.interpret

# what similarities are turned into and summed; the slope of what is summed is the weight
NONE, EXP, SOFTPLUS, POWER = (tl.constexpr(kind) for kind in range(4))

LAST = tl.constexpr(2**31 - 1)  # the place of a column that is not there
FLOOR = tl.constexpr(1e-4)  # the least similarity that is raised to a power
LN2 = tl.constexpr(math.log(2))


@triton.jit
def _dot(a, b, acc, PRECISION: tl.constexpr, INTERPRETED: tl.constexpr):
    if INTERPRETED:
        a = a.to(acc.dtype)
        b = b.to(acc.dtype)
    return tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=acc.dtype)


@triton.jit
def _rounded(w, INTERPRETED: tl.constexpr):
    """In bfloat16; interpreted, the nearest such number in the format of w."""
    if INTERPRETED:
        far = w * 65537.0
        w = far - (far - w)
    else:
        w = w.to(tl.bfloat16)
    return w


@triton.jit
def _add(into, row, at, part, OWNED: tl.constexpr, INTERPRETED: tl.constexpr):
    if OWNED or INTERPRETED:
        into.store([row, at], into.load([row, at]) + part)
    else:
        into.atomic_add([row, at], part)


@triton.jit
def _products(x, y, row, column, acc, WIDTH, SLICE, PRECISION, INTERPRETED):
    for at in range(0, WIDTH, SLICE):
        acc = _dot(x.load([row, at]), y.load([column, at]).T, acc, PRECISION, INTERPRETED)
    return acc


@triton.jit
def _exponents(dots, rx, ry, scale, KIND: tl.constexpr):
    """The power of 2 that is the weight of a similarity."""
    if KIND == POWER:
        s = dots * rx[:, None] * ry[None, :]
        z = scale * tl.log2(tl.maximum(s, FLOOR, propagate_nan=tl.PropagateNan.ALL))
    else:
        z = dots * (rx * scale)[:, None] * ry[None, :]
    return z


@triton.jit
def _but_excluded(
    z,
    rows,
    columns,
    gx,
    gy,
    n,
    m,
    offset,
    DIAGONAL: tl.constexpr,
    UPPER: tl.constexpr,
    GROUPED: tl.constexpr,
):
    out = (rows[:, None] >= n) | (columns[None, :] >= m)
    if DIAGONAL:
        out |= columns[None, :] == rows[:, None] + offset
    if UPPER:
        out |= columns[None, :] <= rows[:, None]
    if GROUPED:
        own = tl.load(gx + rows, mask=rows < n, other=0)
        out |= own[:, None] == tl.load(gy + columns, mask=columns < m, other=0)[None, :]
    return tl.where(out, float("-inf"), z)


@triton.jit
def _softplus(z, TERMS: tl.constexpr):
    """The logarithm of 1 + 2^z, exact to the last bits however small it is."""
    small = tl.exp2(-tl.abs(z))
    t = small / (2 + small)  # log(1 + x) = 2 (t + t^3 / 3 + t^5 / 5 + ...), t <= 1/3
    series = tl.full(z.shape, 1 / (2 * TERMS + 1), z.dtype)
    for k in tl.static_range(TERMS):
        series = series * t * t + 1 / (2 * (TERMS - 1 - k) + 1)
    return tl.maximum(z, 0.0) * LN2 + 2 * t * series


@triton.jit
def _best(z, columns, AXIS: tl.constexpr):
    """The largest of each row (or column) of a tile, and the first place where it is."""
    top = tl.max(z, AXIS)
    at = tl.expand_dims(columns, 1 - AXIS)
    return top, tl.min(tl.where(z == tl.expand_dims(top, AXIS), at, LAST), AXIS)


@triton.jit
def _sum(z, shift, AXIS: tl.constexpr, SUM: tl.constexpr, SHIFTED: tl.constexpr, TERMS):
    if SHIFTED:
        y = tl.exp2(z - tl.expand_dims(shift, AXIS))
    elif SUM == SOFTPLUS:
        y = _softplus(z, TERMS)
    else:
        y = tl.exp2(z)
    return tl.sum(y, AXIS)


@triton.jit
def _reciprocals(lengths, rows, n, same, SAME: tl.constexpr):
    """Return the reciprocals of the lengths of what moves: those at hand if it is the SAME."""
    reciprocals = same
    if not SAME:
        reciprocals = tl.load(lengths + rows, mask=rows < n, other=0.0)
    return reciprocals


@triton.jit
def _weights(
    w,
    z,
    own,
    shift,
    rm,
    rmj,
    v,
    column_shift,
    columns,
    m,
    SLOPE: tl.constexpr,
    SHIFTED: tl.constexpr,
    U: tl.constexpr,
    V: tl.constexpr,
):
    """Return the weights of a tile, slope(s_ij) (u_i + v_j), in place of the zeros ``w``."""
    if U:
        w = own[:, None] * rmj[None, :]
        if SHIFTED:
            w *= tl.exp2(z - shift[:, None])
    if V:
        other = tl.load(v + columns, mask=columns < m, other=0.0) * rmj
        more = rm[:, None] * other[None, :]
        if SHIFTED:
            top = tl.load(column_shift + columns, mask=columns < m, other=0.0)
            more *= tl.exp2(z - top[None, :])
        w += more
    if SLOPE == SOFTPLUS:
        w /= 1 + tl.exp2(-z)
    elif not SHIFTED:
        w *= tl.exp2(z)
    return w


@triton.jit
def statistics(
    x,
    y,
    rx,
    ry,
    gx,
    gy,
    taken,
    of_rows,
    of_columns,
    row_places,
    column_places,
    scale,
    n,
    m,
    offset,
    first,
    lowest,
    highest,
    blocks,
    WIDTH: tl.constexpr,
    SLICE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ACC: tl.constexpr,
    TERMS: tl.constexpr,
    SUM: tl.constexpr,
    SHIFTED: tl.constexpr,
    TOP: tl.constexpr,
    PLACE: tl.constexpr,
    COLUMNS: tl.constexpr,
    DIAGONAL: tl.constexpr,
    UPPER: tl.constexpr,
    GROUPED: tl.constexpr,
    TAKEN: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Reduce a block of rows against some blocks of columns, and each of these against the rows.

    Args:
        x, y: descriptors of rows and columns, BLOCK x SLICE.
        rx, ry: reciprocals of their lengths.
        gx, gy: their groups.
        taken: n x TAKEN, columns that are excluded for a row, besides.
        of_rows: 2 x programs(1) x rows of all programs(0): maxima and sums.
        of_columns: 2 x programs(0) x columns of all blocks: the same.
        row_places, column_places: of the maxima, without the leading 2.
        scale: one number, the exponent of a similarity of 1.
        n, m: numbers of rows and columns.
        offset: column of row 0 that is excluded, of row 1 the next, and so on.
        first: the block of rows of program 0.
        lowest, highest: the first block of columns, and the one after the last.
        blocks: of columns, for each program.
    """
    block = first + tl.program_id(0)
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    start = lowest + tl.program_id(1) * blocks
    stop = tl.minimum(start + blocks, highest)
    if UPPER:
        start = tl.maximum(start, block * BLOCK_M // BLOCK_N)
    c = tl.load(scale)
    r = tl.load(rx + rows, mask=rows < n, other=0.0)
    top = tl.full([BLOCK_M], float("-inf"), ACC)
    place = tl.full([BLOCK_M], LAST, tl.int32)
    mass = tl.zeros([BLOCK_M], ACC)
    width = highest * BLOCK_N
    for b in range(start, stop):
        column = b * BLOCK_N
        columns = column + tl.arange(0, BLOCK_N)
        dots = tl.zeros([BLOCK_M, BLOCK_N], ACC)
        dots = _products(x, y, block * BLOCK_M, column, dots, WIDTH, SLICE, PRECISION, INTERPRETED)
        rj = tl.load(ry + columns, mask=columns < m, other=0.0)
        z = _exponents(dots, r, rj, c, SUM)
        z = _but_excluded(z, rows, columns, gx, gy, n, m, offset, DIAGONAL, UPPER, GROUPED)
        for k in tl.static_range(TAKEN):
            gone = tl.load(taken + rows * TAKEN + k, mask=rows < n, other=-1)
            z = tl.where(columns[None, :] == gone[:, None], float("-inf"), z)
        shift = top
        if TOP or SHIFTED:
            here, at = _best(z, columns, 1)
            if PLACE:
                place = tl.where(here > top, at, place)
            highest_yet = tl.maximum(top, here)
            shift = tl.where(highest_yet == float("-inf"), 0.0, highest_yet)
            if SHIFTED:
                mass *= tl.exp2(top - shift)
            top = highest_yet
        if SUM != NONE:
            mass += _sum(z, shift, 1, SUM, SHIFTED, TERMS)
        if COLUMNS:
            into = of_columns + tl.program_id(0) * width + columns
            shift = tl.zeros([BLOCK_N], ACC)
            if TOP or SHIFTED:
                here, at = _best(z, rows, 0)
                tl.store(into, here)
                if PLACE:
                    tl.store(column_places + tl.program_id(0) * width + columns, at)
                shift = tl.where(here == float("-inf"), 0.0, here)
            if SUM != NONE:
                column_mass = _sum(z, shift, 0, SUM, SHIFTED, TERMS)
                tl.store(into + tl.num_programs(0) * width, column_mass)
    height = tl.num_programs(0) * BLOCK_M
    into = tl.program_id(1) * height + tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    if TOP or SHIFTED:
        tl.store(of_rows + into, top)
        if PLACE:
            tl.store(row_places + into, place)
    if SUM != NONE:
        tl.store(of_rows + tl.num_programs(1) * height + into, mass)


@triton.jit
def spread(
    x,
    y,
    p,
    q,
    into_rows,
    into_columns,
    rx,
    ry,
    rp,
    rq,
    gx,
    gy,
    u,
    v,
    row_shift,
    column_shift,
    scale,
    n,
    m,
    offset,
    first,
    lowest,
    highest,
    blocks,
    WIDTH: tl.constexpr,
    SLICE: tl.constexpr,
    DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ACC: tl.constexpr,
    BFLOAT16: tl.constexpr,
    SLOPE: tl.constexpr,
    SHIFTED: tl.constexpr,
    U: tl.constexpr,
    V: tl.constexpr,
    SAME: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HELD: tl.constexpr,
    OWNED: tl.constexpr,
    DIAGONAL: tl.constexpr,
    UPPER: tl.constexpr,
    GROUPED: tl.constexpr,
    PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Add the gradients that the weights cause to a block of rows and some blocks of columns.

    Args:
        x, y: descriptors of rows and columns, BLOCK x SLICE.
        p, q: what moves instead of them: rows that push the columns, columns that push the rows,
            BLOCK x DEPTH; the same numbers if SAME.
        rp, rq: reciprocals of their lengths.
        into_rows, into_columns: descriptors of the sums, BLOCK x DEPTH.
        rx, ry, gx, gy, scale, n, m, offset, first, lowest, highest, blocks: as in ``statistics``.
        u, v: factors of the rows and of the columns, where U and V say that they have some.
        row_shift, column_shift: what is taken off their exponents if SHIFTED.
    """
    block = first + tl.program_id(0)
    row = block * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    start = lowest + tl.program_id(1) * blocks
    stop = tl.minimum(start + blocks, highest)
    if UPPER:
        start = tl.maximum(start, row // BLOCK_N)
    WHOLE: tl.constexpr = SLICE == WIDTH  # a block of columns is loaded once
    c = tl.load(scale)
    r = tl.load(rx + rows, mask=rows < n, other=0.0)
    rm = _reciprocals(rp, rows, n, r, SAME)
    own, shift = r, r
    if U:
        own = tl.load(u + rows, mask=rows < n, other=0.0) * rm
        if SHIFTED:
            shift = tl.load(row_shift + rows, mask=rows < n, other=0.0)
    depth = tl.program_id(2) * DEPTH
    if WHOLE:
        xs = x.load([row, 0])
    if HELD:
        held = tl.zeros([BLOCK_M, DEPTH], ACC)
    for b in range(start, stop):
        column = b * BLOCK_N
        columns = column + tl.arange(0, BLOCK_N)
        dots = tl.zeros([BLOCK_M, BLOCK_N], ACC)
        if WHOLE:
            ys = y.load([column, 0])
            dots = _dot(xs, ys.T, dots, PRECISION, INTERPRETED)
        else:
            dots = _products(x, y, row, column, dots, WIDTH, SLICE, PRECISION, INTERPRETED)
        rj = tl.load(ry + columns, mask=columns < m, other=0.0)
        z = _exponents(dots, r, rj, c, SLOPE)
        z = _but_excluded(z, rows, columns, gx, gy, n, m, offset, DIAGONAL, UPPER, GROUPED)
        rmj = _reciprocals(rq, columns, m, rj, SAME)
        w = tl.zeros([BLOCK_M, BLOCK_N], ACC)
        w = _weights(w, z, own, shift, rm, rmj, v, column_shift, columns, m, SLOPE, SHIFTED, U, V)
        if BFLOAT16:
            w = _rounded(w, INTERPRETED)
        if HELD:
            if ROWS:
                moved = ys if SAME and WHOLE else q.load([column, depth])
                held = _dot(w, moved, held, PRECISION, INTERPRETED)
            if COLUMNS:
                moved = xs if SAME and WHOLE else p.load([row, depth])
                part = tl.zeros([BLOCK_N, DEPTH], ACC)
                part = _dot(w.T, moved, part, PRECISION, INTERPRETED)
                _add(into_columns, column, depth, part, OWNED, INTERPRETED)
        else:
            for at in tl.range(0, WIDTH, DEPTH, num_stages=STAGES):
                if ROWS:
                    part = tl.zeros([BLOCK_M, DEPTH], ACC)
                    part = _dot(w, q.load([column, at]), part, PRECISION, INTERPRETED)
                    _add(into_rows, row, at, part, OWNED, INTERPRETED)
                if COLUMNS:
                    part = tl.zeros([BLOCK_N, DEPTH], ACC)
                    part = _dot(w.T, p.load([row, at]), part, PRECISION, INTERPRETED)
                    _add(into_columns, column, at, part, OWNED, INTERPRETED)
    if HELD and ROWS:
        _add(into_rows, row, depth, held, OWNED, INTERPRETED)
