"""Predicts what an objective will do to a user's data, before any training.

The components of a gradient (gradient dissipation, weight, ratio of pull to push) depend only on
the embeddings of a batch, so the initial encoder shows them. An audit combines these modules:

- ``rows``: the records of a file, as training pairs them, and their embeddings;
- ``settings``: numbers of the first step for several temperatures, margins, ratios and batch sizes,
  and recommended values with reasons;
- ``push``: how strongly rows push each other, and the hard negatives that are mined by this push;
- ``alike``: rows that seem to belong together and are likely false negatives;
- ``pairs``: pairs that seem mismatched, pairs with nothing left to learn, unusual texts;
- ``result``: the result as a table and as JSON; ``texts`` adds the files to train on.

``isotrope.evaluation.uncover`` measures how much whitening improves the score on a dev set.
"""
