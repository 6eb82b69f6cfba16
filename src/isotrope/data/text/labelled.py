"""Reads texts or feature vectors with one label each, in a training and a test set.

A file of texts is ``.tsv`` or ``.txt`` (``label<TAB>text`` without quoting; other columns need a
header line with their names), ``.csv``, ``.jsonl`` or ``.parquet`` with named columns; each may end
in ``.gz``. The column of texts may be called sentence, as in GLUE. A folder holds two of them,
called train and test.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isotrope.core.errors import InputError
from isotrope.data.lines import check_file, is_folder, lines, place, quoted
from isotrope.data.tables import TABLE_READERS, Choose, cell_text, named, plain_suffix
from isotrope.data.text.corpora import HEADER

__all__ = ["Features", "LabelledSplit", "LabelledText", "load_features", "load_labelled"]

_TABBED = (".tsv", ".txt")
_HEADER = HEADER | {"category", "class", "idx", "index", "review", "sentiment", "target"}
_ENDINGS = tuple(end + zipped for zipped in ("", ".gz") for end in (*_TABBED, *TABLE_READERS))


@dataclass(frozen=True)
class LabelledText:
    """Texts and their labels, as many of each.

    Attributes:
        texts: single spaces between words.
        labels: the names of their classes.
    """

    texts: list[str]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class LabelledSplit:
    """The training part and the test part for a classifier.

    Attributes:
        train: the texts to fit on.
        test: the texts to score on.
    """

    train: LabelledText
    test: LabelledText


@dataclass(frozen=True)
class Features:
    """Frozen features, of images or anything else, and their labels.

    Attributes:
        vectors: n x d, an array or memory map.
        labels: n integers or strings.
        marks: n integers, equal for what is the same text or picture; None where that is unknown.
    """

    vectors: np.ndarray
    labels: np.ndarray | Sequence[int] | Sequence[str]
    marks: np.ndarray | None = None


def load_labelled(
    path: Path | str,
    test: Path | str | None = None,
    *,
    label: str = "label",
    text: str = "text",
    train_fraction: float = 0.8,
    seed: int = 0,
) -> LabelledSplit:
    """Load labelled texts that are split into files, or split those of one file.

    Of one file, every class gives ``train_fraction`` of its texts, rounded up, drawn by the seed.
    A text that occurs twice can land on both sides; the scores say how many do.

    Args:
        path: a folder of a train and a test file, the training file, or the only file.
        test: the test file.
        label: name of the column of labels.
        text: name of the column of texts.
        train_fraction: between 0 and 1; only for one file.
        seed: the seed of the draw.

    Raises:
        InputError: a file cannot be read; a row without text or label; a header of other names;
            nothing to test on; no label of the test file in the training file.
        MissingExtra: a parquet file, and pyarrow is not installed.
    """
    path = Path(path)
    if test is None and is_folder(path):
        path, test = _part(path, "train"), _part(path, "test")
    if test is not None:
        tested = _load(Path(test), label, text, classes=1)
        split = LabelledSplit(_load(path, label, text), tested)
        if set(split.train.labels).isdisjoint(split.test.labels):
            raise InputError(
                f"{place(Path(test))}: none of its labels ({quoted(split.test.labels[0])} ...) is "
                f"among those of {place(path)} ({quoted(split.train.labels[0])} ...); give two "
                "parts of one set, each label<TAB>text or with a header"
            )
        return split
    if not 0 < train_fraction < 1:
        raise InputError(f"the training fraction must lie between 0 and 1; found {train_fraction}")
    return _split(_load(path, label, text), train_fraction, seed, path)


def load_features(vectors: Path | str, labels: Path | str) -> Features:
    """Open features (``.npy``, n x d, memory-mapped) and their labels (``.npy``, or one a line).

    Raises:
        InputError: a file cannot be read, or holds something else.
    """
    rows = _array(Path(vectors), "features")
    path = Path(labels)
    if path.suffix == ".npy":
        return Features(rows, np.array(_array(path, "labels")))
    return Features(rows, np.array([text.strip() for _, text in lines(path) if text.strip()]))


def _array(path: Path, what: str) -> np.ndarray:
    check_file(path)
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # damaged bytes make a reader fail in any way
        raise InputError(
            f"{place(path)}: not an .npy file of numbers ({quoted(str(error), 80)}); save the "
            f"{what} with numpy.save"
        ) from error


def _part(folder: Path, name: str) -> Path:
    candidates = [folder / (name + end) for end in _ENDINGS if (folder / (name + end)).exists()]
    if len(candidates) != 1:
        what = f"several, {', '.join(path.name for path in candidates)}" if candidates else "none"
        raise InputError(
            f"{place(folder)}: one file called {name}.tsv, .txt, .csv, .jsonl or .parquet is "
            f"needed; found {what}"
        )
    return candidates[0]


def _load(path: Path, label: str, text: str, classes: int = 2) -> LabelledText:
    data = LabelledText([], [])
    for line, *cells in _rows(path, (label, text)):
        name, words = (
            " ".join(cell_text(cell, path, line, column).split())
            for cell, column in zip(cells, (label, text), strict=True)
        )
        if not name or not words:
            what = "label" if not name else "text"
            raise InputError(f"{place(path, line)}: no {what}; give one or remove the line")
        data.labels.append(name)
        data.texts.append(words)
    if len(set(data.labels)) < classes:
        raise InputError(
            f"{place(path)}: {len(data)} texts with {len(set(data.labels))} different labels; "
            f"at least {classes} are needed"
        )
    return data


def _named(columns: tuple[str, str]) -> Choose:
    """Return the choice of these columns; one of texts that is called sentence will do."""

    def choose(path: Path, header: Sequence[str]) -> Sequence[str]:
        label, text = columns
        if text == "text" and text not in header and "sentence" in header:
            text = "sentence"
        return named((label, text))(path, header)

    return choose


def _rows(path: Path, columns: tuple[str, str]) -> Iterator[tuple[Any, ...]]:
    """Yield (line number, label, text), blank lines left out; a numeric label as text."""
    check_file(path)
    suffix = plain_suffix(path)
    if suffix in _TABBED:
        yield from _tabbed(path, columns)
    elif suffix in TABLE_READERS:
        for line, (label, text) in TABLE_READERS[suffix](path, _named(columns)):
            if label not in (None, "") or text not in (None, ""):
                yield line, str(label) if type(label) is int else label, text
    else:
        raise InputError(
            f"{place(path)}: unknown kind of file {suffix!r} for labelled texts; "
            f"known are {', '.join((*_TABBED, *TABLE_READERS))}, and each of them with .gz"
        )


def _tabbed(path: Path, columns: tuple[str, str]) -> Iterator[tuple[int, str, str]]:
    positions: list[int] | None = None
    width = 2
    for line, row in lines(path):
        if not row.strip():
            continue
        cells = row.split("\t")
        if positions is None:
            header = [cell.strip() for cell in cells]
            titled = "label" in header and not {"text", "sentence"}.isdisjoint(header)
            if titled or columns != ("label", "text"):
                positions = [header.index(name) for name in _named(columns)(path, header)]
                width = len(header)
                continue
            if len(header) > 1 and {cell.lower() for cell in header} <= _HEADER:
                raise InputError(
                    f"{place(path, line)}: {quoted(row)} is a header, which would be read as an "
                    "example; call its columns label and text, or remove it if they are "
                    "label<TAB>text"
                )
            positions = [0, 1]
        if len(cells) != width:
            raise InputError(
                f"{place(path, line)}: {len(cells)} tab-separated fields where {width} are "
                f"needed{': label<TAB>text' if width == 2 else ''}"
            )
        yield line, cells[positions[0]], cells[positions[1]]


def _split(data: LabelledText, fraction: float, seed: int, path: Path) -> LabelledSplit:
    order = np.random.default_rng(seed).permutation(len(data))
    labels = np.array(data.labels)[order]
    first = np.zeros(len(data), dtype=bool)
    for name in np.unique(labels):
        rows = order[labels == name]
        # rounded first: 0.07 * 100 is a little more than 7
        first[rows[: math.ceil(round(fraction * len(rows), 9))]] = True
    if first.all():
        raise InputError(
            f"{place(path)}: a training fraction of {fraction} of {len(data)} texts leaves none "
            "to test on; lower it or give a test file"
        )
    train, test = (
        LabelledText([data.texts[i] for i in rows], [data.labels[i] for i in rows])
        for rows in (np.flatnonzero(first), np.flatnonzero(~first))
    )
    return LabelledSplit(train, test)
