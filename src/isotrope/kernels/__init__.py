"""Computes row statistics of similarities: eager, rowblock and bfloat16 backends.

``eager`` computes them from the whole matrix and is the reference. ``rowblock`` needs linear
memory: it processes the matrix in the blocks of ``tiles``, in the precision of the embeddings.
``bfloat16`` is rowblock with products in bfloat16.

``pairs`` declares the statistics that an objective may use. ``mask`` decides which columns are
negatives. ``mixtures`` makes negatives that are averages of two columns. ``statistics`` records
which statistics a formula uses. If a formula uses nothing but statistics, ``fused`` computes value
and gradients together, in one pass over the blocks (``one_pass``) or in two (``two_passes``),
depending on the ``coupling`` of the anchors. If only anchors have gradients, ``surrogate_sums``
computes the sums of both directions in one pass. ``small_batch`` computes the log-sum-exps of a
small batch as one node of autograd. ``choose`` picks the backend and gives the reason.
"""
