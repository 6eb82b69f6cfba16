"""Hugging Face dataset folders: saved, or parquet; class labels, texts, or no labels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from isotrope.core.errors import InputError
from isotrope.data.images.sets import load_images

from ..pictures import ramp, save

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the converted copies of parquet files with the test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def table(n: int = 4, classes: tuple[str, ...] = ("cat", "dog"), **columns: Any) -> Any:
    pictures = [Image.fromarray(ramp(8, 8, seed)) for seed in range(n)]
    features = {"image": datasets.Image()}
    labels = columns.pop("label", None)
    if labels is not None:
        columns["label"] = labels
        text = isinstance(labels[0], str)
        features["label"] = (
            datasets.Value("string") if text else datasets.ClassLabel(names=list(classes))
        )
    return datasets.Dataset.from_dict(
        {"image": pictures, **columns}, features=datasets.Features(features)
    )


def check(found: Any, n: int = 4) -> None:
    expected = np.stack([ramp(8, 8, seed) for seed in range(n)]).transpose(0, 3, 1, 2)
    assert np.array_equal(found.train.images.read(range(n)), expected)
    assert found.side == 8
    assert not found.in_memory


def test_saved_splits(tmp_path: Path) -> None:
    splits = {"train": table(label=[0, 1, 1, 0]), "validation": table(2, label=[1, 0])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "pets")
    found = load_images(tmp_path / "pets")
    check(found)
    assert (found.name, found.class_names) == ("pets", ("cat", "dog"))
    assert found.train.labels.tolist() == [0, 1, 1, 0]
    assert found.test.labels.tolist() == [1, 0]


def test_one_saved_dataset(tmp_path: Path) -> None:
    table(label=["dog", "cat", "emu", "cat"]).save_to_disk(tmp_path / "pets")
    found = load_images(tmp_path / "pets")
    check(found)
    assert found.class_names == ("cat", "dog", "emu")
    assert found.train.labels.tolist() == [1, 0, 2, 0]
    assert found.test is None
    splits = {"train": table(label=["dog", "cat", "emu", "cat"]), "test": table(1, label=["emu"])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "split")
    assert load_images(tmp_path / "split").test.labels.tolist() == [2]  # as in the training part
    table().save_to_disk(tmp_path / "plain")
    found = load_images(tmp_path / "plain")
    assert found.train.labels is found.class_names is None


@pytest.mark.parametrize("below", ["", "data"])
def test_parquet(tmp_path: Path, below: str) -> None:
    folder = tmp_path / "pets" / below
    folder.mkdir(parents=True)
    table(label=[0, 1, 1, 0]).to_parquet(folder / "train-00000-of-00001.parquet")
    table(2, label=[-1, -1]).to_parquet(folder / "test-00000-of-00001.parquet")
    found = load_images(tmp_path / "pets")
    check(found)
    assert found.train.labels.tolist() == [0, 1, 1, 0]
    assert found.class_names == ("cat", "dog")
    assert len(found.test.images) == 2
    assert found.test.labels is None  # -1: kept secret


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize(
    ("classes", "labels", "expected"),
    [
        (("cat", "dog", "emu"), [1, 2], [1, 2]),
        (("dog", "emu"), [0, 1], [1, 2]),
        (("emu", "dog", "cat"), [0, 2], [2, 0]),
        (("ant", "dog"), [1, 0], [1, 3]),  # a class that the training part does not have
        (("dog", "emu"), [-1, 0], [-1, 1]),
        (None, ["emu", "dog"], [2, 1]),
        (None, ["ant", "emu"], [3, 2]),
    ],
)
def test_each_split_has_its_own_numbers_of_classes(
    tmp_path: Path,
    saved: bool,
    classes: tuple[str, ...] | None,
    labels: list[Any],
    expected: list[int],
) -> None:
    train = table(classes=("cat", "dog", "emu"), label=[0, 1, 2, 0])
    splits = {"train": train, "test": table(2, classes or (), label=labels)}
    if saved:
        datasets.DatasetDict(splits).save_to_disk(tmp_path / "pets")
    else:
        (tmp_path / "pets").mkdir()
        for name, rows in splits.items():
            rows.to_parquet(tmp_path / "pets" / f"{name}-00000-of-00001.parquet")
    found = load_images(tmp_path / "pets")
    assert found.class_names == ("cat", "dog", "emu")
    assert found.train.labels.tolist() == [0, 1, 2, 0]
    assert found.test.labels.tolist() == expected


def test_the_test_part_is_the_first_with_labels(tmp_path: Path) -> None:
    train, secret = table(label=[0, 1, 1, 0]), table(3, label=[-1] * 3)
    splits = {"train": train, "test": secret, "validation": table(2, label=[1, 0])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "pets")
    assert load_images(tmp_path / "pets").test.labels.tolist() == [1, 0]
    splits["validation"] = table(2)
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "none")
    found = load_images(tmp_path / "none").test
    assert (len(found.images), found.labels) == (3, None)


def test_parquet_of_plain_bytes(tmp_path: Path) -> None:
    """Written by something else: bytes in a column called img, numbers in one called labels."""
    path = save(tmp_path / "a.png", ramp(8, 8))
    (tmp_path / "pets").mkdir()
    plain = {"img": [path.read_bytes()] * 3, "labels": [2, 0, 7]}
    datasets.Dataset.from_dict(plain).to_parquet(tmp_path / "pets" / "train.parquet")
    found = load_images(tmp_path / "pets")
    assert found.train.labels.tolist() == [2, 0, 7]
    assert np.array_equal(found.train.images.read([2])[0], ramp(8, 8).transpose(2, 0, 1))


def test_broken_rows_are_counted_and_replaced(tmp_path: Path) -> None:
    whole = save(tmp_path / "a.png", ramp(8, 8)).read_bytes()
    cells = [{"bytes": whole}, {"bytes": b"words"}, None, {"bytes": whole[:60]}]
    features = datasets.Features({"image": datasets.Image(decode=False)})
    rows = datasets.Dataset.from_dict({"image": [*cells, {"bytes": whole}]}, features=features)
    rows.save_to_disk(tmp_path / "pets")
    found = load_images(tmp_path / "pets")
    assert found.skipped == ("row 1", "row 2")
    assert len(found.train.images) == 3
    read = found.train.images.read([0, 1, 2])
    assert found.replaced == ("row 3",)
    assert np.array_equal(read, np.stack([ramp(8, 8).transpose(2, 0, 1)] * 3))


def test_tables_that_will_not_do(tmp_path: Path) -> None:
    def message(data: Any, name: str) -> str:
        data.save_to_disk(tmp_path / name)
        with pytest.raises(InputError) as error:
            load_images(tmp_path / name)
        return str(error.value)

    words = datasets.Dataset.from_dict({"text": ["a", "b"]})
    assert "rename the column of pictures to image; the columns are text" in message(words, "words")
    numbers = datasets.Dataset.from_dict({"image": [1, 2]})
    assert "write the bytes of picture files (PNG or JPEG) into the column" in message(
        numbers, "numbers"
    )
    floats = table().add_column("label", [0.5, 1.0, 2.0, 3.0])
    assert "correct the labels in column 'label'; all must be numbers, or all names" in message(
        floats, "floats"
    )
    splits = {"train": table(label=list("abab")), "test": table(2).add_column("label", [0, 1])}
    assert "name the classes of both parts, or of neither" in message(
        datasets.DatasetDict(splits), "splits"
    )
    unnamed = datasets.DatasetDict({"one": table(), "two": table()})
    assert "rename the training split to 'train'; splits: one, two" in message(unnamed, "unnamed")


def test_a_table_of_addresses_beside_pictures(tmp_path: Path) -> None:
    for i in range(2):
        save(tmp_path / "00000" / f"{i}.png", ramp(8, 8))
    rows = datasets.Dataset.from_dict({"url": ["a", "b"], "caption": ["one", "two"]})
    rows.to_parquet(tmp_path / "00000.parquet")
    assert len(load_images(tmp_path).train.images) == 2
    assert len(load_images(tmp_path / "00000").train.images) == 2


def test_pictures_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    for name in ("pets", "private"):
        table().save_to_disk(tmp_path / name)
    state = tmp_path / "pets" / "state.json"
    content = json.loads(state.read_text())
    (file,) = (tmp_path / "private").glob("*.arrow")
    content["_data_files"] = [{"filename": f"../private/{file.name}"}]
    state.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"state\.json: save this dataset again; .* is a path"):
        load_images(tmp_path / "pets")


def test_cells_name_only_pictures_in_the_folder(tmp_path: Path) -> None:
    inside = save(tmp_path / "pets" / "a.png", ramp(8, 8))
    save(tmp_path / "private" / "a.png", ramp(8, 8))
    paths = ["a.png", str(inside), "../private/a.png", str(tmp_path / "private" / "a.png"), "a\0b"]
    cells = [{"bytes": None, "path": path} for path in paths]
    datasets.Dataset.from_dict({"image": cells}).to_parquet(tmp_path / "pets" / "train.parquet")
    found = load_images(tmp_path / "pets")
    assert found.skipped == ("row 2", "row 3", "row 4")
    assert len(found.train.images) == 2


def test_damaged(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"_data_files": []}')
    (tmp_path / "dataset_info.json").write_text("{")
    with pytest.raises(InputError, match=r"dataset_info\.json: restore this file; .*JSON"):
        load_images(tmp_path)
    (tmp_path / "dataset_info.json").unlink()
    (tmp_path / "train.parquet").write_bytes(b"words")
    with pytest.raises(
        InputError, match="save the dataset again; isotrope cannot read this folder"
    ):
        load_images(tmp_path)
