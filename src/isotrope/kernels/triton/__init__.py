"""The same statistics on a GPU: tiles of similarities that never leave its fast memory.

``tiles`` holds the two kernels and ``passes`` launches them; ``operands`` defines a block of rows
and columns, ``parts`` the blocks that a batch is compared in. ``fused`` computes a loss and its
gradients in two passes, ``pairs`` computes single statistics. Triton is imported nowhere else.
"""
