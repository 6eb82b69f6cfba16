"""The push ledger: how strongly rows push each other, to find negatives that are none.

For an anchor i and a negative j an objective's push is GD_i W_ij. Two rows that belong together
push each other strongly from both sides and in both directions (anchor from positive and positive
from anchor), while a row that is near everything is pushed from one side only. The ledger takes the
geometric mean of these four numbers, the *reciprocal push*.

A batch of the size that training uses shows few of the n (n - 1) pairs, and its normaliser, a sum
over few rows, is noise: in ``benchmarks/audit.py`` the pairs found first are more often right the
more rows an anchor is compared with. So each pair of rows meets once, in blocks of up to 8,192 rows
whose order is drawn. Of each row the strongest partners are kept and nothing else: memory is linear
in the rows, time is quadratic with the constant of a matrix product.

That needs an objective in which an anchor's push depends on no other anchor (``coupling`` "none").
Where it does, rows meet in square batches of two blocks.
"""
