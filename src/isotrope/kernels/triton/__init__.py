"""The same statistics on a GPU: tiles of similarities that never leave its fast memory.

``tiles`` holds the two kernels, ``passes`` launches them, ``operands`` says which rows meet which
columns, ``parts`` which columns an anchor is compared with. ``fused`` computes a loss and its
gradients in two passes, ``pairs`` answers single statistics. Triton is imported nowhere else.
"""
