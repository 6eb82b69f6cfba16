import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from isotrope.core.errors import InputError
from isotrope.data.retrieval_sets import RetrievalSet
from isotrope.evaluation.retrieval import nearest_rows, retrieval, retrieval_dev, search

from .conftest import Table


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


def task(size=30, corpus=50, seed=0):
    rng = np.random.default_rng(seed)
    relevant = [
        {int(i): float(rng.integers(1, 4)) for i in rng.choice(corpus, rng.integers(1, 5), False)}
        for _ in range(size)
    ]
    data = RetrievalSet([f"q{i}" for i in range(size)], [f"c{i}" for i in range(corpus)], relevant)
    vectors = {text: rng.normal(size=5) for text in (*data.queries, *data.corpus)}
    return data, Table(vectors)


class TestMetrics:
    def test_a_ranking_worked_out_by_hand(self):
        angle = np.deg2rad([0, 10, 20, 30, 40, 90])
        vectors = {f"c{i}": (np.cos(a), np.sin(a)) for i, a in enumerate(angle)}
        vectors |= {"q": (1.0, 0.0), "p": (0.0, 1.0)}
        # q ranks c0 c1 c2 c3 c4 c5: relevant at places 2 and 4; p ranks them backwards: place 6
        data = RetrievalSet(["q", "p"], [f"c{i}" for i in range(6)], [{1: 1.0, 3: 2.0}, {0: 1.0}])
        result = retrieval(Table(vectors), data, ks=(1, 2, 4))
        dcg = 1 / np.log2(3) + 2 / np.log2(5)
        ideal = 2 + 1 / np.log2(3)
        assert result.metrics == pytest.approx(
            {
                "mrr@10": (1 / 2 + 1 / 6) / 2,
                "recall@1": 0.0,
                "recall@2": 0.25,
                "recall@4": 0.5,
                "ndcg@10": (dcg / ideal + 1 / np.log2(7)) / 2,
            }
        )
        assert (result.kind, result.name) == ("retrieval", "table")
        assert result.details == {"retrieval": result.metrics, "queries": 2, "corpus": 6}

    def test_against_brute_force_and_sklearn(self):
        data, table = task()
        result = retrieval(table, data)
        queries = np.array([table.vectors[t] for t in data.queries])
        corpus = np.array([table.vectors[t] for t in data.corpus])
        order, _ = brute_force(queries, corpus, 10)
        reciprocal, recall = [], []
        for row, relevant in zip(order, data.relevant, strict=True):
            ranks = [rank for rank, place in enumerate(row, 1) if place in relevant]
            reciprocal.append(1 / ranks[0] if ranks else 0)
            recall.append(len(ranks) / len(relevant))
        assert result.metrics["mrr@10"] == pytest.approx(np.mean(reciprocal))
        assert result.metrics["recall@10"] == pytest.approx(np.mean(recall))
        gains = np.zeros((len(data.queries), len(data.corpus)))
        for row, relevant in zip(gains, data.relevant, strict=True):
            for place, gain in relevant.items():
                row[place] = gain
        unit = corpus / np.linalg.norm(corpus, axis=1, keepdims=True)
        scores = queries @ unit.T
        assert result.metrics["ndcg@10"] == pytest.approx(ndcg_score(gains, scores, k=10))

    def test_fewer_texts_than_places(self):
        data, table = task(size=4, corpus=6)
        assert retrieval(table, data).metrics["recall@10"] == 1

    def test_more_relevant_texts_than_places(self):
        vectors = {f"c{i}": [1.0, i / 100] for i in range(30)} | {"q": [1.0, 0.0]}
        data = RetrievalSet(["q"], [f"c{i}" for i in range(30)], [dict.fromkeys(range(20), 1.0)])
        metrics = retrieval(Table(vectors), data).metrics
        assert metrics == {"mrr@10": 1.0, "recall@1": 0.05, "recall@10": 0.5, "ndcg@10": 1.0}

    def test_the_dev_score_is_a_percentage(self):
        data, table = task()
        assert retrieval_dev(table, data) == 100 * retrieval(table, data).metrics["mrr@10"]

    def test_all_texts_are_encoded_in_one_call(self):
        data, table = task()
        retrieval(table, data, progress=True, batch_size=3)
        ((texts, batch_size, progress),) = table.calls
        assert texts == [*data.queries, *data.corpus]
        assert (batch_size, progress) == (3, True)


class TestBadInput:
    def test_nothing_to_search(self):
        with pytest.raises(InputError, match="found 0 queries and 1 texts"):
            retrieval(Table({}), RetrievalSet([], ["a"], []))

    def test_a_query_without_anything_relevant(self):
        data = RetrievalSet(["q"], ["a"], [{0: 0.0}])
        with pytest.raises(InputError, match=r"query 0 \('q'\) has no relevant text"):
            retrieval(Table({}), data)

    def test_recall_at_nothing(self):
        with pytest.raises(InputError, match="recall@k needs k of at least 1; found 0"):
            retrieval(Table({}), RetrievalSet(["q"], ["a"], [{0: 1.0}]), ks=(0, 1))


class TestSearch:
    TABLE = Table({"river": [1, 0], "boat": [1, 0.2], "mill": [0, 1], "stream": [1, 0.01]})

    def test_texts(self):
        found = search(self.TABLE, ["mill", "boat", "stream"], "river", top=2)
        assert [i for i, _ in found] == [2, 1]
        assert found[0][1] == pytest.approx(1 / np.hypot(1, 0.01))

    def test_embeddings(self):
        corpus = self.TABLE.encode(["mill", "boat", "stream"])
        texts = search(self.TABLE, ["mill", "boat", "stream"], "river")
        assert search(self.TABLE, corpus, "river") == texts
        assert len(texts) == 3

    def test_the_query_may_stand_in_the_corpus(self):
        assert search(self.TABLE, ["mill", "river"], "river", top=1) == [(1, 1.0)]

    def test_no_results(self):
        with pytest.raises(InputError, match="at least 1 result must be asked for; found 0"):
            search(self.TABLE, ["mill"], "river", top=0)

    @pytest.mark.parametrize("corpus", [[], np.empty((0, 2))])
    def test_no_corpus(self, corpus):
        with pytest.raises(InputError, match="the corpus is empty, so there is nothing to search"):
            search(self.TABLE, corpus, "river")

    @pytest.mark.parametrize("shape", [(4, 3), (4,)])
    def test_embeddings_of_another_encoder(self, shape):
        with pytest.raises(InputError, match="table gives 2 numbers a text; encode it again"):
            search(self.TABLE, np.ones(shape), "river")
