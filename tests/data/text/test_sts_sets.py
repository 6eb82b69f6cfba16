"""STS sets: the layout of the seven tasks, single files, and rows that are no scored pair."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.data.text.sts_sets import TASKS, load_sts, load_sts_file

from ...sts_folder import write_plain, write_senteval

ROWS = '4.5\ta  "cat"  sat\tthe cat sat .\n0\tone\ttwo\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_plain(tmp_path)


def test_all_tasks_and_test_splits(folder: Path) -> None:
    sets = load_sts(folder)
    assert tuple(sets) == TASKS
    assert [len(subsets) for subsets in sets.values()] == [5, 3, 6, 5, 5, 2, 2]
    assert [(s.task, s.name, s.split) for s in sets["STS-B"]] == [
        ("STS-B", split, split) for split in ("dev", "test")
    ]
    assert {s.split for s in sets["STS14"]} == {"test"}
    subset = sets["STS12"][3]
    assert subset.name == "surprise.OnWN"
    assert subset.scores[:3].tolist() == [1.0, 1.7, 2.4]
    assert subset.first[0] == "surprise.OnWN boat 0"
    assert len(subset) == 750


def test_the_layout_of_senteval(folder: Path, tmp_path: Path) -> None:
    plain = load_sts(folder)
    downstream = write_senteval(tmp_path / "downstream")
    for place in (downstream, downstream / "STS"):
        sets = load_sts(place)
        assert list(sets) == list(plain)
        for task, subsets in sets.items():
            for ours, theirs in zip(plain[task], subsets, strict=True):
                assert (ours.name, ours.split) == (theirs.name, theirs.split)
                assert (ours.first, ours.second) == (theirs.first, theirs.second)
                assert np.array_equal(ours.scores, theirs.scores)


def test_texts_stay_as_they_are_but_for_spaces(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(ROWS)
    subset = load_sts_file(tmp_path / "own.tsv")
    assert subset.first == ['a "cat" sat', "one"]  # raw quotes
    assert subset.second == ["the cat sat .", "two"]


def test_some_tasks_and_gzip(folder: Path) -> None:
    plain = folder / "sts13" / "OnWN.tsv"
    (folder / "sts13" / "OnWN.tsv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert list(load_sts(folder, ["STS13", "STS12"])) == ["STS13", "STS12"]


def test_a_missing_file_stops_but_dev_may_be_absent(folder: Path) -> None:
    (folder / "stsb" / "dev.tsv").unlink()
    assert [s.split for s in load_sts(folder)["STS-B"]] == ["test"]
    (folder / "sts14" / "images.tsv").unlink()
    with pytest.raises(InputError, match=r"images.tsv: add this file .* STS14"):
        load_sts(folder)


def test_unknown_absent_tasks_and_folders(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown STS task 'STSB' \(did you mean 'STS-B'\?\)"):
        load_sts(folder, ["STSB"])
    with pytest.raises(InputError, match="no such file or folder"):
        load_sts(folder / "nothing")
    with pytest.raises(InputError, match=r"holds none of the STS tasks"):
        load_sts(folder / "sts12")
    (folder / "sts13").rename(folder / "elsewhere")
    (folder / "sickr").rename(folder / "sick")
    with pytest.raises(
        InputError, match="add the tasks STS13, SICK-R; needed: STS12, STS13, STS14"
    ):
        load_sts(folder)
    downstream = write_senteval(tmp_path / "downstream")
    (downstream / "SICK").rename(downstream / "SICKR")
    with pytest.raises(InputError, match="downstream: add the tasks SICK-R; needed: STS12"):
        load_sts(downstream)


def test_rows_that_are_missing_or_too_many(folder: Path) -> None:
    path = folder / "sts16" / "plagiarism.tsv"
    rows = path.read_text()
    for changed, count in ((rows + "1\ta\tb\n", 231), (rows[: rows[:-1].rindex("\n")], 229)):
        path.write_text(changed)
        with pytest.raises(
            InputError, match=rf"has {count} scored pairs, but the subset plagiarism of STS16 has"
        ):
            load_sts(folder)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        (
            "sts12/MSRpar.tsv",
            "5.1\ta\tb",
            "line 2: correct the score 5.1; scores lie between 0 and 5",
        ),
        (
            "sts12/MSRpar.tsv",
            "-1\ta\tb",
            "line 2: correct the score -1.0; scores lie between 0 and 5",
        ),
        (
            "sickr/test.tsv",
            "0.5\ta\tb",
            "line 2: correct the score 0.5; scores lie between 1 and 5",
        ),
        ("stsb/dev.tsv", "2\t\tb", "remove or complete 1 row with an empty text .line 2"),
    ],
)
def test_rows_of_a_known_task(folder: Path, file: str, line: str, message: str) -> None:
    path = folder / file
    first, _, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, line, *rest]) + "\n")
    with pytest.raises(InputError, match=message) as caught:
        load_sts(folder)
    assert str(path) in str(caught.value)


STS12 = "STS/STS12-en-test/"


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        (STS12 + "STS.input.MSRpar.txt", "a\tb\tc", "line 2: give 2 tab-separated fields"),
        (STS12 + "STS.input.MSRpar.txt", "a\t", "line 2: remove this line; a sentence is empty"),
        (
            STS12 + "STS.gs.MSRpar.txt",
            "6",
            "line 2: correct the score '6'; scores lie between 0 and 5",
        ),
        (
            STS12 + "STS.gs.MSRpar.txt",
            "",
            "749 scored pairs, but the subset MSRpar of STS12 has 750",
        ),
        (STS12 + "STS.gs.MSRpar.txt", None, "STS.gs.MSRpar.txt has no such line"),
        (STS12 + "STS.input.MSRpar.txt", None, "STS.input.MSRpar.txt has no such line"),
        ("STS/STSBenchmark/sts-dev.csv", "a\tb", "line 2: give 7 to 9 tab-separated fields"),
        ("SICK/SICK_trial.txt", "1\ta\tb\t2", "line 2: give 5 tab-separated fields"),
        (
            "SICK/SICK_trial.txt",
            "1\ta\tb\t.2\tX",
            "line 2: correct the score '.2'; scores lie between 1 and 5",
        ),
    ],
)
def test_rows_of_senteval(tmp_path: Path, file: str, line: str | None, message: str) -> None:
    folder = write_senteval(tmp_path)
    first, _, *rest = (folder / file).read_text().splitlines()
    middle = [] if line is None else [line]
    (folder / file).write_text("\n".join([first, *middle, *rest]) + "\n")
    with pytest.raises(InputError, match=message):
        load_sts(folder)
    if line is not None:  # elsewhere the file that is too long is named
        with pytest.raises(InputError, match=file.rpartition("/")[2].replace("gs.", "(gs|input).")):
            load_sts(folder)


def test_a_year_of_senteval_without_its_scores(tmp_path: Path) -> None:
    folder = write_senteval(tmp_path)
    (folder / "STS" / "STS13-en-test" / "STS.gs.FNWN.txt").unlink()
    with pytest.raises(InputError, match=r"STS.gs.FNWN.txt: add this file .* STS13"):
        load_sts(folder)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("nan\ta\tb", "line 3: correct the score 'nan' in column '1', or remove the line"),
        ("inf\ta\tb", "line 3: correct the score 'inf' in column '1', or remove the line"),
        ("high\ta\tb", "line 3: correct the score 'high' in column '1', or remove the line"),
        ("\ta\tb", "line 3: correct the score '' in column '1', or remove the line"),
        ("1\ta", "line 3: give 3 fields, separated by tabs"),
        ("1\ta\tb\tc", "line 3: give 3 fields, separated by tabs"),
        ("1\ta\t ", "remove or complete 1 row with an empty text .line 3"),
        ("1\ta\t\udcff", "line 3: invalid UTF-8"),
    ],
)
def test_rows_that_are_no_scored_pair(folder: Path, row: str, message: str) -> None:
    path = folder / "stsb" / "test.tsv"
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
    with pytest.raises(InputError, match=r"unknown kind of file '.doc'"):
        load_sts_file(tmp_path / "a.doc")
    (tmp_path / "a.tsv").write_text("1\ta\tb\n1\tc\td\n")
    with pytest.raises(InputError, match="at least two different scores, which a rank correlation"):
        load_sts_file(tmp_path / "a.tsv")
    for score, told in (
        ("NaN", "this line is no scored pair"),
        ("1" + 400 * "0", "correct the score 1000.*, or remove the line"),
    ):
        row = f'{{"score": {score}, "sentence1": "a", "sentence2": "b"}}\n'
        (tmp_path / "a.jsonl").write_text(row)
        with pytest.raises(InputError, match=f"line 1: .*{told}"):
            load_sts_file(tmp_path / "a.jsonl")
    (tmp_path / "a.csv").write_text("score,sentence1,s2\n1,a,b\n")
    with pytest.raises(InputError, match="no column has a usual name"):
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
