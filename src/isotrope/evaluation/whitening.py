"""Whitening: a linear map that gives embeddings mean 0 and identity covariance.

Whitening needs no training. It shows how much of a gain could come from removing directions that
all embeddings share (Su et al. 2021, "Whitening sentence representations", algorithm 1).
"""

from collections.abc import Sequence

import numpy as np

from isotrope.evaluation.embed import Encoder

_LEAST = 1e-6  # share of the largest variance; a smaller variance is only rounding


def whitening(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean m and a matrix W such that (rows - m) W has identity covariance.

    Directions with less than a millionth of the largest variance are left out, because dividing by
    their standard deviation would amplify rounding errors.

    Args:
        rows: Embeddings, n x d, n >= 2.

    Returns:
        The mean m (d values) and the matrix W (d x k with k <= d), float64.

    Example:
        >>> rows = np.array([[2.0, 1.0], [-2.0, 1.0], [0.0, 3.0], [0.0, -1.0]])
        >>> mean, matrix = whitening(rows)
        >>> np.cov((rows - mean) @ matrix, rowvar=False).round(12).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    given = np.asarray(rows)
    rows = given.astype(np.float64)
    if rows.ndim != 2:
        raise ValueError(f"whitening needs a matrix, n x d; found shape {rows.shape}: embed texts")
    if len(rows) < 2:
        raise ValueError(f"whitening needs two rows or more; found {len(rows)}")
    if not np.isfinite(rows).all():
        raise ValueError("whitening needs finite rows; found NaN or infinity: leave such rows out")
    mean = rows.mean(axis=0)
    variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(rows - mean, rowvar=False)))
    used = variances > _LEAST * variances.max()
    # equal rows may differ by the rounding of the encoder and of the mean
    unit = 8 * np.finfo(given.dtype if given.dtype.kind == "f" else np.float64).eps
    if not variances.max() > (unit * np.abs(rows).max()) ** 2:
        raise ValueError(f"whitening needs rows that differ; all {len(rows)} are equal")
    return mean, directions[:, used] / np.sqrt(variances[used])


class WhitenedEncoder:
    """An encoder whose embeddings are whitened.

    Args:
        encoder: Any object with ``encode``.
        texts: Texts whose embeddings give mean and covariance. Scored texts must not be among them,
            unless the score is reported as transductive.
    """

    def __init__(self, encoder: Encoder, texts: Sequence[str]) -> None:
        self.encoder = encoder
        self._mean, self._matrix = whitening(np.asarray(encoder.encode(list(texts))))

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return n x k embeddings, float64."""
        rows = np.asarray(self.encoder.encode(texts), dtype=np.float64) - self._mean
        whitened: np.ndarray = rows @ self._matrix
        return whitened
