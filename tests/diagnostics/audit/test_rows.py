"""Reading and embedding rows: lines, views, groups, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from isotrope.core import progress
from isotrope.core.errors import InputError
from isotrope.data.sources import read
from isotrope.diagnostics.audit import run
from isotrope.diagnostics.audit.rows import embed_rows, pair_rows, read_rows
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.uncover import Uncovered
from isotrope.verbs import audit
from tests.diagnostics.audit.handmade import of
from tests.training.conftest import sentences


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    torch.set_num_threads(1)
    return SentenceEncoder.scratch(sentences(60), width=32, layers=1, vocabulary=300)


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_rows_keep_their_lines_where_others_are_left_out(tmp_path: Path) -> None:
    file = written(tmp_path, "pairs.tsv", "a\tb\n\n\tno anchor\nc\td\nA!\te\n")
    rows = read_rows(file)
    assert rows.lines.tolist() == [1, 4, 5]
    assert (rows.views, rows.empty, rows.name) == ("pairs", 1, "pairs.tsv")
    assert rows.marks[0, 0] == rows.marks[2, 0]


def test_each_reason_for_which_rows_are_left_out_is_kept(tmp_path: Path) -> None:
    rows = "text,label\na,1\nb,1\n,1\nc,2\nd,\ntext,label\n"
    rows = read_rows(written(tmp_path, "labelled.csv", rows))
    assert rows.empty == 1
    assert rows.left_out == (
        "1 row with an empty text (line 4), 1 row with no label (line 6), 1 row with a repeated "
        "header (line 7), 1 row with a label that no other row has (line 5)"
    )


def test_adjacent_texts_have_the_line_of_the_second(tmp_path: Path) -> None:
    file = written(tmp_path, "texts.txt", "one\ntwo\n\nthree\nfour\nfive\n")
    rows = read_rows(file, views="adjacent")
    assert rows.texts == [("one", "two"), ("three", "four"), ("four", "five")]
    assert rows.lines.tolist() == [2, 5, 6]


def test_each_bar_names_the_side_that_is_embedded(
    encoder: SentenceEncoder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "LINES", 0.0)
    rows = read_rows([(f"a{i}", f"b{i}", f"c{i}") for i in range(130)])
    with progress.showing(show=True):
        embed_rows(encoder, rows)
    lines = [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        f"embed {side}: {count} of 390 tokens"
        for side in ("anchors", "positives", "hard negatives")
        for count in (384, 390)
    ]
    with progress.showing(show=True):
        embed_rows(encoder, read_rows([f"a{i}" for i in range(70)]))
    lines = [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == [f"embed anchors and positives: {count} of 70 texts" for count in (64, 70)]


def test_texts_in_memory_are_counted_from_one() -> None:
    rows = read_rows([("a", "b"), ("c", ""), ("e", "f")])
    assert rows.lines.tolist() == [1, 3]


def test_rows_of_a_group_of_their_own_are_no_negatives(
    tmp_path: Path, encoder: SentenceEncoder
) -> None:
    text = "anchor,positive,product\na,b,7\nc,d,\ne,f,7\ng,h,8\nC!,i,\n"
    file = written(tmp_path, "pairs.csv", text)
    first, second, third, fourth, fifth = embed_rows(
        encoder, read_rows(file, groups="product")
    ).groups.tolist()
    assert first == third
    assert second == fifth  # they share a text
    assert len({first, second, fourth}) == 3
    alone = embed_rows(encoder, read_rows(file)).groups.tolist()
    assert len(set(alone)) == 4
    with pytest.raises(InputError, match="the columns have no names"):
        read_rows([("a", "b"), ("c", "d")], groups="product")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\n", "give at least 2 rows with text: "),
        ("a\t\nb\t\n", "holds no text"),
    ],
)
def test_too_few_rows_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_rows(written(tmp_path, "pairs.tsv", text))


def test_a_folder_of_several_files_and_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give a folder with a file"):
        read_rows(tmp_path)
    written(tmp_path, "test.tsv", "a\tb\n")
    written(tmp_path, "train.tsv", "a\tb\nc\td\n")
    rows = read_rows(tmp_path)
    assert (rows.name, len(rows)) == ("train.tsv", 2)
    written(tmp_path, "train_2.tsv", "a\tb\n")
    with pytest.raises(InputError, match=r"give one file, such as .*/train\.tsv"):
        read_rows(tmp_path)
    with pytest.raises(InputError, match="give at least one record; this table holds no text"):
        read_rows([])


def test_embeddings_that_are_not_finite_and_one_row_are_refused() -> None:
    broken = torch.ones(3, 4)
    broken[1, 2] = torch.nan
    with pytest.raises(InputError, match="the embedding of positive 1 is NaN or infinite"):
        of(torch.ones(3, 4), broken)
    with pytest.raises(InputError, match="at least 2 rows; found 1"):
        of(torch.ones(1, 4), torch.ones(1, 4))


def test_pairs_are_the_plain_embeddings_and_dropout_makes_two_views(
    encoder: SentenceEncoder,
) -> None:
    texts = [*sentences(20), " ".join(sentences(20))]
    pairs = embed_rows(encoder, read_rows([(text, text[::-1]) for text in texts]), max_length=16)
    np.testing.assert_allclose(pairs.anchors, encoder.encode(texts, max_length=16), atol=1e-6)
    assert pairs.cut[-1]
    assert pairs.lengths[-1, 0] > 16
    assert pairs.limits == (16, encoder.max_length, encoder.positions)
    longest = " ".join(["word"] * encoder.max_length)  # cut by the encoder's own limit, too
    at_most = embed_rows(encoder, read_rows([("a", longest), ("b", "c")]), max_length=10**6)
    assert at_most.cut.tolist() == [True, False]
    assert at_most.lengths[0, 1] > encoder.max_length
    single = embed_rows(encoder, read_rows(texts), max_length=16, seed=1)
    again = embed_rows(encoder, read_rows(texts), max_length=16, seed=1)
    assert bool((single.anchors == again.anchors).all())
    assert not bool((single.anchors == single.positives).all())
    assert not any(module.training for module in encoder.modules())


def test_hard_negatives_are_embedded_as_training_embeds_them(encoder: SentenceEncoder) -> None:
    texts, hard = sentences(8), sentences(8, seed=3)
    rows = read_rows([*zip(texts, texts[::-1], hard, strict=True)])
    found = embed_rows(encoder, rows, max_length=16, prompts=("query ", "passage "))
    expected = encoder.encode([f"passage {text}" for text in hard], max_length=16)
    np.testing.assert_allclose(found.hard.embeddings, expected, atol=1e-6)
    batch = found.batch(torch.tensor([5, 2]))
    assert torch.equal(batch.negatives, found.hard.embeddings[[5, 2]])
    assert found.lengths.shape == (8, 2)
    # left out where the batch has them already: as a positive, twice, and equal after the cut
    same = [("a b", "c", "x y"), ("d", "X, Y!", "z"), ("e", "f", "z"), ("g", "a " * 30, "a " * 31)]
    few = embed_rows(encoder, read_rows(same), max_length=16)
    assert torch.equal(few.batch(torch.arange(4)).negatives, few.hard.embeddings[[1]])
    assert torch.equal(few.batch(torch.tensor([0, 2])).negatives, few.hard.embeddings[[0, 2]])
    assert few.batch(torch.tensor([3])).negatives is None
    audited = audit([*zip(texts, texts[::-1], hard, strict=True)], encoder=encoder, dev=None)
    assert audited.title.startswith("8 pairs with hard negatives of the data")
    message = "with columns, or .* infonce: mhe takes no hard negatives, but the data has some"
    with pytest.raises(InputError, match=message):
        audit([*zip(texts, texts, hard, strict=True)], objective="mhe", encoder=encoder)


def test_a_batch_has_all_hard_negatives_of_its_rows_in_their_order(
    encoder: SentenceEncoder,
) -> None:
    words = iter(sentences(40))
    rows = [(next(words), next(words), *(next(words) for _ in range(i % 3))) for i in range(7)]
    found = embed_rows(
        encoder,
        pair_rows(
            read([{"anchor": a, "positive": p, "negative": n} for a, p, *n in rows]), name="t"
        ),
        max_length=16,
    )
    assert found.hard is not None
    assert found.hard.owners.tolist() == [1, 2, 2, 4, 5, 5]
    assert torch.equal(
        found.batch(torch.tensor([5, 3, 1])).negatives, found.hard.embeddings[[4, 5, 0]]
    )
    assert found.batch(torch.tensor([3, 6])).negatives is None


def test_rows_that_share_a_text_are_a_group(encoder: SentenceEncoder) -> None:
    rows = read_rows([("one text", "x y"), ("another", "X, y!"), ("third", "z")])
    groups = embed_rows(encoder, rows, max_length=8).groups
    assert groups[0] == groups[1] != groups[2]


def test_adjacent_texts_are_apart_from_their_neighbours_only(encoder: SentenceEncoder) -> None:
    found = embed_rows(encoder, read_rows(sentences(60), views="adjacent"))
    every = torch.arange(59)
    assert len(found.groups.unique()) == 59
    assert torch.equal(found.same(every, every), (every[:, None] - every).abs() <= 1)
    groups = found.batch(torch.tensor([3, 50, 7, 8, 9, 51])).groups
    assert groups.unique(return_counts=True)[1].sort().values.tolist() == [1, 2, 3]
    audited = audit(sentences(60), encoder=encoder, views="adjacent", dev=None, batch_size=8)
    assert audited.recommended
    assert "share a text with another row" not in str(audited)


@pytest.mark.parametrize(("size", "count", "groups"), [(30, 41, 41), (3, 60, 58)])
def test_large_sets_of_linked_pairs_are_no_group(
    encoder: SentenceEncoder, size: int, count: int, groups: int
) -> None:
    chain = [(f"a{i}", f"a{i + 1}") for i in range(size)]
    pairs = [*chain, *((f"q{i}", f"p{i}") for i in range(size, count))]
    found = embed_rows(encoder, read_rows(pairs))
    assert len(found.groups.unique()) == groups
    every = torch.arange(count)
    same = found.same(every, every)
    assert same[0, 1]
    assert same[0, 2] == (size == 3)  # linked through another pair


def test_rows_are_drawn_among_all_of_them() -> None:
    pairs = [(f"a {i}", f"p {i}") for i in range(300)]
    counts = np.zeros(300)
    for seed in range(200):
        drawn = pair_rows(read(pairs), name="t", most=30, seed=seed)
        assert len(set(drawn.lines.tolist())) == len(drawn) == 30
        assert all(drawn.texts[k] == pairs[i - 1] for k, i in enumerate(drawn.lines))
        counts[drawn.lines - 1] += 1
    thirds = counts.reshape(3, 100).sum(axis=1)
    assert abs(thirds - 2000).max() < 150  # 2,000 of each third, deviation 35
    assert len(pair_rows(read(pairs), name="t", most=400)) == 300


def test_an_export_that_cannot_be_trained_on_is_not_written(
    tmp_path: Path, encoder: SentenceEncoder, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{text},an answer to {text},one\n" for text in sentences(8)]
    file = written(tmp_path, "pairs.csv", "anchor,positive,topic\n" + "".join(lines))
    for name in ("audit.json", "mined.jsonl"):
        written(tmp_path, name, "of an earlier audit")
    audit(file, encoder=encoder, groups="topic", dev=None, mine=1, output=tmp_path)
    assert not (tmp_path / "mined.jsonl").exists()
    assert "mined.jsonl is not written: fewer than two hard" in capsys.readouterr().err
    assert len(list(read([tmp_path / "grouped.jsonl"], groups="label"))) == 8


def test_all_texts_of_a_label_are_correct(tmp_path: Path, encoder: SentenceEncoder) -> None:
    lines = [f"{text} {i},{i % 2}\n" for i, text in enumerate(sentences(240))]
    audited = audit(written(tmp_path, "l.csv", "text,label\n" + "".join(lines)), encoder=encoder)
    score = audited.uncovered["raw"]
    assert score is not None
    assert score > 60, "half of the texts are correct"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"query_prompt": "find: ", "passage_prompt": "text: "}, ("find: ", "text: ")),
        ({}, ("q: ", "")),
    ],
)
def test_the_texts_of_a_dev_file_have_prompts(
    tmp_path: Path,
    encoder: SentenceEncoder,
    monkeypatch: pytest.MonkeyPatch,
    flags: dict[str, str],
    expected: tuple[str, str],
) -> None:
    pairs = [(f"{text} q{i}", f"{text} a{i}") for i, text in enumerate(sentences(40))]
    files = [tmp_path / "train.tsv", tmp_path / "dev.tsv"]
    for file, part in zip(files, (pairs[:30], pairs[20:]), strict=True):
        file.write_text("".join(f"{query}\t{answer}\n" for query, answer in part))
    monkeypatch.setattr(encoder.model, "prompts", {"query": "q: "})
    whitening, scored = list[str](), set[str]()

    def noted(_: object, texts: list[str], *, name: str, score: object, left_out: str) -> Uncovered:
        whitening.extend(texts)
        assert callable(score)
        score(encoder)
        assert "dev file" in left_out
        return Uncovered("unknown", name)

    monkeypatch.setattr(run, "uncover", noted)
    encode = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda x, **k: scored.update(x) or encode(x, **k))
    audit(files[0], encoder=encoder, dev=str(files[1]), **flags)
    texts = [[before + t for before, t in zip(expected, pair, strict=True)] for pair in pairs]
    assert whitening == [text for pair in texts[:20] for text in pair], "none that is scored"
    assert scored >= {text for pair in texts[20:] for text in pair}
