"""Computes statistics of the rows of a similarity matrix, with one of three backends.

``eager`` forms the whole matrix; the tests compare the other backends with it. ``rowblock`` needs
linear memory: it forms the matrix in blocks of rows (``tiles``), in the embeddings' precision.
``bfloat16`` works like ``rowblock``, with matrix products in bfloat16.

``pairs`` declares the statistics that an objective may use. ``mask`` decides which columns are
negatives. ``mixtures`` makes negatives that are averages of two columns. ``statistics`` records
which statistics a formula uses. If a formula uses nothing but statistics, ``fused`` computes its
value and its gradients together: in one pass over the blocks (``one_pass``), or in two passes
(``two_passes``) if the losses of the anchors depend on each other (``coupling``). If only anchors
have gradients, ``surrogate_sums`` computes the sums of both directions in one pass. ``small_batch``
computes log-sum-exps in one operation of autograd. ``choose`` picks a backend and says why.
"""
