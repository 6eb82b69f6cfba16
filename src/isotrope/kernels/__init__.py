"""Floor 1: the row statistics of the similarity matrix, behind one interface with four backends.

``pairs`` says what an objective may ask, ``mask`` what is no negative. ``eager`` answers from the
whole matrix and is the truth, ``rowblock`` in linear memory, statistic by statistic, from the
blocks of ``tiles``; ``mixtures`` are of the columns that ``topk`` finds. Where a formula asks for
nothing but statistics (``statistics`` records which), ``fused`` computes value and gradients
together, in ``one_pass`` or ``two_passes`` over blocks of rows, as the ``coupling`` allows that the
objective declares. Where only anchors move, ``surrogate_sums`` serves both directions with one
pass. ``choose`` picks the backend and can say why.
"""
