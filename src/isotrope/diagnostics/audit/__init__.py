"""Predicts what an objective will do to a user's data, before any training.

The components of a gradient (GD, W and R) follow from the embeddings of a batch, so the initial
encoder is enough to compute them. ``isotrope.audit`` and ``isotrope audit`` combine

- ``rows``: the records of a file, as training pairs them, and their embeddings;
- ``settings``: numbers of the first step for several temperatures, margins, ratios and batch sizes,
  and recommended values with reasons;
- ``push``: how strongly rows push each other, and the hard negatives that follow from it;
- ``alike``: rows that seem to belong together and are likely false negatives;
- ``pairs``: pairs that seem mismatched, pairs with nothing left to learn, unusual texts;
- ``result``: the result as a table and as JSON; ``texts`` adds the files to train on.

``isotrope.evaluation.uncover`` measures how much whitening the embeddings improves the score.

All pushes and shares come from the objective's own ``components``.
"""
