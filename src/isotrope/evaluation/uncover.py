"""Says whether whitening an encoder uncovers anything: its score whitened less its score as it is.

No training is involved: a score that rises when the embeddings get mean 0 and covariance 1 was
there before, under a direction that all embeddings share. How much it rises tells three kinds of
encoder apart:

- *raw*, never trained on pairs: whitening gains, and all embeddings point one way; which weight,
  dissipation and ratio an objective has decides much;
- *covered*: whitening gains, and embeddings do not all point one way; a training that gains less
  than whitening has learnt nothing new;
- *trained*: whitening gains nothing; what is left to gain is in the data.

Mean and covariance come from rows that are not scored.
"""
