"""Labelled texts and features: the kinds of file, the split of one, and rows that are none."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from isotrope.core.errors import InputError
from isotrope.data.table import SUFFIXES
from isotrope.data.text.labelled import LabelledText, load_labelled

ROWS = [("0", "a b"), ("1", "c"), ("0", "d")]


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def tsv(*rows: tuple[str, str]) -> str:
    return "".join(f"{label}\t{text}\n" for label, text in rows)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", tsv(*ROWS)),
        ("a.txt", "0\ta  b\n\n1\tc\n0\td \n"),
        ("a.tsv.gz", tsv(*ROWS)),
        ("a.tsv", "label\ttext\n" + tsv(*ROWS)),
        ("a.tsv", "id\ttext\tlabel\n7\ta b\t0\n8\tc\t1\n9\td\t0\n"),
        ("a.tsv", "label\tsentence\n" + tsv(*ROWS)),
        ("a.tsv", "sentence\tlabel\na b\t0\nc\t1\nd\t0\n"),
        ("a.csv", "text,label\na b,0\nc,1\n\nd,0\n"),
        ("a.csv", "sentence,label\na b,0\nc,1\nd,0\n"),
        ("a.jsonl", "".join(json.dumps({"label": int(x), "text": t}) + "\n" for x, t in ROWS)),
        ("a.jsonl", "".join(json.dumps({"label": float(x), "text": t}) + "\n" for x, t in ROWS)),
        ("a.tsv", "Text\tLabel\na b\t0\nc\t1\nd\t0\n"),
        ("a.csv", "text;label\na b;0\nc;1\nd;0\n"),
        ("a.tsv", "a b\t0\nc\t1\nd\t0\n"),
    ],
)
def test_kinds_of_file(tmp_path: Path, name: str, content: str) -> None:
    path = write(tmp_path / name, content)
    found = load_labelled(path, path)
    assert found.train == found.test == LabelledText(["a b", "c", "d"], ["0", "1", "0"])


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": [t for _, t in ROWS], "label": [int(x) for x, _ in ROWS]})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = load_labelled(tmp_path / "a.parquet", tmp_path / "a.parquet")
    assert found.train.labels == ["0", "1", "0"]


def test_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", tsv(*ROWS))
    with pytest.raises(InputError, match=r"; found: none") as caught:
        load_labelled(tmp_path)
    assert all(f"test{suffix}" in str(caught.value) for suffix in SUFFIXES)
    write(tmp_path / "test.csv.gz", "label,text\n0,e\n")
    found = load_labelled(tmp_path)
    assert (len(found.train), found.test) == (3, LabelledText(["e"], ["0"]))
    (tmp_path / "test.csv.gz").rename(tmp_path / "test.csv.bz2")
    with pytest.raises(InputError, match=r"is not a complete \.bz2 file"):
        load_labelled(tmp_path)
    (tmp_path / "test.csv.bz2").rename(tmp_path / "test.csv.gz")
    write(tmp_path / "test.tsv", tsv(*ROWS))
    with pytest.raises(InputError, match=r"found: test\.tsv, test\.csv\.gz"):
        load_labelled(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", "id,intent,text\n7,0,a b\n8,1,c\n9,0,d\n", ["text", "intent"]),
        ("a.csv", "id,label,text\n7,0,a b\n8,1,c\n9,0,d\n", ["text", "label"]),
        ("a.csv", "id,intent,text\n7,0,a b\n8,1,c\n9,0,d\n", ["3", "2"]),
        ("a.tsv", "x\t0\ta b\ny\t1\tc\nz\t0\td\n", ["3", "2"]),
    ],
)
def test_chosen_columns(tmp_path: Path, name: str, content: str, columns: list[str]) -> None:
    path = write(tmp_path / name, content)
    assert load_labelled(path, path, columns).test == LabelledText(["a b", "c", "d"], [*"010"])


def test_columns_without_labels_are_named_with_the_flag(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,intent\na b,0\nc,1\n")
    with pytest.raises(InputError) as caught:
        load_labelled(path)
    assert "columns='text,label=intent'" in str(caught.value)


@pytest.mark.parametrize("labels", [20, 120])
@pytest.mark.parametrize("order", [1, -1])
def test_labels_that_all_differ_are_no_ids(tmp_path: Path, labels: int, order: int) -> None:
    """In the first rows of the training set, or in the whole test set."""
    rows = [(str(i % labels), f"text {i}")[::order] for i in range(200)]
    train = write(tmp_path / "train.tsv", tsv(*rows))
    found = load_labelled(train, write(tmp_path / "test.tsv", tsv(*rows[:labels])))
    assert found.train.labels == [str(i % labels) for i in range(200)]
    assert found.test.labels == [str(i) for i in range(labels)]


class TestSplit:
    @staticmethod
    def path(tmp_path: Path) -> Path:
        rows = [(f"c{i % 4}" if i else "rare", f"t{i}") for i in range(41)]
        return write(tmp_path / "a.tsv", tsv(*rows))

    def test_every_class_gives_its_share(self, tmp_path: Path) -> None:
        found = load_labelled(self.path(tmp_path))
        assert Counter(found.train.labels) == {"c0": 8, "c1": 8, "c2": 8, "c3": 8, "rare": 1}
        assert Counter(found.test.labels) == {"c0": 2, "c1": 2, "c2": 2, "c3": 2}
        both = [*found.train.texts, *found.test.texts]
        assert sorted(both) == sorted(f"t{i}" for i in range(41))
        for part in (found.train, found.test):
            for label, text in zip(part.labels, part.texts, strict=True):
                assert label == ("rare" if text == "t0" else f"c{int(text[1:]) % 4}")

    def test_nothing_to_test_on(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", tsv(("0", "a"), ("1", "b")))
        with pytest.raises(
            InputError, match=r"give at least two texts of each .* has only one text"
        ):
            load_labelled(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "0\ta\n1\n", "line 2: give 2 fields, separated by tabs"),
        ("a.tsv", "0\ta\n\tb\n", "1 row with an empty text .line 2."),
        ("a.tsv", "0\ta\n1\t \n", "1 row with an empty text .line 2."),
        (
            "a.tsv",
            "index\tsentence\n0\ta\n1\tb\n",
            "the file is read as texts",
        ),
        ("a.tsv", "a\tb\tx\nc\td\t0\n", "the file is read as pairs"),
        ("a.csv", "label,text\n0,a\n0,b\n", "at least 2 different labels; these 2 texts have 1"),
        ("a.csv", "label,txt\n0,a\n", "no column has a usual name"),
        (
            "a.jsonl",
            '{"label": [1], "text": "a"}\n',
            "line 1: choose a column of text; column 'label' holds .1. .list.",
        ),
        ("a.doc", "{}", "unknown kind of file '.doc'"),
        ("a.tsv", "", "is empty"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=message) as caught:
        load_labelled(path, path)
    assert str(path) in str(caught.value)


def test_a_test_part_may_hold_one_class(tmp_path: Path) -> None:
    train, test = write(tmp_path / "a.tsv", tsv(*ROWS)), write(tmp_path / "b.tsv", tsv(("1", "x")))
    assert load_labelled(train, test).test == LabelledText(["x"], ["1"])


def test_labels_that_were_never_trained_on(tmp_path: Path) -> None:
    train, test = write(tmp_path / "a.tsv", tsv(*ROWS)), write(tmp_path / "b.tsv", "x\tp\ny\tq\n")
    with pytest.raises(InputError, match=r"b\.tsv: give two files .* such as 'x', is in .*a\.t"):
        load_labelled(train, test)
