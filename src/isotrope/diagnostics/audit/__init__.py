"""Predicts what an objective will do to a user's data, before any training.

The components of a gradient (gradient dissipation, weight, ratio of pull to push) depend only on
the embeddings of a batch, so an audit measures them with the encoder before training. Modules:

- ``rows`` reads the records of a file, pairs them as training does, and embeds them.
- ``settings`` measures the gradient of the first training step at several temperatures, margins,
  ratios and batch sizes, and recommends values.
- ``neighbours`` finds the nearest rows of each row.
- ``push`` measures how strongly rows push each other, and mines hard negatives by this push.
- ``alike`` finds rows that seem to belong together: they are likely false negatives.
- ``pairs`` finds pairs that seem mismatched, pairs with nothing left to learn, and unusual texts.
- ``result`` writes the result as tables and as JSON. ``texts`` also writes files to train on.
"""
