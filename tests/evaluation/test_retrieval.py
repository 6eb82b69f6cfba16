import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from isotrope.core.errors import InputError
from isotrope.core.progress import showing
from isotrope.data.text.retrieval_sets import RetrievalSet, from_pairs
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation import evaluate
from isotrope.evaluation.embed import CachedEncoder, Truncated
from isotrope.evaluation.retrieval import (
    BM25,
    own_prompts,
    query_changes,
    retrieval,
    retrieval_evaluation,
)
from isotrope.evaluation.tables import query_rows
from isotrope.evaluation.tasks import retrieval_tasks

from .conftest import Table
from .test_nearest import brute_force


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
        assert result.details == {
            "retrieval": result.metrics,
            "retrieval_set": {
                "queries": 2,
                "corpus": 6,
                "itself_not_ranked": 0,
                "query_prompt": "",
                "document_prompt": "",
            },
        }
        assert {name: values.tolist() for name, values in result.items.items()} == {
            "mrr@10": [1 / 2, 1 / 6],
            "recall@1": [0, 0],
            "recall@2": [0.5, 0],
            "recall@4": [1, 0],
            "ndcg@10": pytest.approx([dcg / ideal, 1 / np.log2(7)]),
            "rank": [2, 6],
            "first": [0, 5],
        }
        few = retrieval(Table(vectors), data, ks=(1,), depths=(4,))
        assert few.items["rank"].tolist() == [2, 6]
        assert few.items["mrr@4"].tolist() == [0.5, 0]
        assert query_rows([result, result], data)[1] == {
            "query": "p",
            "answers": '["c0"]',
            "rank: table": 6,
            "first: table": "c5",
        }
        named = replace(data, ids=(["Q", "P"], [f"C{i}" for i in range(6)]))
        assert query_rows([result], named)[0] == {
            "query_id": "Q",
            "query": "q",
            "answer_ids": '["C1", "C3"]',
            "answers": '["c1", "c3"]',
            "rank: table": 2,
            "first_id: table": "C0",
            "first: table": "c0",
        }

    @pytest.mark.parametrize("depth", [5, 10])
    def test_a_document_that_is_the_query_is_not_ranked(self, depth):
        data, table = task()
        itself = {i: (i * 7) % 50 for i in range(0, 30, 2) if (i * 7) % 50 not in data.relevant[i]}
        for i, place in itself.items():  # it would come first
            table.vectors[data.corpus[place]] = table.vectors[data.queries[i]]
        without = replace(data, itself=itself)
        found = retrieval(table, without, ks=(depth,), depths=(depth,)).items
        assert any(
            (found[name] > values).any()
            for name, values in retrieval(table, data, ks=(depth,), depths=(depth,)).items.items()
        )
        for i, query in enumerate(data.queries):
            kept = [j for j in range(50) if j != itself.get(i)]
            alone = RetrievalSet(
                [query],
                [data.corpus[j] for j in kept],
                [{kept.index(j): gain for j, gain in data.relevant[i].items()}],
            )
            one = retrieval(table, alone, ks=(depth,), depths=(depth,)).metrics
            assert {name: found[name][i] for name in one} == pytest.approx(one)

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

    def test_other_depths(self):
        data, table = task()
        found = retrieval(table, data, ks=(3,), depths=(1, 2, 50)).metrics
        names = ["mrr@1", "mrr@2", "mrr@50", "recall@3", "ndcg@1", "ndcg@2", "ndcg@50"]
        assert list(found) == names
        queries = np.array([table.vectors[t] for t in data.queries])
        corpus = np.array([table.vectors[t] for t in data.corpus])
        order, _ = brute_force(queries, corpus, 50)
        places = [
            min(i for i, place in enumerate(row) if place in relevant)
            for row, relevant in zip(order, data.relevant, strict=True)
        ]
        for k in (1, 2, 50):
            expected = np.mean([1 / (i + 1) if i < k else 0 for i in places])
            assert found[f"mrr@{k}"] == pytest.approx(expected)

    def test_fewer_texts_than_places(self):
        data, table = task(size=4, corpus=6)
        assert retrieval(table, data).metrics["recall@10"] == 1

    def test_more_relevant_texts_than_places(self):
        vectors = {f"c{i}": [1.0, i / 100] for i in range(30)} | {"q": [1.0, 0.0]}
        data = RetrievalSet(["q"], [f"c{i}" for i in range(30)], [dict.fromkeys(range(20), 1.0)])
        metrics = retrieval(Table(vectors), data).metrics
        assert metrics == {
            "mrr@10": 1.0,
            "recall@1": 0.05,
            "recall@10": 0.5,
            "recall@100": 1.0,
            "ndcg@10": 1.0,
        }

    def test_the_dev_score_is_a_percentage(self):
        data, table = task()
        assert (
            retrieval_evaluation(table, data).value
            == 100 * retrieval(table, data).metrics["mrr@10"]
        )

    def test_all_texts_are_encoded_in_one_call(self):
        data, table = task()
        with showing(show=True):
            retrieval(table, data, batch_size=3)
        ((texts, batch_size, progress),) = table.calls
        assert texts == [*data.queries, *data.corpus]
        assert (batch_size, progress) == (3, True)


class TestBadInput:
    def test_nothing_to_search(self):
        with pytest.raises(InputError, match="found 0 queries and 1 texts"):
            retrieval(Table({}), RetrievalSet([], ["a"], []))

    def test_a_query_without_anything_relevant(self):
        data = RetrievalSet(["q"], ["a"], [{0: 0.0}])
        with pytest.raises(InputError, match=r"remove query 0 \('q'\): it has no relevant text"):
            retrieval(Table({}), data)


class TestWords:
    def test_words_of_one_character_count(self):
        pytest.importorskip("bm25s")
        corpus = ["the language c", "the language r", "plan 9", "an emoji"]
        found = BM25().places(["R", "which language is C?", "9"], corpus, 1)
        assert found.ravel().tolist() == [1, 0, 2]

    @pytest.mark.parametrize("corpus", [["a boat", "?", "a mill"], ["?", "!"]])
    def test_a_query_without_a_word_ranks_as_the_corpus_stands(self, corpus):
        pytest.importorskip("bm25s")
        found = BM25().places(["?", "", "\N{SLIGHTLY SMILING FACE}", "unheard"], corpus, 3)
        assert found.tolist() == [[*range(len(corpus))]] * 4

    @pytest.mark.parametrize("top", [1, 5, 17, 40, 99])
    def test_in_a_tie_the_lower_index_comes_first(self, top):
        pytest.importorskip("bm25s")
        counts = np.random.default_rng(0).integers(0, 4, 40)
        corpus = [" ".join(["x"] * n + ["y"] * (4 - n)) for n in counts]
        found = BM25().places(["x"], corpus, top)
        assert found.tolist() == [sorted(range(40), key=lambda i: (-counts[i], i))[:top]]


class TestPrompts:
    @pytest.fixture
    def prompted(self, tiny, monkeypatch):
        monkeypatch.setattr(tiny.model, "prompts", {"query": "the mill: ", "passage": "river "})
        return tiny

    @pytest.fixture
    def data(self):
        words = ["a", "small", "boat", "on", "wide", "river", "the", "mill", "by"]
        rng = np.random.default_rng(0)
        texts = [" ".join(rng.choice(words, 4)) for _ in range(40)]
        return from_pairs(zip(texts[:20], texts[20:], strict=True))

    @pytest.mark.parametrize("name", ["document", "passage", "corpus"])
    def test_the_prompt_of_documents_may_have_another_name(self, tiny, tmp_path, name):
        tiny.save(tmp_path)
        file = tmp_path / "config_sentence_transformers.json"
        file.write_text(json.dumps({"prompts": {"query": "q: ", name: "d: "}}))
        encoder = SentenceEncoder.load(tmp_path, device="cpu")
        assert encoder.model.prompts["document"] == ("d: " if name == "document" else "")
        assert own_prompts(encoder) == ("q: ", "d: ")

    def test_a_model_is_scored_with_the_prompts_that_it_was_saved_with(self, prompted, data):
        queries = prompted.model.encode_query(data.queries, normalize_embeddings=True)
        documents = prompted.model.encode_document(data.corpus, normalize_embeddings=True)
        ranked = np.argsort(-(queries @ documents.T), axis=1, kind="stable")
        right = [set(places) for places in data.relevant]
        hits = np.array([[i in own for i in row] for row, own in zip(ranked, right, strict=True)])
        expected = np.where(hits[:, :10].any(axis=1), 1 / (1 + hits.argmax(axis=1)), 0.0)
        scored = retrieval(prompted, data)
        assert scored.items["mrr@10"].tolist() == expected.tolist()
        without = retrieval(prompted, data, prompts=("", "")).items["mrr@10"]
        assert without.tolist() != expected.tolist()
        details = scored.details["retrieval_set"]
        assert (details["query_prompt"], details["document_prompt"]) == ("the mill: ", "river ")
        wrapped = (
            prompted.model,
            CachedEncoder(prompted),
            Truncated(prompted, prompted.dimension),
        )
        for encoder in wrapped:
            assert retrieval(encoder, data).items["mrr@10"].tolist() == expected.tolist()

    def test_prompts_that_the_pooling_leaves_out_are_refused(self, prompted, data, monkeypatch):
        monkeypatch.setattr(prompted.model[1], "include_prompt", False)
        for encoder in (prompted, prompted.model, CachedEncoder(prompted), Truncated(prompted, 4)):
            with pytest.raises(InputError, match="set include_prompt to true in the pooling"):
                retrieval(encoder, data)
            assert retrieval(encoder, data, prompts=("", "")).metrics

    def test_another_prompt_is_another_task(self, prompted, data, tmp_path, monkeypatch):
        file = tmp_path / "pairs.tsv"
        pairs = zip(data.queries, data.corpus, strict=False)
        file.write_text("".join(f"{query}\t{text}\n" for query, text in pairs))
        first, second = (evaluate(prompted, retrieval=file) for _ in range(2))
        assert (first.provenance["reused"], second.provenance["reused"]) == ([], ["retrieval"])
        monkeypatch.setattr(prompted.model, "prompts", {})
        assert evaluate(prompted, retrieval=file).provenance["reused"] == []

    def test_a_prompt_before_every_text_is_put_there_once(self, prompted, monkeypatch):
        monkeypatch.setattr(prompted.model, "default_prompt_name", "query")
        assert own_prompts(prompted.model) == ("", "")
        assert own_prompts(Table({})) == ("", "")


def test_a_query_that_fell_is_shown_with_its_best_answer():
    vectors = {"c0": (1, 0), "c1": (0.8, 0.6), "c2": (0, 1), "q": (1.0, 0.1)}
    data = RetrievalSet(["q"], ["c0", "c1", "c2"], [{2: 1.0, 0: 2.0}])
    other = Table({**vectors, "q": (0.8, 0.6)})
    (changes,) = query_changes([retrieval(Table(vectors), data), retrieval(other, data)], data)
    (query,) = changes["most"]
    assert (query["rank"], query["first"], query["answer"]) == ([1, 2], "c1", "c0")


def test_queries_without_a_relevant_document_are_counted(tmp_path, capsys):
    (tmp_path / "corpus.tsv").write_text("d\ta document\n")
    (tmp_path / "queries.tsv").write_text("q\ta query\np\tanother query\n")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("q\td\t1\n")
    retrieval_tasks(tmp_path, progress=True, batch_size=1)
    assert "left out: 1 queries" in capsys.readouterr().err
