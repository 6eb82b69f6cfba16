"""Counts the texts of a corpus that have a near-copy among the others.

Two texts are copies if the sets of their words overlap by four fifths (Jaccard) without digits.
``Version 1.2 of the manual`` and ``Version 3.4 of the manual`` are copies.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

OVERLAP = 0.8
_FEWEST = 4  # words; a few shared words of a shorter text say little
_WORD = re.compile(r"[^\W\d_]+")


def copied(texts: Sequence[str], *, groups: NDArray[np.int64] | None = None) -> float:
    """Return the share of texts that have a copy among the others.

    Args:
        texts: n texts; time and memory grow with n^2, so pass a sample.
        groups: n int64 numbers; texts with the same number are not copies of each other, because
            training does not push them apart.

    Example:
        >>> copied(["One and the same text, no 1", "one and the same text, no 2", "Another one"])
        0.6666666666666666
    """
    from scipy.sparse import csr_matrix

    words = [sorted(set(_WORD.findall(text.casefold()))) for text in texts]
    numbers = {word: i for i, word in enumerate(dict.fromkeys(w for row in words for w in row))}
    sizes = np.array([len(row) for row in words])
    columns = np.array([numbers[w] for row in words for w in row], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    held = csr_matrix(
        (np.ones(len(columns), np.float32), columns, starts), (len(texts), max(1, len(numbers)))
    )
    shared = (held @ held.T).tocoo()
    i, j = shared.row, shared.col
    union = sizes[i] + sizes[j] - shared.data
    alike = (
        (i != j) & (shared.data >= OVERLAP * union) & (np.minimum(sizes[i], sizes[j]) >= _FEWEST)
    )
    if groups is not None:
        alike &= groups[i] != groups[j]
    return len(np.unique(i[alike])) / len(texts)
