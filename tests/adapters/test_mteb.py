"""MTEB evaluates isotrope's encoders as they are: each holds a SentenceTransformer."""

import socket

import numpy as np
import pytest

from isotrope.data.text.sts_sets import Subset
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.sts import sts_dev


@pytest.fixture(scope="module")
def mteb(tmp_path_factory):
    """The package, imported with a cache of its own; skips, saying so, where it is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(tmp_path_factory.mktemp("mteb-cache")))
        return pytest.importorskip("mteb", reason="mteb is not installed: make test-mteb")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(self, address):
        raise AssertionError(f"a connection to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def task_of(mteb, pairs):
    """An STS task of mteb over scored pairs in memory."""
    datasets = pytest.importorskip("datasets")
    table = {"sentence1": pairs.first, "sentence2": pairs.second, "score": pairs.scores}

    class Local(mteb.abstasks.AbsTaskSTS):
        metadata = mteb.TaskMetadata(
            name="local",
            description="Scored pairs on this machine.",
            type="STS",
            main_score="cosine_spearman",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            dataset={"path": "local", "revision": "1"},
        )
        min_score, max_score = 0, 5

        def load_data(self, num_proc=None, **options):
            self.dataset = datasets.DatasetDict({"test": datasets.Dataset.from_dict(table)})
            self.data_loaded = True

    return Local()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # mteb's calls
def test_an_encoder_scores_in_mteb_what_it_scores_here(mteb):
    words = ["mill", "boat", "river", "wide", "small", "by", "the", "a", "on", "old"]
    rng = np.random.default_rng(0)
    first, second = ([" ".join(rng.choice(words, 5)) for _ in range(40)] for _ in "12")
    pairs = Subset("local", "local", "test", rng.integers(0, 11, 40) / 2, first, second)
    encoder = SentenceEncoder.scratch(["a small boat on a wide river", "the mill by the river"])
    found = mteb.evaluate(encoder.model, task_of(mteb, pairs), cache=None, show_progress_bar=False)
    (score,) = [100 * result.get_score() for result in found.task_results]
    assert score == pytest.approx(sts_dev(encoder, pairs), abs=1e-4)
