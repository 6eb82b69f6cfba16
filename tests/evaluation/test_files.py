"""Encoding and searching a file: order, blocks, and what is refused."""

import csv
import functools
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.data.sources import read
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation import files
from tests.refused import refused_setting

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


def test_a_line_of_a_text_file_is_a_text_as_in_training(model: Path, tmp_path: Path) -> None:
    texts = ["1\tone text", "2\tanother text", "a text\twith a tab"]
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(texts) + "\n")
    assert [record.texts for record in read([file])] == [(text,) for text in texts]
    assert files.encode_file(model, file, tmp_path / "out.npy", device="cpu")[0] == 3
    assert {hit.text for hit in files.search(model, file, "text", device="cpu")} == set(texts)


def test_a_search_from_python_shows_its_progress(
    model: Path, corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isotrope.core.progress.LINES", 0.0)
    files.search(model, corpus, "boat", batch_size=9, device="cpu")
    printed = capsys.readouterr().err
    assert re.search(r"^embed corpus: \d+ of \d+ tokens", printed, re.M)
    assert "read corpus.txt" in printed
    files.search(model, corpus, "boat", batch_size=9, device="cpu", progress=False)
    assert capsys.readouterr().err == ""


def test_an_interrupted_encoding_continues_after_the_rows_that_are_there(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BLOCK", 5)
    whole, out = tmp_path / "whole.npy", tmp_path / "out.npy"
    files.encode_file(model, corpus, whole, device="cpu")
    encode, seen = SentenceEncoder.encode, list[int]()

    def interrupted(self: SentenceEncoder, texts: list[str], **how: object) -> np.ndarray:
        seen.append(len(texts))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return encode(self, texts, **how)

    monkeypatch.setattr(SentenceEncoder, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.encode_file(model, corpus, out, device="cpu")
    (kept,) = tmp_path.glob(".out.npy.*/rows.npy")
    with kept.open("ab") as handle:
        handle.write(b"half a row")
    assert not out.exists()
    seen[:] = [0, 0]
    with pytest.raises(KeyboardInterrupt):  # other rows: all anew
        files.encode_file(model, corpus, out, normalize=True, device="cpu")
    assert len(list(tmp_path.glob(".out.npy.*"))) == 2
    files.encode_file(model, corpus, out, device="cpu")
    assert seen[3:] == [5, 3]
    assert out.read_bytes() == whole.read_bytes()
    assert (tmp_path / "out.rows.csv").read_bytes() == (tmp_path / "whole.rows.csv").read_bytes()
    assert not list(tmp_path.glob(".*"))


def test_a_table_beside_the_matrix_lists_its_rows(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    def rows_of(file: Path, **options: Any) -> list[dict[str, str]]:
        n, _ = files.encode_file(model, file, tmp_path / "out.npy", device="cpu", **options)
        with (tmp_path / "out.rows.csv").open(newline="") as table:
            rows = list(csv.DictReader(table))
        assert len(rows) == n
        return rows

    table = tmp_path / "faq.csv"
    table.write_text('id,question,answer\na,x,"red\nboat"\nb,y,\n"c,d",z,old gate\n')
    with table.open(newline="") as handle:
        records = list(csv.DictReader(handle))
    rows = rows_of(table, columns="answer")
    assert [records[int(row["row"]) - 1]["answer"] for row in rows] == ["red\nboat", "old gate"]
    assert [(row["line"], row["id"]) for row in rows] == [("2", "a"), ("5", "c,d")]
    lines = corpus.read_text().splitlines()
    assert [lines[int(row["line"]) - 1] for row in rows_of(corpus)] == TEXTS
    own = tmp_path / "out.rows.csv"
    own.write_text(before := "text\na red boat\n")
    with pytest.raises(InputError, match="input"):
        files.encode_file(model, own, tmp_path / "out.npy", device="cpu")
    assert own.read_text() == before


def test_a_worker_loads_a_model_that_was_replaced_again(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    rows = []
    for seed in (0, 1):
        encoder = SentenceEncoder.scratch(TEXTS, seed=seed)
        encoder.save(folder)
        how = {"batch_size": 8}
        source = files._Source(folder, None, "cpu", encoder.fingerprint())
        rows.append(files._encode_block(0, source, TEXTS, how))
        np.testing.assert_allclose(rows[-1], encoder.encode(TEXTS), atol=1e-6)
    assert not np.allclose(*rows)


@pytest.mark.slow  # each process imports torch and loads the model
def test_several_processes_give_the_same_rows_in_order(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BLOCK", 5)
    alone, beside = tmp_path / "alone.npy", tmp_path / "beside.npy"
    files.encode_file(model, corpus, alone, normalize=True, device="cpu")
    files.encode_file(model, corpus, beside, normalize=True, device="cpu", jobs=2)
    np.testing.assert_allclose(np.load(beside), np.load(alone), atol=1e-6)


def test_a_killed_process_is_named_and_the_rows_before_it_are_kept(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BLOCK", 5)
    block = files._encode_block
    monkeypatch.setattr(files, "_encode_block", functools.partial(_killed_at, 3, block))
    with pytest.raises(InputError, match="fewer jobs"):
        files.encode_file(model, corpus, tmp_path / "out.npy", device="cpu", jobs=2)
    monkeypatch.undo()
    assert not (tmp_path / "out.npy").exists()
    files.encode_file(model, corpus, tmp_path / "out.npy", device="cpu")
    assert np.load(tmp_path / "out.npy").shape == (18, 128)


def _killed_at(last: int, block: Callable[..., np.ndarray], place: int, *more: Any) -> np.ndarray:
    if place == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return block(place, *more)


def test_normalised_rows_have_length_one(model: Path, corpus: Path, tmp_path: Path) -> None:
    files.encode_file(model, corpus, tmp_path / "out.npy", normalize=True, device="cpu")
    lengths = np.linalg.norm(np.load(tmp_path / "out.npy"), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)


def test_lines_are_those_of_the_file(model: Path, corpus: Path) -> None:
    (score, line, text), *_ = files.search(model, corpus, TEXTS[3], top=2, device="cpu")
    assert (line, text) == (7, TEXTS[3])
    assert score == pytest.approx(1, abs=1e-6)


def test_what_is_refused(model: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the query is empty"):
        files.search(model, corpus, "  ")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one\ttwo\n")
    with pytest.raises(InputError, match=r"choose a column, for example columns=2: .* holds pairs"):
        files.encode_file(model, pairs, tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()


class Table:
    """An encoder of four words."""

    name = "table"
    rows = {"river": [1, 0], "boat": [1, 0.2], "mill": [0, 1], "stream": [1, 0.01]}  # noqa: RUF012

    def encode(self, texts):
        return np.array([self.rows[text] for text in texts], dtype=np.float32)


WORDS = ["mill", "boat", "stream"]


def test_search_among_texts() -> None:
    found = files.search(Table(), WORDS, "river", top=2)
    assert [(hit.place, hit.text) for hit in found] == [(2, "stream"), (1, "boat")]
    assert found[0].score == pytest.approx(1 / np.hypot(1, 0.01))
    assert files.search(Table(), ["mill", "river"], "river", top=1) == [(1.0, 1, "river")]


def test_equal_texts_are_one_hit(tmp_path: Path) -> None:
    found = files.search(Table(), ["mill", "boat", "stream", "boat", "stream"], "river", top=9)
    assert [(hit.place, hit.text) for hit in found] == [(2, "stream"), (1, "boat"), (0, "mill")]
    assert [hit.places for hit in found] == [[2, 4], [1, 3], [0]]
    path = tmp_path / "pairs.tsv"
    path.write_text("river\tmill\nboat\tboat\nriver\tmill\n")
    found = files.search(Table(), path, "river", columns="2")
    assert [(hit.place, hit.text) for hit in found] == [(2, "boat"), (1, "mill")]
    assert [hit.places for hit in found] == [[2], [1, 3]]
    with pytest.raises(InputError, match=r"columns by number \(1 to 2\), .* no column '3'"):
        files.search(Table(), path, "river", columns="3")


def test_many_queries_at_once() -> None:
    several = files.search(Table(), WORDS, ["river", "mill"])
    assert several == [files.search(Table(), WORDS, query) for query in ("river", "mill")]


def test_search_among_embeddings() -> None:
    texts = files.search(Table(), WORDS, "river")
    rows = files.search(Table(), Table().encode(WORDS), "river")
    assert [hit[:2] for hit in rows] == [hit[:2] for hit in texts]
    assert {hit.text for hit in rows} == {""}


def test_searches_that_are_refused() -> None:
    with refused_setting("top", value=0):
        files.search(Table(), ["mill"], "river", top=0)
    for corpus in ([], np.empty((0, 2))):
        with pytest.raises(InputError, match="give a corpus with at least one text"):
            files.search(Table(), corpus, "river")
    for shape in ((4, 3), (4,)):
        with pytest.raises(InputError, match=r"table makes embeddings of shape \(4, 2\)"):
            files.search(Table(), np.ones(shape), "river")
    with pytest.raises(InputError, match=r"row 2 of the matrix has NaN or infinity"):
        files.search(Table(), np.array([[1, 0], [0, 1], [0, np.nan]]), "river")


def test_stored_embeddings_are_used_and_recognised(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "out.npy"
    files.encode_file(model, corpus, stored, device="cpu")
    fresh = files.search(model, corpus, TEXTS[3], device="cpu")
    monkeypatch.setattr(files, "_COMPARED", 2)
    encoded: list[str] = []
    encode = SentenceEncoder.encode

    def counted(self, texts, **options):
        encoded.extend(texts)
        return encode(self, texts, **options)

    monkeypatch.setattr(SentenceEncoder, "encode", counted)
    kept = files.search(model, corpus, TEXTS[3], device="cpu", embeddings=stored)
    assert encoded == [TEXTS[3], TEXTS[0], TEXTS[-1]]
    assert [hit[1:] for hit in kept] == [hit[1:] for hit in fresh]
    np.testing.assert_allclose([hit.score for hit in kept], [hit.score for hit in fresh], atol=1e-5)

    rows = np.load(stored)
    np.save(stored, rows[::-1])
    with pytest.raises(InputError, match=r"row 0 of .* is not the embedding of text 1"):
        files.search(model, corpus, "x", device="cpu", embeddings=stored)
    np.save(stored, rows[1:])
    with pytest.raises(
        InputError, match=r"have shape \(17, 128\), but .* makes embeddings of shape \(18, 128\)"
    ):
        files.search(model, corpus, "x", device="cpu", embeddings=stored)
    stored.write_text("nothing")
    with pytest.raises(InputError, match="numpy cannot read it as a matrix"):
        files.search(model, corpus, "x", device="cpu", embeddings=stored)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda rows: np.where(np.arange(18)[:, None] == 16, np.nan, rows), "row 16 of the mat"),
        (lambda rows: np.full_like(rows, np.inf), "row 0 of the matrix has NaN or infinity"),
        (lambda rows: rows.astype("U4"), "the file now holds <U4, not floating-point numbers"),
        (lambda rows: rows.astype("S4"), r"now holds \|S4, not floating"),
        (lambda rows: rows.astype("M8[s]"), r"now holds datetime64\[s\], not floating"),
        (lambda rows: rows.astype(complex), "now holds complex128, not floating"),
        (lambda rows: rows[0, 0], r"have shape \(\), but .* makes embeddings of shape \(18, 128\)"),
    ],
)
def test_stored_embeddings_that_are_no_numbers(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil, message: str
) -> None:
    stored = tmp_path / "out.npy"
    files.encode_file(model, corpus, stored, device="cpu")
    np.save(stored, spoil(np.load(stored)))
    monkeypatch.setattr(files, "_BLOCK", 5)
    with pytest.raises(InputError, match=message):
        files.search(model, corpus, "x", device="cpu", embeddings=stored)


def test_stored_embeddings_in_no_file_of_one_array(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    stored = tmp_path / "out.npy"
    with stored.open("wb") as file:
        np.savez(file, np.ones((18, 128)))
    zipped, header = stored.read_bytes(), {"descr": "<f4", "fortran_order": False}
    for content in (zipped, zipped[:300], b"\x93NUMPY\x01\x00\x08\x00{'a': (\n"):
        stored.write_bytes(content)
        with pytest.raises(InputError, match=r"out\.npy .* numpy cannot read it as a matrix"):
            files.search(model, corpus, "x", device="cpu", embeddings=stored)
    with stored.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (10**30, 128)})
    with pytest.raises(InputError, match=r"out\.npy .* numpy cannot read it as a matrix"):
        files.search(model, corpus, "x", device="cpu", embeddings=stored)


def test_prompts_are_those_the_model_was_saved_with(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    encoder = SentenceEncoder.load(model, device="cpu")
    encoder.model.prompts = {"query": "question: ", "document": "passage: "}
    encoder.save(tmp_path / "prompted")
    own = files.search(tmp_path / "prompted", corpus, "a boat", device="cpu")
    given = {"query_prompt": "question: ", "passage_prompt": "passage: "}
    assert own == files.search(model, corpus, "a boat", device="cpu", **given)
    assert own != files.search(model, corpus, "a boat", device="cpu")
    files.encode_file(tmp_path / "prompted", corpus, tmp_path / "a.npy", device="cpu")
    files.encode_file(model, corpus, tmp_path / "b.npy", prompt="passage: ", device="cpu")
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"), atol=1e-6)


def test_ids_of_a_file_name_its_hits(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    rows = [{"_id": f"d{i}", "text": text, "label": "x"} for i, text in enumerate(TEXTS)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (hit,) = files.search(model, file, TEXTS[3], top=1, device="cpu")
    assert (hit.place, hit.text) == ("d3", TEXTS[3])
    table = tmp_path / "corpus.csv"
    table.write_text("id,text\n7,a red boat\n,an old gate\n")
    hits = files.search(model, table, "a red boat", device="cpu")
    assert {hit.place for hit in hits} == {2, 3}  # one text has no id: the lines of all


def test_the_saved_prompts_of_every_model_are_used(model: Path) -> None:
    theirs = SentenceEncoder.load(model, device="cpu").model
    theirs.prompts = {"query": "the old ", "document": "number "}
    ours = SentenceEncoder(theirs, "ours")
    assert files.search(theirs, TEXTS, TEXTS[3]) == files.search(ours, TEXTS, TEXTS[3])
    plain = files.search(theirs, TEXTS, TEXTS[3], query_prompt="", passage_prompt="")
    assert plain[0].score > files.search(theirs, TEXTS, TEXTS[3])[0].score
    theirs.set_pooling_include_prompt(False)
    for encoder in (theirs, ours):
        with pytest.raises(InputError, match="set include_prompt to true in the pooling"):
            files.search(encoder, TEXTS, TEXTS[3])
        assert files.search(encoder, TEXTS, TEXTS[3], query_prompt="", passage_prompt="") == plain
