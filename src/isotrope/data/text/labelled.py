"""Reads labelled texts as a training set and a test set.

A file is a table with the columns label and text (or sentence, as in GLUE). A file without a header
has two tab-separated columns; the labels are in the column with fewer different values. A folder
holds two such files, called train and test.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isotrope.core.errors import InputError, place
from isotrope.data.lines import COMPRESSED, is_folder, quoted
from isotrope.data.records import Record
from isotrope.data.rows import number
from isotrope.data.schemas import Reading
from isotrope.data.sources import read
from isotrope.data.table import SUFFIXES

_ENDINGS = tuple(end + zipped for zipped in ("", *COMPRESSED) for end in SUFFIXES)
_TRAINED = 0.8  # share of the texts of a label to train on, if there is one file


@dataclass(frozen=True)
class LabelledText:
    """Texts and their labels.

    Attributes:
        texts: Texts with single spaces between words.
        labels: Label of each text.
    """

    texts: list[str]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.texts)


class LabelledSplit(NamedTuple):
    """Labelled texts to fit a classifier (``train``), and labelled texts to score it (``test``)."""

    train: LabelledText
    test: LabelledText


@dataclass(frozen=True)
class Features:
    """Features from a frozen encoder, and their labels.

    Attributes:
        vectors: Features, n x d, an array or memory map.
        labels: Label of each row, n integers or strings.
        marks: Hash of the text or picture of each row, n integers; None if unknown.
    """

    vectors: np.ndarray
    labels: np.ndarray | Sequence[int] | Sequence[str]
    marks: np.ndarray | None = None

    def __post_init__(self) -> None:
        if (n := len(self.vectors)) != len(self.labels):
            raise InputError(f"give one label per row; {n} rows have {len(self.labels)} labels")


def load_labelled(
    path: Path | str, test: Path | str | None = None, columns: Sequence[str] = ()
) -> LabelledSplit:
    """Load a training set and a test set from two files, from a folder, or from a single file.

    ``columns`` are those of texts and labels in each file; if empty, usual names are recognised.
    From a single file, a random 80% of the texts of each label (rounded up) are for training. If a
    label has two texts or more, one at least is for testing. A repeated text may be in both sets.
    """
    path = Path(path)
    if test is None and is_folder(path):
        path, test = _part(path, "train"), _part(path, "test")
    if test is not None:
        split = LabelledSplit(_load(path, columns), _load(Path(test), columns, classes=1))
        if set(split.train.labels).isdisjoint(split.test.labels):
            raise InputError(
                f"{place(Path(test))}: give two files with the same labels, each with lines "
                "label<TAB>text or with a header; no label of this file, such as "
                f"{quoted(split.test.labels[0])}, is in {place(path)}, where the first label is "
                f"{quoted(split.train.labels[0])}"
            )
        return split
    return _split(_load(path, columns), path)


def _part(folder: Path, name: str) -> Path:
    """Return the only file of a folder that has this name and an ending that can be read."""
    files = [folder / (name + end) for end in _ENDINGS if (folder / (name + end)).exists()]
    if len(files) != 1:
        raise InputError(
            f"{place(folder)}: put exactly one of these files into this folder: "
            f"{', '.join(name + end for end in SUFFIXES)}; found: "
            f"{', '.join(file.name for file in files) or 'none'}"
        )
    return files[0]


def _load(path: Path, columns: Sequence[str], classes: int = 2) -> LabelledText:
    """Read a file of texts that have at least so many different labels (``classes``)."""
    reading = read([path], columns=columns, paired=False, scored=True, tabs=True)
    records = list(reading)
    (table,) = reading.forms.values()
    if reading.kind == "texts" and table.columns == ("1", "2"):
        return _load(path, ("1", "2"), classes)  # labels that all differ, which were read as ids
    labels, texts = _columns(path, reading, records)
    if reading.left:
        raise InputError(f"{place(path)}: remove or complete {reading.left_out}")
    if (found := len(set(labels))) < classes:
        raise InputError(
            f"{place(path)}: give texts with at least {classes} different labels; these "
            f"{len(texts)} texts have {found}"
        )
    return LabelledText([" ".join(text.split()) for text in texts], labels)


def _columns(path: Path, reading: Reading, records: list[Record]) -> tuple[list[str], list[str]]:
    """Return the column of labels and the column of texts."""
    if reading.kind == "labelled texts":
        return [record.group for record in records], [record.texts[0] for record in records]
    # two columns that were chosen, or have no header
    names = reading.names
    if reading.kind == "pairs" and names[2:] == [] and (reading.columns or names == ["1", "2"]):
        columns = [list(column) for column in zip(*(r.texts for r in records), strict=True)]
        if names != ["1", "2"]:  # if nothing else decides, the text is named first
            columns.reverse()
        # the labels have fewer different values; if all values differ, the labels are the numbers
        columns.sort(key=lambda values: (len(set(values)), None in map(number, values)))
        return columns[0], columns[1]
    raise InputError(
        f"{place(path)}: name the columns of texts and labels, such as `--columns "
        f"text,label=intent`; the file is read as {reading.kind}, its columns are "
        f"{', '.join(next(iter(reading.forms.values())).columns)}"
    )


def _split(data: LabelledText, path: Path) -> LabelledSplit:
    """Divide the texts of each label at random into those for training and those for testing."""
    order = np.random.default_rng(0).permutation(len(data))
    _, label, counts = np.unique(data.labels, return_inverse=True, return_counts=True)
    by_label = order[np.argsort(label[order], kind="stable")]
    in_training = np.zeros(len(data), dtype=bool)
    for rows in np.split(by_label, np.cumsum(counts)[:-1]):
        share = math.ceil(round(_TRAINED * len(rows), 9))  # rounded: 0.8 * 15 may be above 12
        in_training[rows[: min(share, max(len(rows) - 1, 1))]] = True
    if in_training.all():
        raise InputError(
            f"{place(path)}: give at least two texts of each label, or a folder with two files "
            "called train and test; every label of this file has only one text, so no text is left "
            "to test on"
        )
    train, test = (
        LabelledText([data.texts[i] for i in rows], [data.labels[i] for i in rows])
        for rows in (np.flatnonzero(in_training), np.flatnonzero(~in_training))
    )
    return LabelledSplit(train, test)
