"""Word vectors in closed form, by which words occur near each other: where pre-training begins.

A small encoder that learns its words by filling them in alone needs more text than one core can
read: after 2,000 steps its vectors are still nearly those that were drawn. The factors of the
pointwise mutual information are what such training tends to (Levy and Goldberg 2014, "Neural word
embedding as implicit matrix factorization"), and take a minute. They come from the same text, and
no pair of sentences has a part in them.
"""

import numpy as np
import torch
from torch import Tensor

_WINDOW = 5  # pieces to each side
_SMOOTHING = 0.75  # exponent of the counts of contexts, Levy et al. 2015, section 3.1
_CHUNK = 2_000_000  # pairs counted at once


def cooccurrences(
    ids: np.ndarray, starts: np.ndarray, size: int, *, first: int = 0, window: int = _WINDOW
) -> np.ndarray:
    """Count how often two pieces stand in one sentence, at most ``window`` places apart.

    Example:
        >>> cooccurrences(np.array([0, 1, 2, 1]), np.array([0, 3, 4]), 3, window=1).tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    counts = np.zeros(size * size, dtype=np.float32)
    sentence = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    for apart in range(1, window + 1):
        here = np.flatnonzero(sentence[apart:] == sentence[:-apart])
        for begin in range(0, len(here), _CHUNK):
            at = here[begin : begin + _CHUNK]
            a, b = ids[at].astype(np.int64), ids[at + apart].astype(np.int64)
            kept = (a >= first) & (b >= first)
            cells, times = np.unique(a[kept] * size + b[kept], return_counts=True)
            counts[cells] += times
    square = counts.reshape(size, size)
    return square + square.T


def word_vectors(counts: np.ndarray, width: int, *, deviation: float, seed: int) -> Tensor:
    """Return a vector for every piece: factors of the positive pointwise mutual information."""
    totals = counts.sum(axis=1, dtype=np.float64)
    contexts = totals**_SMOOTHING
    counts /= np.maximum(totals, 1).astype(np.float32)[:, None]
    counts /= np.maximum(contexts / max(1.0, contexts.sum()), 1e-30).astype(np.float32)
    np.log(counts, out=counts, where=counts > 0)
    np.maximum(counts, 0, out=counts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        left, values, _ = torch.svd_lowrank(torch.from_numpy(counts), q=width, niter=4)
    vectors = left * values.sqrt()
    return vectors * (deviation / vectors.square().mean().sqrt())
