"""Text in folders that ``datasets`` has saved."""

import json
import os
import sys
from pathlib import Path

import pytest

from isotrope.core.errors import InputError, MissingExtra
from isotrope.data.sources import read
from isotrope.data.table import is_saved
from isotrope.training.fit_text import fit
from tests.training.conftest import QUICK, sentences

datasets = pytest.importorskip("datasets")

PAIRS = {"anchor": ["a", "b", "c"], "positive": ["x", "y", "z"], "id": [1, 2, 3]}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


def texts(path: Path, **options) -> list[tuple[str, ...]]:
    return [record.texts for record in read([path], **options)]


def test_columns_and_shards_in_order(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict(PAIRS)
    rows.save_to_disk(tmp_path / "set", num_shards=2)
    assert texts(tmp_path / "set") == [("a", "x"), ("b", "y"), ("c", "z")]
    assert texts(tmp_path / "set", columns=["positive"]) == [("x",), ("y",), ("z",)]
    with pytest.raises(InputError, match=r"no column 'positiv' \(did you mean 'positive'"):
        texts(tmp_path / "set", columns=["positiv"])
    with pytest.raises(InputError, match=r"column 'id' holds 1 \(int\), not text"):
        texts(tmp_path / "set", columns=["id"])


def test_rows_that_were_chosen_and_copies_in_the_cache(tmp_path: Path) -> None:
    datasets.Dataset.from_dict(PAIRS).save_to_disk(tmp_path / "first")
    loaded = datasets.load_from_disk(str(tmp_path / "first"))
    loaded.map(lambda row: {"anchor": row["anchor"] * 2})  # leaves a copy in the folder
    assert len(list((tmp_path / "first").glob("*.arrow"))) == 2
    assert texts(tmp_path / "first") == [("a", "x"), ("b", "y"), ("c", "z")]
    loaded.select([2, 0]).save_to_disk(tmp_path / "second")
    assert texts(tmp_path / "second") == [("c", "z"), ("a", "x")]


def test_of_several_splits_the_one_to_train_on(tmp_path: Path) -> None:
    parts = {
        name: datasets.Dataset.from_dict({"text": [f"{name} text"]}) for name in ("test", "train")
    }
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "both")
    assert texts(tmp_path / "both") == [("train text",)]
    assert texts(tmp_path / "both" / "test") == [("test text",)]
    datasets.DatasetDict({"a": parts["test"]}).save_to_disk(tmp_path / "other")
    with pytest.raises(InputError, match=r"give a split \(a\), .*; no split is called 'train'"):
        texts(tmp_path / "other")


def test_a_run_on_one(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"text": sentences(100)}).save_to_disk(tmp_path / "set")
    settings = {**QUICK, "output": str(tmp_path / "run"), "max_steps": 1, "device": "cpu"}
    assert fit(tmp_path / "set", **settings).result.details["data"]["records"] == 100


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    datasets.Dataset.from_dict({"text": ["a", "b"]}).save_to_disk(tmp_path / "set")
    return tmp_path / "set"


def test_damaged_tables(saved: Path) -> None:
    (table,) = saved.glob("*.arrow")
    whole = table.read_bytes()
    for content in (b"", b"text\n", whole[: len(whole) // 2]):
        table.write_bytes(content)
        with pytest.raises(InputError, match="save this dataset again; it cannot be loaded"):
            texts(saved)
    (saved / "state.json").write_text("[]")
    with pytest.raises(InputError, match="save this dataset again; it cannot be loaded"):
        texts(saved)


def rename(index: Path, key: str, name: str) -> None:
    """Let a saved data set name another file, or another split."""
    content = json.loads(index.read_text())
    content[key] = [{"filename": name} if key == "_data_files" else name]
    index.write_text(json.dumps(content))


def test_files_outside_the_folder_are_not_read(saved: Path, tmp_path: Path) -> None:
    (table,) = saved.glob("*.arrow")
    private, inner = tmp_path / "private", saved / "inner"
    for folder in (private, inner):
        folder.mkdir()
        (folder / table.name).write_bytes(table.read_bytes())
    for name in (f"../private/{table.name}", str(private / table.name), f"inner/{table.name}"):
        rename(saved / "state.json", "_data_files", name)
        with pytest.raises(InputError, match=r"state\.json: save this dataset again; .* is a path"):
            texts(saved)
    parts = {"train": datasets.Dataset.from_dict({"text": ["a"]})}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "both" / "set")
    datasets.Dataset.from_dict({"text": ["secret"]}).save_to_disk(tmp_path / "both")
    for name in ("..", "../../set"):
        rename(tmp_path / "both" / "set" / "dataset_dict.json", "splits", name)
        with pytest.raises(InputError, match=r"dataset_dict\.json: .* is a path"):
            texts(tmp_path / "both" / "set")


def test_a_pipe_in_place_of_a_table_is_not_opened(saved: Path) -> None:
    (table,) = saved.glob("*.arrow")
    table.unlink()
    os.mkfifo(table)
    with pytest.raises(InputError, match="to a regular file first; this is a pipe"):
        texts(saved)


def test_a_dataset_without_rows(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"text": ["a"]}).select([]).save_to_disk(tmp_path / "set")
    with pytest.raises(InputError, match=r"cannot be loaded|holds no text"):
        texts(tmp_path / "set")


def test_without_datasets_it_says_what_to_install(saved: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[hub\]'"):
        texts(saved)


def test_a_folder_with_a_file_state_json_is_no_saved_dataset(tmp_path: Path) -> None:
    for name in ("city", "state"):
        text = json.dumps([{"text": f"the {name} of {i} lamps"} for i in range(3)])
        (tmp_path / f"{name}.json").write_text(text)
    assert len(list(read([tmp_path / "city.json", tmp_path / "state.json"]))) == 6
    assert not is_saved(tmp_path)


def test_an_empty_first_row_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give all records the same number of texts: record 1"):
        fit([[], ["a lamp", "a light"]], output=str(tmp_path / "run"))
