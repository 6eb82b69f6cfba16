"""Reads the seven transfer tasks of SentEval, in which sentences are classified.

The files of a folder are ``mr/all.tsv``, ``cr/all.tsv``, ``subj/all.tsv``, ``mpqa/all.tsv``,
``sst2/{train,dev,test}.tsv``, ``trec/{train,test}.tsv`` and ``mrpc/{train,test}.tsv``. All may end
in ``.gz``. The lines are label<TAB>text, for MRPC label<TAB>text1<TAB>text2, without header or
quoting. A wrong number of rows with a label raises an error, because scores on an incomplete set
cannot be compared with published scores. The splits are SentEval's (Conneau and Kiela 2018).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError, place, unknown
from isotrope.data.lines import fields, is_folder, quoted


@dataclass(frozen=True)
class _Layout:
    """Required contents of the files of a task: number of rows of each label, of empty texts."""

    rows: dict[str, tuple[int, ...]]
    labels: tuple[str, ...] = ("0", "1")
    texts: int = 1
    empty: int = 0


_LAYOUT = {
    "MR": _Layout({"all": (5331, 5331)}),
    "CR": _Layout({"all": (1368, 2407)}, empty=4),  # SentEval's tokenisation made them empty
    "SUBJ": _Layout({"all": (5000, 5000)}),
    "MPQA": _Layout({"all": (7294, 3312)}, empty=3),
    "SST2": _Layout({"train": (29780, 37569), "dev": (428, 444), "test": (912, 909)}),
    "TREC": _Layout(
        {"train": (86, 1162, 1250, 1223, 835, 896), "test": (9, 138, 94, 65, 81, 113)},
        labels=("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
    ),
    "MRPC": _Layout({"train": (1323, 2753), "test": (578, 1147)}, texts=2),
}

TASKS = tuple(_LAYOUT)
"""The seven tasks in the order in which papers print them."""


@dataclass(frozen=True)
class Examples:
    """Texts with their classes, in the order of the file.

    Attributes:
        labels: Number of each example's class, int64 (n), from 0.
        texts: Text of each example, or first text of each pair, with single spaces between words.
        seconds: Second text of each pair; an empty list if the examples are not pairs.
    """

    labels: NDArray[np.int64]
    texts: list[str]
    seconds: list[str]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TransferTask:
    """A classification task.

    Attributes:
        name: Name of the task: ``"MR"`` ... ``"MRPC"``.
        labels: Names of the classes, in the order of their numbers.
        splits: Dict from the name of a split (``all``, ``train``, ``dev``, ``test``) to the texts.
    """

    name: str
    labels: tuple[str, ...]
    splits: dict[str, Examples]


def load_transfer(
    folder: Path | str, tasks: Sequence[str] | None = None
) -> dict[str, TransferTask]:
    """Return a dict from the name of each task in ``tasks`` to the task. None: all seven tasks."""
    folder = Path(folder)
    if not is_folder(folder):
        raise InputError(f"{place(folder)}: check the path; no such folder of transfer tasks")
    for task in tasks or ():
        if task not in _LAYOUT:
            raise InputError(unknown("unknown transfer task", task, TASKS))
    chosen = TASKS if tasks is None else tuple(dict.fromkeys(tasks))
    absent = [task for task in chosen if not is_folder(folder / task.lower())]
    if absent:
        raise InputError(
            f"{place(folder)}: add the folders {', '.join(absent).lower()}, or name only tasks "
            f"with a folder: {', '.join(absent)} are missing, and the average needs all seven tasks"
        )
    return {task: _load_task(folder / task.lower(), task) for task in chosen}


def _load_task(folder: Path, task: str) -> TransferTask:
    layout = _LAYOUT[task]
    splits = {}
    for name in layout.rows:
        path, zipped = folder / f"{name}.tsv", folder / f"{name}.tsv.gz"
        if not path.exists() and not zipped.exists():
            raise InputError(
                f"{place(path)}: add this file for {task}, or name other tasks; it does not exist"
            )
        splits[name] = _load(path if path.exists() else zipped, task, name)
    return TransferTask(task, layout.labels, splits)


def _load(path: Path, task: str, split: str) -> Examples:
    layout = _LAYOUT[task]
    number = {label: i for i, label in enumerate(layout.labels)}
    labels: list[int] = []
    texts: list[list[str]] = []
    needed = "label<TAB>text" if layout.texts == 1 else "label<TAB>text1<TAB>text2"
    for line, (label, *cells) in fields(path, needed):
        if label not in number:
            raise InputError(
                f"{place(path, line)}: give one of the labels {', '.join(layout.labels)}; {task} "
                f"has no label {quoted(label)}"
            )
        labels.append(number[label])
        texts.append([" ".join(cell.split()) for cell in cells])
    _check_counts(path, task, split, labels, sum(not all(words) for words in texts))
    first, *rest = ([row[i] for row in texts] for i in range(layout.texts))
    return Examples(np.array(labels, dtype=np.int64), first, rest[0] if rest else [])


def _check_counts(path: Path, task: str, split: str, labels: Sequence[int], empty: int) -> None:
    layout = _LAYOUT[task]
    expected, counted = layout.rows[split], np.bincount(labels, minlength=len(layout.labels))
    if tuple(counted) != expected:
        rows = [
            ", ".join(f"{n} of label {k}" for n, k in zip(counts, layout.labels, strict=True))
            for counts in (counted, expected)
        ]
        raise InputError(
            f"{place(path)}: download this file again; rows: {rows[0]}; needed: {rows[1]}"
        )
    if empty != layout.empty:
        raise InputError(
            f"{place(path)}: download this file again; found {empty} empty texts, but the original "
            f"has {layout.empty}"
        )
