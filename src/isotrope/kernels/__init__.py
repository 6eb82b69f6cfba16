"""The row statistics of the similarity matrix: one interface with four backends.

``pairs`` defines the statistics that an objective may use, ``mask`` the pairs that are not
negatives. The backends are those of ``--backend``:

- *eager* (module ``eager``) computes them from the whole matrix; the others are tested against it;
- *rowblock* (module ``rowblock``) computes each of them in linear memory, from the blocks of
  ``tiles``;
- *bfloat16* is rowblock with rounded products;
- *triton* (package ``triton``) computes them on a GPU without writing similarities to its memory.

Rowblock, bfloat16 and triton also *fuse*: if a formula uses nothing but statistics (``statistics``
records which), ``fused`` computes its value and gradients together, in ``one_pass`` or
``two_passes`` over blocks of rows, depending on the ``coupling`` that the objective declares. If
only anchors move, ``surrogate_sums`` computes both directions in one pass. ``mixtures`` mixes the
columns that ``topk`` finds. ``choose`` picks the backend and can say why.
"""
