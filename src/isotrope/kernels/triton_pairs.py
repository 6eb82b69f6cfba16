"""The triton backend where statistics are asked one by one, and where only anchors move.

A formula that is not fused (it asks for more than statistics) gets each of them from a meeting,
with a gradient of its own; surrogates out of components get the masses and pushes of both
directions from the meetings that ``kernels.pushes`` makes of blocks of rows. There are no second
derivatives.
"""
