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
