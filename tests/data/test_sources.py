"""Files of folders: which are read, and which are test or dev splits."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from isotrope.core.errors import InputError
from isotrope.data.sources import files_of, read

from .tables import TEXTS, write


def paths_of(paths: Sequence[Path]) -> list[Path]:
    return files_of(paths)[0]


def test_folder_is_sorted_deep_and_safe_from_loops(tmp_path: Path) -> None:
    for name in ["b.txt", "a/z.txt", "a/c/y.jsonl.gz", "B.TXT"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, [(name,)], ["text"])
    (tmp_path / "notes.pdf").write_bytes(b"\0")
    (tmp_path / ".hidden.txt").write_text("hidden")
    (tmp_path / "empty.txt").touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.txt").write_text("hidden")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    expected = ["B.TXT", "a/c/y.jsonl.gz", "a/z.txt", "b.txt"]
    assert [record.texts[0] for record in read([tmp_path])] == expected
    assert all(record.opens for record in read([tmp_path]))
    assert paths_of([tmp_path / "b.txt", tmp_path / "a"])[0] == tmp_path / "b.txt"


def test_an_unreadable_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
        paths_of([tmp_path])


@pytest.mark.parametrize("folder", ["", "data", "train"])
def test_of_a_dataset_in_parquet_the_split_to_train_on_is_read(tmp_path: Path, folder: str) -> None:
    names = ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]
    others = ["test-00000-of-00001.parquet", "validation-00000-of-00001.parquet"]
    place = tmp_path / "latest" / ("data" if folder == "train" else folder)  # no word of a split
    if folder == "train":  # a folder for each
        names, others = ["train/0.parquet"], ["test/0.parquet", "dev/0.parquet"]
    for name in [*names, *others]:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        write(place / name, TEXTS, ["text"])
    (place / "README.txt").write_text("about the test set")
    root = tmp_path / "latest"
    assert paths_of([root]) == sorted([place / "README.txt", *(place / n for n in names)])
    assert paths_of([place / others[0]]) == [place / others[0]], "named by itself"
    for name in names:
        (place / name).unlink()
    by_folder = [place / other for other in others if "/" in other]
    assert paths_of([root]) == sorted([place / "README.txt", *by_folder]), "no file is for training"
    (place / "README.txt").unlink()
    assert len(paths_of([root])) == len(others), "there are no others"


def test_other_parts_are_left_out_and_named(tmp_path: Path) -> None:
    names = ["ptb.train.txt", "ptb.valid.txt", "snli_1.0_test.jsonl", "notes.txt", "dev/a.csv"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one\n")
    read_files, left = files_of([tmp_path])
    assert [path.name for path in read_files] == ["notes.txt", "ptb.train.txt"]
    assert sorted(path.name for path in left) == ["a.csv", "ptb.valid.txt", "snli_1.0_test.jsonl"]
    reading = read([tmp_path])
    assert len(list(reading)) == 2
    assert "files not read: a.csv, ptb.valid.txt, snli_1.0_test.jsonl" in str(reading)
    (tmp_path / names[0]).unlink()
    assert [path.name for path in files_of([tmp_path])[0]] == ["notes.txt"]
    for name in ("notes.txt", "dev/a.csv"):
        (tmp_path / name).unlink()
    assert files_of([tmp_path])[1] == [], "there are no others"


def test_only_a_name_that_ends_with_a_split_is_one_where_no_file_is_called_train(
    tmp_path: Path,
) -> None:
    skipped = ["Test.csv", "a_dev-2.tsv", "data-test-00000-of-00001.jsonl", "dev_en.tsv"]
    skipped += ["test_set.tsv", "val.json.gz", "validation/b.jsonl"]
    named = ["a-b test.txt", "dev guide.txt", "dev-guide.txt", "docs/dev/a.txt", "latest.txt"]
    for name in (*skipped, *named):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("one\n")
    read_files, left = files_of([tmp_path])
    assert [path.relative_to(tmp_path).as_posix() for path in read_files] == named
    assert sorted(path.relative_to(tmp_path).as_posix() for path in left) == skipped
    (tmp_path / "train.txt").write_text("one\n")
    assert [path.name for path in files_of([tmp_path])[0]] == ["latest.txt", "train.txt"]
