"""Computes statistics of the rows of a similarity matrix, with one of three backends.

Rows of the matrix belong to anchors; columns belong to the embeddings that anchors are compared
with. The backend ``eager`` forms the whole matrix; the tests compare the other backends with
``eager``. ``rowblock`` forms the matrix in blocks of rows (``tiles``), in linear memory.
``bfloat16`` works like ``rowblock``, with matrix products in bfloat16.

``pairs`` declares the statistics that an objective may use. ``mask`` decides which columns are
negatives. ``mixtures`` mixes two columns into one more negative. ``statistics`` records which
statistics a formula uses. If a formula uses only these, ``fused`` computes value and gradients
together, in one pass over the blocks (``one_pass``) or in two (``two_passes``).
"""
