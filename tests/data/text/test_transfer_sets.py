"""Transfer tasks: the layout of the seven, and rows and counts that are wrong."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.data.text.transfer_sets import TASKS, load_transfer

TREC = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
ROWS = {
    "mr/all": {"1": 5331, "0": 5331},
    "cr/all": {"1": 2407, "0": 1368},
    "subj/all": {"0": 5000, "1": 5000},
    "mpqa/all": {"1": 3312, "0": 7294},
    "sst2/train": {"0": 29780, "1": 37569},
    "sst2/dev": {"0": 428, "1": 444},
    "sst2/test": {"0": 912, "1": 909},
    "trec/train": dict(zip(TREC, (86, 1162, 1250, 1223, 835, 896), strict=True)),
    "trec/test": dict(zip(TREC, (9, 138, 94, 65, 81, 113), strict=True)),
    "mrpc/train": {"0": 1323, "1": 2753},
    "mrpc/test": {"0": 578, "1": 1147},
}
EMPTY = {"cr/all": 4, "mpqa/all": 3}


def rows_of(name: str) -> list[str]:
    labels = [label for label, count in ROWS[name].items() for _ in range(count)]
    rows = [f'{label}\tthe "{i}"  one' for i, label in enumerate(labels)]
    if name.startswith("mrpc"):
        rows = [f"{row}\tits other" for row in rows]
    for i in range(EMPTY.get(name, 0)):
        rows[i] = f"{labels[i]}\t"
    return rows


def write(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8", errors="surrogateescape")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("transfer")
    for name in ROWS:
        write(folder / f"{name}.tsv", rows_of(name))
    return folder


@pytest.fixture
def trec(tmp_path: Path) -> Path:
    for name in ("trec/train", "trec/test"):
        write(tmp_path / f"{name}.tsv", rows_of(name))
    return tmp_path


def test_all_tasks_and_splits(whole: Path) -> None:
    tasks = load_transfer(whole)
    assert tuple(tasks) == TASKS == ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
    assert {name: tuple(task.splits) for name, task in tasks.items()} == {
        **dict.fromkeys(("MR", "CR", "SUBJ", "MPQA"), ("all",)),
        "SST2": ("train", "dev", "test"),
        "TREC": ("train", "test"),
        "MRPC": ("train", "test"),
    }
    assert tasks["TREC"].labels == TREC
    assert {task.labels for name, task in tasks.items() if name != "TREC"} == {("0", "1")}
    test = tasks["TREC"].splits["test"]
    assert np.bincount(test.labels).tolist() == list(ROWS["trec/test"].values())
    assert test.labels.dtype == np.int64
    assert test.labels[:10].tolist() == [0] * 9 + [1]
    assert test.texts[1] == 'the "1" one'  # single spaces, raw quotes
    assert test.seconds == []
    pairs = tasks["MRPC"].splits["train"]
    assert (pairs.texts[-1], pairs.seconds[-1]) == ('the "4075" one', "its other")
    assert len(pairs) == len(pairs.seconds) == 4076
    assert tasks["CR"].splits["all"].texts[:5] == ["", "", "", "", 'the "4" one']


def test_some_tasks_and_gzip(trec: Path) -> None:
    plain = trec / "trec" / "train.tsv"
    plain.with_suffix(".tsv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert len(load_transfer(trec, ["TREC", "TREC"])["TREC"].splits["train"]) == 5452
    with pytest.raises(
        InputError,
        match=r"add the folders mr, .*: MR, CR, SUBJ, MPQA, SST2, MRPC are missing, .*seven tasks",
    ):
        load_transfer(trec)


def test_what_is_not_there(trec: Path) -> None:
    with pytest.raises(InputError, match=r"unknown transfer task 'SST' \(did you mean 'SST2'\?\)"):
        load_transfer(trec, ["SST"])
    with pytest.raises(
        InputError, match="nothing: check the path; no such folder of transfer tasks"
    ):
        load_transfer(trec / "nothing")
    (trec / "trec" / "test.tsv").unlink()
    with pytest.raises(InputError, match=r"test.tsv: add this file for TREC"):
        load_transfer(trec, ["TREC"])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("ABBR", "test.tsv, line 3: give 2 tab-separated fields, label<TAB>text; this line has 1$"),
        ("", "test.tsv, line 3: give 2 tab-separated fields"),
        ("ABBR\ta\tb", "line 3: give 2 tab-separated fields, label<TAB>text; this line has 3"),
        ("abbr\ta", "line 3: give one of the labels ABBR, DESC, .*; TREC has no label 'abbr'"),
        ("0\ta", "line 3: .* TREC has no label '0'"),
        ("\ta", "line 3: .* TREC has no label ''"),
        ("ABBR\t\udcff", "line 3: invalid UTF-8"),
        ("HUM\ta", "rows: 8 of label ABBR, 138 of label DESC, 94 of label ENTY, 66 of label HUM, "
         ".*; needed: 9 of label ABBR"),
    ],
)  # fmt: skip
def test_rows_that_are_no_labelled_text(trec: Path, row: str, message: str) -> None:
    rows = rows_of("trec/test")
    rows[2] = row
    write(trec / "trec" / "test.tsv", rows)
    with pytest.raises(InputError, match=message):
        load_transfer(trec, ["TREC"])


def test_other_counts(whole: Path, tmp_path: Path) -> None:
    write(tmp_path / "cr" / "all.tsv", rows_of("cr/all")[:-1])
    with pytest.raises(InputError, match=r"rows: .*; needed: 1368 of label 0, 2"):
        load_transfer(tmp_path, ["CR"])
    rows = rows_of("cr/all")
    rows[7] = rows[7].partition("\t")[0] + "\t "
    write(tmp_path / "cr" / "all.tsv", rows)
    with pytest.raises(
        InputError, match=r"all.tsv: .* found 5 empty texts, but the original has 4"
    ):
        load_transfer(tmp_path, ["CR"])
    write(
        tmp_path / "mrpc" / "train.tsv", [row.rpartition("\t")[0] for row in rows_of("mrpc/train")]
    )
    with pytest.raises(
        InputError,
        match=r"line 1: give 3 tab-separated fields, label<TAB>text1<TAB>text2; this line has 2$",
    ):
        load_transfer(tmp_path, ["MRPC"])


def test_the_real_tasks(shared_data: Path) -> None:
    tasks = load_transfer(shared_data / "transfer")
    assert [[len(split) for split in task.splits.values()] for task in tasks.values()] == [
        [10662], [3775], [10000], [10606], [67349, 872, 1821], [5452, 500], [4076, 1725]
    ]  # fmt: skip
    assert sum(not text for text in tasks["CR"].splits["all"].texts) == 4
    assert sum(not text for text in tasks["MPQA"].splits["all"].texts) == 3
