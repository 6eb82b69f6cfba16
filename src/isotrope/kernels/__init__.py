"""Floor 1: the row statistics of the similarity matrix, behind one interface with four backends.

``pairs`` says what an objective may ask, ``eager`` answers from the whole matrix and is the truth,
``rowblock`` in linear memory, statistic by statistic; ``mixtures`` are of the columns that
``largest`` finds. Where a formula asks for nothing but statistics (``statistics`` records which),
``fused`` computes value and gradients together, in one or two ``sweeps`` over blocks of rows, as
the ``coupling`` allows that the objective declares. Where only anchors move, ``pushes`` serves both
directions with one sweep and keeps of the weights what they do. ``choose`` picks the backend and
can say why.
"""
