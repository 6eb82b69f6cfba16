import numpy as np
import pytest

import isotrope
from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder

from .conftest import Table


@pytest.fixture
def pairs(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"query {i}\tanswer {i}\n" for i in range(12)))
    return file


@pytest.fixture
def labels(tmp_path):
    file = tmp_path / "labels.tsv"
    file.write_text("".join(f"{'ab'[i % 2]}\tboat {i} {'mill' * (i % 2)}\n" for i in range(40)))
    return file


def test_a_saved_model_by_its_path(tiny, sts_folder, pairs, labels, tmp_path):
    tiny.save(tmp_path / "model")
    together = isotrope.evaluate(
        tmp_path / "model", sts=sts_folder, retrieval=pairs, labels=labels, device="cpu"
    )
    assert together.kind == "sts+retrieval+knn+linear"
    assert together.name == together.details["model"]["name"] == str(tmp_path / "model")
    alone = [
        isotrope.evaluate(tiny, sts=str(sts_folder), results=None),
        isotrope.evaluate(tiny, retrieval=str(pairs), results=None),
        isotrope.evaluate(tiny, labels=labels, linear=False, results=None),
        isotrope.evaluate(tiny, labels=labels, knn=False, results=None),
    ]
    assert [result.kind for result in alone] == together.kind.split("+")
    for result in alone:
        (kind,) = result.details["protocol"]
        assert result.details["protocol"][kind] == together.details["protocol"][kind]
        assert result.details["data"].items() <= together.details["data"].items()
        for key in set(result.details) - {"model", "data", "protocol"}:
            assert result.details[key] == together.details[key]
        assert result.metrics.items() <= together.metrics.items()
        assert result.items.keys() <= together.items.keys()
        fingerprint = result.details["model"]["fingerprint"]
        assert fingerprint == together.details["model"]["fingerprint"] == tiny.fingerprint()
    assert sum(len(result.items) for result in alone) == len(together.items)
    with pytest.raises(InputError, match="no pooling 'median'"):
        isotrope.evaluate(tmp_path / "model", retrieval=pairs, pooling="median")


class Known(Table):
    """A table that can be recognised."""

    def __init__(self, vectors, fingerprint="one"):
        super().__init__(vectors)
        self._fingerprint = fingerprint

    def fingerprint(self):
        return self._fingerprint


@pytest.fixture
def vectors():
    rng = np.random.default_rng(0)
    names = [f"{kind} {i}" for kind in ("query", "answer") for i in range(13)]
    return {name: rng.normal(size=3) for name in names}


def test_where_scores_cannot_be_stored_they_are_still_made(vectors, pairs, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(pairs))  # a file, so no folder can be made in it
    assert isotrope.evaluate(Known(vectors), retrieval=pairs).metrics
    assert "to store the scores, choose a folder with --results: " in capsys.readouterr().err
    with pytest.raises(InputError):
        isotrope.evaluate(Known(vectors), retrieval=pairs, results=pairs / "chosen")


def test_a_finished_task_is_not_scored_again(vectors, pairs, cache, capsys):
    def evaluate(encoder=None, **options):
        encoder = encoder or Known(vectors)
        return isotrope.evaluate(encoder, retrieval=pairs, **options), encoder.calls

    first, calls = evaluate()
    assert len(calls) == 1
    how, counts = capsys.readouterr().err.splitlines()
    assert how.startswith("read pairs.tsv: 12 pairs, no header")
    counted = f"{pairs}: 12 queries, 12 documents (equal texts count once)"
    assert counts == f"{counted}; only these are ranked: add other texts with corpus=FILE"
    assert first.provenance["reused"] == []
    assert len(list((cache / "isotrope" / "evaluations").glob("retrieval-*.json"))) == 1

    second, calls = evaluate()
    assert calls == []
    assert (second.details, second.metrics) == (first.details, first.metrics)
    assert second.items.keys() == first.items.keys()
    assert second.provenance["reused"] == ["retrieval"]
    said = capsys.readouterr().err
    assert "already scored, see " in said
    assert ": retrieval (to repeat: again)" in said

    assert len(evaluate(again=True)[1]) == 1
    assert len(evaluate(Known(vectors, "other weights"))[1]) == 1
    assert len(evaluate(results=None)[1]) == 1
    assert len(evaluate(results=cache / "elsewhere")[1]) == 1
    assert evaluate(results=str(cache / "elsewhere"))[1] == []
    pairs.write_text(pairs.read_text() + "query 12\tanswer 12\n")  # other data
    assert len(evaluate()[1]) == 1


def test_what_bm25_cannot_score_is_an_error_before_another_model_is_scored(vectors, pairs, labels):
    table = Table(vectors)
    with pytest.raises(InputError, match="bm25"):
        isotrope.compare([table, "bm25"], retrieval=pairs, labels=labels)
    assert table.calls == []


def test_labelled_texts_are_queries_among_the_others(tmp_path):
    angles = {"a one": 0, "a two": 10, "b one": 18, "b two": 40, "a three": 60}
    table = Table({t: [np.cos(np.radians(a)), np.sin(np.radians(a))] for t, a in angles.items()})
    file = tmp_path / "labelled.csv"
    file.write_text("text,label\n" + "".join(f"{text},{text[0]}\n" for text in angles))
    found = isotrope.evaluate(table, retrieval=file)
    # the ranks of the right answers are 1 and 4; 2 and 4; 3; 2; 3 and 4
    assert found.items["rank"].tolist() == [1, 2, 3, 2, 3]
    assert found.metrics["mrr@10"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 2 + 1 / 3) / 5)
    assert found.metrics["recall@1"] == pytest.approx(0.5 / 5)
    gain = 1 / np.log2(np.arange(1, 5) + 1)
    two = np.array([gain[0] + gain[3], gain[1] + gain[3], gain[2] + gain[3]]) / gain[:2].sum()
    assert found.metrics["ndcg@10"] == pytest.approx((two.sum() + gain[2] + gain[1]) / 5)


def test_an_encoder_that_cannot_be_recognised_is_scored_each_time(vectors, pairs, cache):
    for _ in range(2):
        table = Table(vectors)
        isotrope.evaluate(table, retrieval=pairs)
        assert len(table.calls) == 1
    assert list(cache.iterdir()) == []


def test_a_run_keeps_its_own_evaluations(tiny, pairs, tmp_path, cache):
    tiny.save(tmp_path / "run" / "model")
    RunFolder(tmp_path / "run").write_settings("{}\n")
    isotrope.evaluate(tmp_path / "run", retrieval=pairs, device="cpu")
    assert len(list((tmp_path / "run" / "evaluations").glob("retrieval-*.json"))) == 1
    # the same weights, in a place of its own
    found = isotrope.evaluate(tiny, retrieval=pairs, results=tmp_path / "run" / "evaluations")
    assert found.provenance["reused"] == ["retrieval"]
    assert list(cache.iterdir()) == []


def test_a_truncated_encoder_is_scored_and_kept_by_itself(tiny, pairs, tmp_path, cache):
    from sentence_transformers import SentenceTransformer

    tiny.save(tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu", truncate_dim=3)
    cut = isotrope.evaluate(tmp_path / "model", retrieval=pairs, truncate_dim=3, device="cpu")
    assert cut.metrics == isotrope.evaluate(theirs, retrieval=pairs).metrics
    assert cut.name == f"{tmp_path / 'model'}, 3 x float32 (12 bytes)"
    whole = isotrope.evaluate(tmp_path / "model", retrieval=pairs, device="cpu")
    assert whole.provenance["reused"] == []
    assert whole.details["model"] != cut.details["model"]
    again = isotrope.evaluate(tmp_path / "model", retrieval=pairs, truncate_dim=3, device="cpu")
    assert again.provenance["reused"] == ["retrieval"]


def test_any_encoder(pairs):
    rng = np.random.default_rng(0)
    names = [f"{kind} {i}" for kind in ("query", "answer") for i in range(12)]
    table = Table({name: rng.normal(size=3) for name in names})
    assert isotrope.evaluate(table, retrieval=pairs, batch_size=4).name == "table"
    assert table.calls[0][1] == 4


def test_nothing_to_evaluate_on():
    with pytest.raises(InputError, match="give data to evaluate on: sts=DIR"):
        isotrope.evaluate("all-MiniLM-L6-v2")


def test_the_data_are_looked_at_before_the_model(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        isotrope.evaluate("no/such-model", sts=tmp_path / "nowhere")
