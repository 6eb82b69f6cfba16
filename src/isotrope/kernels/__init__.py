"""Computes statistics of the rows of a similarity matrix, with one of three backends.

Rows of the matrix belong to anchors; columns belong to the embeddings that anchors are compared
with. The backend ``eager`` forms the whole matrix; the tests compare the other backends with
``eager``. ``rowblock`` forms the matrix in blocks of rows, in linear memory. ``bfloat16`` works
like ``rowblock``, with matrix products in bfloat16.

What a formula may use: ``pairs`` declares the statistics. ``negative_mask`` decides which columns
are negatives of an anchor. ``mixed_negatives`` mixes two columns into one more negative.

One statistic at a time: ``choose`` chooses the backend. ``eager`` and ``rowblock`` compute each
statistic on its own. ``surrogate_sums`` serves losses that are defined by their gradient alone.

A whole loss with its gradients: ``statistics`` records which statistics a formula uses.
``small_batch`` computes a batch of few rows in one operation of autograd. For others, ``fused``
makes a ``pass_input`` and runs ``one_pass`` over blocks of similarities, or ``two_passes``.
``coupling`` checks that the anchors depend on each other only as the objective declares. ``tiles``
forms the blocks, for all files above, and finds their largest entries, also for the audit.
"""
