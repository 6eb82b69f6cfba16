"""Encoding and searching a file: order, blocks, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation import files

TEXTS = [
    f"the {a} {b} number {i}" for i, (a, b) in enumerate([("red", "boat"), ("old", "gate")] * 9)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files") / "model"
    SentenceEncoder.scratch(TEXTS).save(folder)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.txt"
    file.write_text("\n\n".join(TEXTS) + "\n")  # blank lines are left out
    return file


def test_rows_follow_the_file_whatever_the_blocks(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BLOCK", 5)
    n, d = files.encode_file(model, corpus, tmp_path / "out.npy", device="cpu")
    matrix = np.load(tmp_path / "out.npy")
    assert matrix.shape == (n, d) == (18, 128)
    expected = SentenceEncoder.load(model, device="cpu").encode(TEXTS)
    np.testing.assert_allclose(matrix, expected, atol=1e-6)


def test_normalised_rows_have_length_one(model: Path, corpus: Path, tmp_path: Path) -> None:
    files.encode_file(model, corpus, tmp_path / "out.npy", normalize=True, device="cpu")
    lengths = np.linalg.norm(np.load(tmp_path / "out.npy"), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)


def test_lines_are_those_of_the_file(model: Path, corpus: Path) -> None:
    (score, line, text), *_ = files.search_file(model, corpus, TEXTS[3], top=2, device="cpu")
    assert (line, text) == (7, TEXTS[3])
    assert score == pytest.approx(1, abs=1e-6)


def test_what_is_refused(model: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.npy"):
        files.encode_file(model, corpus, tmp_path / "out.csv")
    with pytest.raises(InputError, match="the query is empty"):
        files.search_file(model, corpus, "  ")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one\ttwo\n")
    with pytest.raises(InputError, match="holds pairs; name the one column"):
        files.encode_file(model, pairs, tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()
