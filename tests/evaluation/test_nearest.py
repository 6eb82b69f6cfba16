import tracemalloc

import numpy as np
import pytest

from isotrope.evaluation.nearest import nearest_rows


def brute_force(queries, corpus, top):
    """Rank by a stable sort of the whole similarity matrix."""
    x = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    y = corpus / np.linalg.norm(corpus, axis=1, keepdims=True)
    scores = np.round(x @ y.T, 9)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return order, np.take_along_axis(scores, order, axis=1)


class TestNearestRows:
    @pytest.mark.parametrize("tile", [1, 7, 1000, 4_000_000])
    @pytest.mark.parametrize("top", [1, 5, 83, 200])
    def test_tiles_do_not_matter(self, tile, top):
        rng = np.random.default_rng(0)
        queries, corpus = rng.normal(size=(11, 8)), rng.normal(size=(83, 8))
        corpus[40:] = corpus[:43]  # every row twice: ties all over
        places, scores = nearest_rows(queries, corpus, top, tile=tile)
        order, expected = brute_force(queries, corpus, top)
        np.testing.assert_array_equal(places, order)
        np.testing.assert_allclose(scores, expected, atol=2e-9)

    def test_more_queries_than_a_tile_is_high(self):
        rng = np.random.default_rng(1)
        queries, corpus = rng.normal(size=(1030, 4)), rng.normal(size=(6, 4))
        places, _ = nearest_rows(queries, corpus, 3)
        np.testing.assert_array_equal(places, brute_force(queries, corpus, 3)[0])

    def test_equal_scores_keep_the_order_of_the_corpus(self):
        places, scores = nearest_rows(
            np.array([[1.0, 0]]), np.array([[0, 1.0]] * 3 + [[2, 0]] * 3), 5
        )
        assert places.tolist() == [[3, 4, 5, 0, 1]]
        assert scores.tolist() == [[1, 1, 1, 0, 0]]

    def test_rows_without_a_direction_have_cosine_zero(self):
        corpus = np.array([[-1.0, 0], [0, 0], [np.nan, 1], [np.inf, 0], [1, 0]])
        places, scores = nearest_rows(np.array([[3.0, 0]]), corpus, 5)
        assert places.tolist() == [[4, 1, 2, 3, 0]]
        assert scores.tolist() == [[1, 0, 0, 0, -1]]

    @pytest.mark.parametrize("tile", [1, 60, 130, 4_000_000])
    def test_the_tile_does_not_matter(self, tile):
        rng = np.random.default_rng(0)
        queries, corpus = rng.normal(size=(11, 8)), rng.normal(size=(83, 8))
        corpus[40:] = corpus[:43]
        found = nearest_rows(queries, corpus, 9, tile=tile)
        for value, expected in zip(found, nearest_rows(queries, corpus, 9), strict=True):
            np.testing.assert_array_equal(value, expected)

    def test_rows_that_come_ever_closer(self):
        """Every tile then replaces all that was found before."""
        angle = np.linspace(3, 0.01, 400)
        corpus = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        places, _ = nearest_rows(np.array([[1.0, 0]]), corpus, 5, tile=7)
        assert places.tolist() == [[399, 398, 397, 396, 395]]

    def test_cosines_that_differ_by_less_than_a_step_are_equal(self):
        corpus = np.array([[1, 1e-6], [1, 0], [1, 2e-6]])
        places, scores = nearest_rows(np.array([[1.0, 0]]), corpus, 2, tile=1)
        assert (places.tolist(), scores.tolist()) == ([[0, 1]], [[1.0, 1.0]])

    def test_nothing_to_find(self):
        places, scores = nearest_rows(np.ones((4, 3)), np.empty((0, 3)), 5)
        assert places.shape == scores.shape == (4, 0)

    def test_more_than_there_are(self):
        """As much memory as there are rows, not as was asked for."""
        places, scores = nearest_rows(np.eye(3), np.eye(3), 10**15)
        assert places[:, 0].tolist() == [0, 1, 2]
        assert scores.shape == (3, 3)

    def test_nobody_asks(self):
        assert nearest_rows(np.empty((0, 3)), np.ones((4, 3)), 2)[0].shape == (0, 2)

    def test_memory_does_not_grow_with_the_corpus(self):
        def peak(count):
            block = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)
            queries, corpus = block[:50], np.tile(block, (count, 1))
            tracemalloc.start()
            nearest_rows(queries, corpus, 20, tile=20_000)
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return found

        assert peak(64) < 1.2 * peak(4)
        assert peak(64) < 16 * 8 * 20_000  # 64,000 rows x 50 similarities would be 25 MB

    def test_one_query_copies_few_rows_of_the_corpus(self):
        corpus = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
        tracemalloc.start()
        nearest_rows(corpus[:1], corpus, 20, tile=64_000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 6 * 8 * 64_000  # one copy of the corpus in float64 would be 10 MB
