"""Predicts what an objective will do to a user's data, before the first step of a training.

The components GD, W and R need embeddings and a batch, not a training: those of the encoder that
training will begin with are enough. ``isotrope.audit`` and ``isotrope audit`` put together

- ``rows``: the records of a file as training pairs them, their lines, and their embeddings;
- ``settings``: GD, anchors done, the hardest negative's share and Lemma 1's bound over a grid of
  temperatures, margins and ratios, and over batch sizes; which values to begin with, and why;
- ``push``: which rows push each other, in memory linear in the rows; likely false negatives;
- ``pairs``: pairs that do not belong together, solved ones, texts that are cut, repetitions,
  lengths that stand out;
- ``mining``: hard negatives by their push, without the false ones;
- ``result``: all of it as a table and as JSON; ``texts`` adds the files that trainings read.

The score whitened less the score raw is ``isotrope.evaluation.uncover``.

Every number of an objective comes from its own ``components``.
"""
