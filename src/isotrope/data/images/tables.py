"""Reads pictures from a Hugging Face dataset folder: parquet files, or ``save_to_disk``'s output.

The pictures are in the first column of type Image, or else in ``image``, ``img`` or ``images``. The
labels are in the first column of type ClassLabel, or else in ``label``, ``labels`` or
``fine_label``. The path of a parquet file names its split (``train-...``, ``test-...``). The test
part is the split ``test`` or ``validation``: the first with labels, or else the first. A label of
-1 marks a picture without a label.
"""

import functools
import glob
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from isotrope.core.documents import check_file
from isotrope.core.errors import InputError, needs_extra, place
from isotrope.data.images.encoded import readable_pictures
from isotrope.data.images.folder import below, load_folder
from isotrope.data.images.records import ImagePart, ImageSet, matched
from isotrope.data.lines import quoted
from isotrope.data.sources import TRAIN, named_split
from isotrope.data.table import IMAGE, check_saved, is_saved

if TYPE_CHECKING:
    from datasets import Dataset

_TEST = ("test", "validation", "valid", "val")
_LABEL = ("label", "labels", "fine_label")


def is_table(folder: Path) -> bool:
    """Return whether a folder is a Hugging Face dataset."""
    return is_saved(folder) or bool(_parquet(folder))


def _parquet(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.parquet"), *folder.glob("*/*.parquet")])


def _by_split(folder: Path) -> dict[str, list[str]]:
    """Return the parquet files of each split; a name without a split means the training split."""
    files: dict[str, list[str]] = {}
    for path in _parquet(folder):
        check_file(path)
        split = named_split(path, folder) or TRAIN
        files.setdefault(split, []).append(glob.escape(str(path.resolve())))
    return files


def load_table(folder: Path) -> ImageSet:
    """Open a Hugging Face dataset folder."""
    with needs_extra("image"):
        import datasets
    splits = _splits(folder)
    train_rows = splits.get(TRAIN) or next(iter(splits.values()))
    if _column(train_rows, datasets.Image, IMAGE) is None and next(below(folder), None):
        return load_folder(folder)  # a table beside pictures, as img2dataset writes
    train, names, skipped = _part(train_rows, folder)
    tests = [splits[name] for name in _TEST if name in splits and len(splits) > 1]
    if not tests:
        return ImageSet(folder.resolve().name, train, None, names, skipped)
    numbers = ((rows, _labels(rows, folder)[0]) for rows in tests)
    labelled = (rows for rows, of in numbers if of is not None and (of >= 0).any())
    test, test_names, more = _part(next(labelled, tests[0]), folder)
    if test.labels is not None and train.labels is not None:
        test = replace(test, labels=matched(test.labels, test_names, names))
    return ImageSet(folder.resolve().name, train, test, names, (*skipped, *more))


def _splits(folder: Path) -> "Mapping[str, Dataset]":
    """Return the rows of each split; rows without the name of a split are the training split."""
    import datasets

    try:
        with _quiet_datasets():
            if is_saved(folder):
                check_saved(folder)
                loaded = datasets.load_from_disk(str(folder))
            else:
                # with a list of files, datasets reads no card and runs no script of the folder.
                # Each split has its own classes; in one call, all would get those of the first
                loaded = {
                    split: datasets.load_dataset("parquet", data_files=files, split=TRAIN)
                    for split, files in _by_split(folder).items()
                }
    except InputError:
        raise
    except Exception as error:  # datasets may raise any error
        raise InputError(
            f"{place(folder)}: save the dataset again; isotrope cannot read this folder "
            f"({quoted(str(error), 120)})"
        ) from error
    splits: Mapping[str, Dataset] = loaded if isinstance(loaded, Mapping) else {TRAIN: loaded}
    if len(splits) > 1 and TRAIN not in splits:
        raise InputError(
            f"{place(folder)}: rename the training split to 'train'; splits: {', '.join(splits)}"
        )
    return splits


@contextmanager
def _quiet_datasets() -> Iterator[None]:
    """Let the library datasets print nothing, and not report to the hub that files were read."""
    import datasets

    bars, counts = datasets.is_progress_bar_enabled(), datasets.config.HF_UPDATE_DOWNLOAD_COUNTS
    level = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.disable_progress_bars()
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    try:
        yield
    finally:
        datasets.logging.set_verbosity(level)
        datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = counts
        if bars:
            datasets.enable_progress_bars()


def _part(
    rows: "Dataset", folder: Path
) -> tuple[ImagePart, tuple[str, ...] | None, tuple[str, ...]]:
    """Return a split, the names of its classes, and the names of the skipped pictures."""
    import datasets

    image = _column(rows, datasets.Image, IMAGE)
    if image is None:
        raise InputError(
            f"{place(folder)}: rename the column of pictures to {IMAGE[0]}; the columns are "
            f"{', '.join(rows.column_names)}"
        )
    labels, names = _labels(rows, folder)
    try:
        encoded = rows.select_columns([image]).cast_column(image, datasets.Image(decode=False))
    except Exception as error:  # datasets may raise any error
        raise InputError(
            f"{place(folder)}: write the bytes of picture files (PNG or JPEG) into the column "
            f"{image!r}; the type of the column is {str(rows.features[image])[:60]}"
        ) from error
    opened = functools.partial(_opened, folder, encoded, image)
    part, skipped = readable_pictures(range(len(rows)), opened, labels, folder)
    return part, names, skipped


def _opened(folder: Path, rows: "Dataset", column: str, row: int) -> Path | BinaryIO:
    """Return the bytes of the picture in one row, or its path, which must be in the folder."""
    cell = rows[row][column] or {}
    if cell.get("bytes") is not None:
        return io.BytesIO(cell["bytes"])
    path = Path(os.path.normpath(folder.absolute() / (cell.get("path") or "")))
    return path if path.is_relative_to(os.path.normpath(folder.absolute())) else folder


def _column(rows: "Dataset", kind: type, names: tuple[str, ...]) -> str | None:
    """Return the first column of a type, else the first with one of the names, else None."""
    features = rows.features
    typed = [name for name, feature in features.items() if isinstance(feature, kind)]
    return next(iter([*typed, *(name for name in names if name in features)]), None)


def _labels(
    rows: "Dataset", folder: Path
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None]:
    """Return the labels as numbers (-1: unpublished), and the names of the classes."""
    import datasets

    column = _column(rows, datasets.ClassLabel, _LABEL)
    if column is None:
        return None, None
    values = list(rows[column])
    names = tuple(getattr(rows.features[column], "names", None) or ()) or None
    if all(isinstance(value, str) for value in values):
        different, numbers = np.unique(values, return_inverse=True)
        names, values = tuple(different.tolist()), numbers.tolist()
    if not all(isinstance(value, int) for value in values):
        raise InputError(
            f"{place(folder)}: correct the labels in column {column!r}; all must be numbers, or "
            "all names of classes"
        )
    return np.array(values, np.int64), names
