"""Mines hard negatives from the push ledger: of each anchor the rows that it is pushed from most.

The hardness of a negative is its share of the push on the anchor, between 0 and 1, among all rows
that it was compared with. The hardest of a data set are often not negatives at all, so a share has
an upper limit, and rows that push each other from both sides (likely false negatives) and rows of
the anchor's group are never taken. Each negative is a record of its own (anchor, positive, hard
negative), which ``isotrope train`` and sentence-transformers read as three columns.
"""
