"""Tiles of similarities that never leave the GPU's cores: the two kernels of the triton backend.

Everything pairwise is made of *meetings*: the rows of one matrix against the rows of another, or a
view against itself. A program forms tiles of one meeting, reduces them or multiplies with them, and
forgets them; device memory sees vectors of length n, the embeddings and their gradients.

- ``statistics`` reduces: of each row, and in the same pass of each column, the sum of e^{s/tau}, of
  log(1 + e^{s/tau}) or of s^p over the negatives, the largest similarity and where it is. Each
  program writes what it found of its rows and columns; the sums of programs are added afterwards,
  so that nothing depends on who came first. 2 n m d floating-point operations.
- ``spread`` forms the tiles again, turns them into weights W_ij = slope(s_ij) (u_i + v_j), where u
  and v are what the formula's derivatives make of rows and columns, and multiplies them with the
  columns (gradients of the rows) and, transposed, with the rows (gradients of the columns). 6 n m
  d: formed once for both.

Together 8 n m d for one direction and 8 for both, since rows and columns share both passes. A view
against itself is symmetric, so a meeting may be ``UPPER``: pairs i < j only, each of which serves
its row and its column, 4 n^2 d. The 2N views of NT-Xent are one meeting across and one inside each
view: 8 + 4 + 4 = 16 n^2 d, which are 4 M^2 d of M = 2n rows. Less than 8 in one direction would
need a whole row of tiles at a time, which no core holds.

Sums of gradients. A program meets a block of rows with some blocks of columns. What its tile does
to the columns, others do at the same time: it is added atomically (a reduction in the second-level
cache, ``cp.reduce`` where there is one). So is what it does to the rows, unless d is so small that
the rows' sums stay in registers over all its columns (``HELD``). Atomic sums of float32 depend on
the order in their last bits. Where that is not wanted (``OWNED``:
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
