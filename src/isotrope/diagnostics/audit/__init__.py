"""Predicts what an objective will do to a user's data, before the first step of a training.

The components GD, W and R need embeddings and a batch, not a training; the embeddings of the
initial encoder are enough. ``isotrope.audit`` and ``isotrope audit`` combine

- ``rows``: the records of a file as training pairs them, their lines, and their embeddings;
- ``settings``: GD, share of anchors that learn, hardest negative's share, Lemma 1's bound over a
  grid of temperatures, margins and ratios, and over batch sizes; recommended values with reasons;
- ``push``: how strongly rows push each other, in linear memory;
- ``alike``: which rows belong together by all their similarities: likely false negatives;
- ``pairs``: pairs that do not belong together, solved pairs, cut texts, repetitions, unusual
  lengths;
- ``mining``: hard negatives by their push, without the false ones;
- ``result``: the result as a table and as JSON; ``texts`` adds the files to train on.

``isotrope.evaluation.uncover`` measures the gain from whitening.

All numbers come from the objective's own ``components``.
"""
