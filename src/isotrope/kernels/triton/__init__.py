"""The triton backend: computes the row statistics on a GPU, in tiles that stay in fast memory.

``tiles`` holds the two kernels, ``passes`` launches them, ``operands`` pairs blocks of rows with
blocks of columns, and ``parts`` says which vectors each anchor is compared with. ``fused`` computes
a loss and its gradients in two passes, ``pairs`` single statistics. Triton is imported nowhere
else.
"""
