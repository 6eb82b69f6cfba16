"""Order: one to one for every n, different by seed and epoch, close to uniform."""

import numpy as np
import pytest
from scipy import stats

from isotrope.data.order import Order


@pytest.mark.parametrize("n", [*range(1, 301), 65_537, 99_991, 262_145])
def test_is_a_permutation(n: int) -> None:
    places = Order(n, seed=7, epoch=3)[np.arange(n)]
    assert places.dtype == np.int64
    assert np.array_equal(np.sort(places), np.arange(n))


def test_depends_on_seed_and_epoch_only() -> None:
    everything = np.arange(1000)
    first = Order(1000, 0, 0)[everything]
    assert np.array_equal(first, Order(1000, 0, 0)[everything])
    for seed, epoch in [(1, 0), (0, 1), (-1, 0), (2**70, 0)]:
        assert np.mean(first == Order(1000, seed, epoch)[everything]) < 0.02


def test_any_shape_and_any_part_of_the_places() -> None:
    order = Order(10**12, 0, 0)  # O(1) memory: nothing of this size is stored
    whole = order[np.arange(6)]
    assert np.array_equal(order[np.arange(6).reshape(2, 3)], whole.reshape(2, 3))
    assert np.array_equal(order[np.array([4, 1])], whole[[4, 1]])
    assert order[np.arange(0)].shape == (0,)
    assert len(order) == 10**12


@pytest.mark.parametrize("n", [5, 12, 33])
@pytest.mark.slow
def test_every_record_comes_everywhere_equally_often(n: int) -> None:
    trials = 800
    counts = np.zeros((n, n))
    for epoch in range(trials):
        counts[np.arange(n), Order(n, 11, epoch)[np.arange(n)]] += 1
    # rows and columns of the table add up to `trials`, so (n - 1)^2 degrees of freedom
    statistic = ((counts - trials / n) ** 2 / (trials / n)).sum()
    assert stats.chi2.sf(statistic, (n - 1) ** 2) > 1e-4


def test_neighbours_are_scattered() -> None:
    places = Order(10_000, 0, 0)[np.arange(10_000)]
    steps = np.diff(places)
    assert len(np.unique(steps)) > 6000  # of 9,999 steps; about 6,900 in a random permutation
    assert abs(stats.spearmanr(np.arange(10_000), places).statistic) < 0.04


def test_refuses_what_is_outside() -> None:
    with pytest.raises(IndexError, match="from 0 to 4; found places from 0 to 5"):
        Order(5, 0, 0)[np.array([0, 5])]
    with pytest.raises(IndexError, match="found places from -1"):
        Order(5, 0, 0)[np.array([-1])]
    with pytest.raises(ValueError, match="at least 1 record to shuffle; found 0"):
        Order(0, 0, 0)
