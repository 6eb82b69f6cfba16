"""Shuffles records by a seed, without storing their order."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 8
_SMALLEST_HALF = 3  # bits; with fewer, there are too few round functions to mix well
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Order:
    """A pseudo-random permutation of range(n). Each seed and epoch gives another permutation.

    ``order[places]`` is an array of the record numbers at these places. The numbers are computed by
    a Feistel network with cycle walking. The mixing constants are those of SplitMix64 (Steele et
    al. 2014).

    >>> sorted(Order(5, seed=0, epoch=0)[np.arange(5)].tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, n: int, seed: int, epoch: int) -> None:
        if n < 1:
            raise ValueError(f"give at least 1 record to shuffle; found {n}")
        self.n = n
        self._half = np.uint64(max(_SMALLEST_HALF, ((n - 1).bit_length() + 1) // 2))
        self._mask = np.uint64((1 << int(self._half)) - 1)
        key = hashlib.blake2b(f"{seed},{epoch}".encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = np.frombuffer(key, dtype="<u8").astype(np.uint64)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, places: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the records at ``places`` (any shape, each in range(n)), as int64."""
        places = np.asarray(places)
        if places.size and (places.min() < 0 or places.max() >= self.n):
            raise IndexError(
                f"use places from 0 to {self.n - 1}; found places from {places.min()} to "
                f"{places.max()}"
            )
        values = self._permuted(places.ravel().astype(np.uint64))
        while (outside := values >= self.n).any():
            values[outside] = self._permuted(values[outside])
        return values.astype(np.int64).reshape(places.shape)

    def _permuted(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = values >> self._half, values & self._mask
        for key in self._keys:
            mixed = (right + key) * _M1
            mixed = (mixed ^ (mixed >> np.uint64(29))) * _M2
            left, right = right, left ^ ((mixed >> np.uint64(32)) & self._mask)
        return (left << self._half) | right
