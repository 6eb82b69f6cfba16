"""Computes row statistics of similarities: eager, rowblock and bfloat16 backends.

``eager`` computes them from the whole matrix and is the reference. ``rowblock`` needs linear
memory: it processes the matrix in the blocks of ``tiles``, in the precision of the embeddings.
``bfloat16`` is rowblock with products in bfloat16.

``pairs`` declares the statistics that an objective may use. ``mask`` decides which columns are
negatives. ``mixtures`` makes negatives that are averages of two columns. ``statistics`` records
which statistics a formula uses. If a formula uses nothing but statistics, ``fused`` computes value
and gradients together. It takes one pass over the blocks (``one_pass``) or two (``two_passes``),
depending on the ``coupling``. If only anchors have gradients, ``surrogate_sums`` serves both
directions with one pass. ``small_batch`` computes the usual statistics of a small batch as one node
of autograd. ``choose`` picks the backend and gives the reason.
"""
