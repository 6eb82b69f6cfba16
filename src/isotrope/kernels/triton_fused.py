"""Value and gradients of a whole objective from meetings of its views, on a GPU.

``reduced`` collects every statistic that the formula asks for, of every row of either direction;
the formula is called on them once for each direction and differentiated; ``spread`` turns its
derivatives into gradients. Rows may be coupled in whatever way: between the passes everything is
known.

- *Exponential and pointwise* weights (InfoNCE, DCL, NT-Xent, uniformity, MIO): both passes. What
  rows and columns weigh is added in the tile, so both directions cost what one does.
- *Hardest* (triplets): the first pass finds value and place, the gradient is of one column a row.
- *Mixtures*: the two nearest columns are found by one more pass each; only the anchor moves.
- The temperature's derivative, sum_ij W_ij s_ij, is half of what all sums have along their vectors:
  each pair is counted at its row and at its column.

Gradients of raw embeddings: what a unit vector received, without what lies along it, over the norm.
"""
