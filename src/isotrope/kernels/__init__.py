"""Computes row statistics of similarities: eager, rowblock and bfloat16 backends.

``eager`` computes them from the whole matrix and is the reference. ``rowblock`` needs linear
memory: it processes the matrix in the blocks of ``tiles``, in the precision of the embeddings.
``bfloat16`` is rowblock with products in bfloat16.

``pairs`` declares the statistics that an objective may use, and ``mask`` the columns that are not
negatives; ``mixtures`` are averages of two columns. ``statistics`` records what a formula uses. If
it uses only statistics, ``fused`` computes value and gradients together, in ``one_pass`` or in
``two_passes`` over the blocks, depending on the declared ``coupling``. If only anchors have
gradients, ``surrogate_sums`` serves both directions with one pass. ``small_batch`` computes the
usual statistics of a small batch as one node of autograd. ``choose`` picks the backend and explains
its choice; it finds backends of other packages, such as ``triton``.
"""
