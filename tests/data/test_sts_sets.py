"""STS sets: the layout of the seven tasks, single files, and rows that are no scored pair."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.data.sts_sets import TASKS, load_sts, load_sts_file

ROWS = '4.5\ta  "cat"  sat\tthe cat sat .\n0\tone\ttwo\n'
LAYOUT = {
    "sts12": ["MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"],
    "sts13": ["FNWN", "OnWN", "headlines"],
    "sts14": ["OnWN", "deft-forum", "deft-news", "headlines", "images", "tweet-news"],
    "sts15": ["answers-forums", "answers-students", "belief", "headlines", "images"],
    "sts16": ["answer-answer", "headlines", "plagiarism", "postediting", "question-question"],
    "stsb": ["train", "dev", "test"],
    "sickr": ["train", "dev", "test"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for room, names in LAYOUT.items():
        (tmp_path / room).mkdir()
        for name in names:
            (tmp_path / room / f"{name}.tsv").write_text(ROWS)
    return tmp_path


def test_all_tasks_and_splits(folder: Path) -> None:
    sets = load_sts(folder)
    assert tuple(sets) == TASKS
    assert [len(subsets) for subsets in sets.values()] == [5, 3, 6, 5, 5, 3, 3]
    assert [(s.task, s.name, s.split) for s in sets["STS-B"]] == [
        ("STS-B", split, split) for split in ("train", "dev", "test")
    ]
    assert {s.split for s in sets["STS14"]} == {"test"}
    subset = sets["STS12"][3]
    assert subset.name == "surprise.OnWN"
    assert subset.scores.tolist() == [4.5, 0.0]
    assert subset.first == ['a "cat" sat', "one"]  # single spaces, raw quotes
    assert subset.second == ["the cat sat .", "two"]
    assert len(subset) == 2


def test_some_tasks_and_gzip(folder: Path) -> None:
    plain = folder / "sts13" / "OnWN.tsv"
    (folder / "sts13" / "OnWN.tsv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    (folder / "stsb" / "dev.tsv").unlink()
    assert list(load_sts(folder, ["STS13", "STS12"])) == ["STS13", "STS12"]
    with pytest.raises(InputError, match=r"dev.tsv: STS-B needs this file and it is not there"):
        load_sts(folder)


def test_unknown_tasks_and_folders(folder: Path) -> None:
    with pytest.raises(InputError, match=r"unknown STS task 'STSB' \(did you mean 'STS-B'\?\)"):
        load_sts(folder, ["STSB"])
    with pytest.raises(InputError, match="no such folder of STS sets"):
        load_sts(folder / "nothing")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("nan\ta\tb", "line 3: score 'nan' is not a finite number; correct it"),
        ("inf\ta\tb", "line 3: score 'inf' is not a finite number"),
        ("high\ta\tb", "line 3: score 'high' is not a finite number"),
        ("\ta\tb", "line 3: score '' is not a finite number"),
        ("1\ta", "line 3: 2 tab-separated fields where 3 are needed"),
        ("1\ta\tb\tc", "line 3: 4 tab-separated fields where 3 are needed"),
        ("1\ta\t ", "line 3: an empty sentence; remove the line"),
        ("1\ta\t\udcff", "line 3: invalid UTF-8"),
    ],
)
def test_rows_that_are_no_scored_pair(folder: Path, row: str, message: str) -> None:
    path = folder / "sickr" / "test.tsv"
    path.write_text(ROWS + row + "\n", errors="surrogateescape")
    with pytest.raises(InputError, match=message) as caught:
        load_sts(folder)
    assert str(path) in str(caught.value)
    with pytest.raises(InputError, match=message):
        load_sts_file(path)


def test_own_files(tmp_path: Path) -> None:
    names = ["score", "sentence1", "sentence2"]
    rows = [(4.5, "a b", "c"), (1, "d", "e")]
    (tmp_path / "dev.tsv").write_text("\t".join(names) + "\n" + ROWS)
    (tmp_path / "mine.csv").write_text('sentence1,score,sentence2\n"a b",4.5,c\n\nd,1,e\n')
    (tmp_path / "mine.jsonl").write_text(
        "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    )
    assert load_sts_file(tmp_path / "dev.tsv").split == "dev"
    for name in ("mine.csv", "mine.jsonl"):
        subset = load_sts_file(tmp_path / name)
        assert (subset.task, subset.name, subset.split) == (name, "mine", "all")
        assert np.array_equal(subset.scores, [4.5, 1])
        assert (subset.first, subset.second) == (["a b", "d"], ["c", "e"])


def test_own_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "a.doc").write_text("x")
    with pytest.raises(InputError, match=r"unknown kind of file '.doc' for scored pairs; known"):
        load_sts_file(tmp_path / "a.doc")
    (tmp_path / "a.tsv").write_text("1\ta\tb\n1\tc\td\n")
    with pytest.raises(InputError, match="2 pairs with 1 different scores; a rank correlation"):
        load_sts_file(tmp_path / "a.tsv")
    (tmp_path / "a.jsonl").write_text('{"score": NaN, "sentence1": "a", "sentence2": "b"}\n')
    with pytest.raises(InputError, match="line 1: score nan is not a finite number"):
        load_sts_file(tmp_path / "a.jsonl")
    (tmp_path / "a.csv").write_text("score,sentence1,s2\n1,a,b\n")
    with pytest.raises(InputError, match=r"no column 'sentence2' \(did you mean 'sentence1'\?\)"):
        load_sts_file(tmp_path / "a.csv")


def test_the_real_sets(shared_data: Path) -> None:
    sets = load_sts(shared_data / "sts")
    totals = {
        task: sum(len(s) for s in subsets if s.split == "test") for task, subsets in sets.items()
    }
    assert totals == {
        "STS12": 3108,
        "STS13": 1500,
        "STS14": 3750,
        "STS15": 3000,
        "STS16": 1186,
        "STS-B": 1379,
        "SICK-R": 4927,
    }
