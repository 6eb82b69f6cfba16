"""Word vectors: pairs are counted within a sentence, and the factors are those of the PPMI."""

import numpy as np
import pytest
import torch

from papers.pretraining import cooccurrences, word_vectors

IDS = np.array([1, 2, 3, 2, 1, 3, 3], dtype=np.uint16)
STARTS = np.array([0, 4, 5, 7])


def test_pairs_are_counted_within_a_sentence_and_a_window():
    counts = cooccurrences(IDS, STARTS, 4, window=2)
    expected = np.zeros((4, 4))
    for sentence in ([1, 2, 3, 2], [1], [3, 3]):
        for i, a in enumerate(sentence):
            for j, b in enumerate(sentence):
                expected[a, b] += i != j and abs(i - j) <= 2
    assert np.array_equal(counts, expected)


def test_special_pieces_are_not_counted():
    counts = cooccurrences(IDS, STARTS, 4, first=2)
    assert not counts[:2].any()
    assert not counts[:, :2].any()
    assert counts[2, 3] == 2


def test_the_factors_give_the_positive_pointwise_mutual_information():
    draw = np.random.default_rng(0)
    half = draw.integers(0, 9, (12, 12)).astype(np.float32)
    half[3] = half[:, 3] = 0
    counts = half + half.T
    totals = counts.sum(axis=1)
    share = totals**0.75 / (totals**0.75).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        ppmi = np.nan_to_num(np.log(counts / np.outer(totals, share)), neginf=0.0).clip(0)
    vectors = word_vectors(counts.copy(), 12, deviation=0.05, seed=0).double()
    assert float(vectors.square().mean().sqrt()) == pytest.approx(0.05)
    left, values, _ = np.linalg.svd(ppmi)
    expected = torch.from_numpy(left * values @ left.T).double()
    scale = float(expected.diagonal().sum() / vectors.square().sum())
    torch.testing.assert_close(vectors @ vectors.T * scale, expected, atol=1e-4, rtol=0)
    assert not vectors[3].abs().max() > 1e-6, "a piece that never occurred has no vector"


def test_the_same_seed_gives_the_same_vectors_and_leaves_chance_alone():
    counts = cooccurrences(IDS, STARTS, 4)
    state = torch.get_rng_state()
    first, again = (word_vectors(counts.copy(), 2, deviation=0.05, seed=1) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), state)
