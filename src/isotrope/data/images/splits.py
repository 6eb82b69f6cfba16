"""Chooses pictures: a balanced prefix, or a held-out part.

Both are functions of the labels (and a seed), and return places in ascending order.
"""

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError


def balanced_prefix(labels: NDArray[np.int64] | None, n: int, total: int) -> NDArray[np.int64]:
    """Return the places of the first ``n`` pictures when the classes take turns.

    In every class the pictures keep their stored order. Without labels: the first ``n``.

    Args:
        labels: int64 (total), or None.
        n: how many; more than there are means all.
        total: number of pictures.
    """
    if labels is None:
        return np.arange(min(n, total))
    return np.sort(np.lexsort((np.arange(total), _ranks(labels)))[:n])


def _ranks(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each label, how many equal ones precede it."""
    order = np.argsort(labels, kind="stable")
    _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(len(labels)) - np.repeat(starts, counts)
    return ranks


def held_out(
    labels: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the training and the held-out positions: of each class the same share, rounded.

    Every class keeps at least one picture to train on.

    Args:
        labels: int64 (n).
        share: between 0 and 1.
        seed: the seed of the draw.
    """
    if not 0 < share < 1:
        raise InputError(f"the held-out share must lie between 0 and 1; found {share}")
    order = np.random.default_rng(seed).permutation(len(labels))
    out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = order[labels[order] == label]
        out[rows[: min(int(share * len(rows) + 0.5), len(rows) - 1)]] = True
    if not out.any():
        raise InputError(
            f"a held-out share of {share} of {len(labels)} pictures in "
            f"{len(np.unique(labels))} classes leaves no picture to score on; give more pictures "
            "of each class, or a folder test/ beside train/"
        )
    return np.flatnonzero(~out), np.flatnonzero(out)
