"""Sentence pairs with a human similarity score: the seven STS tasks, or one file of your own.

The seven tasks lie in a folder as ``sts12/MSRpar.tsv`` ... ``stsb/{train,dev,test}.tsv``,
``sickr/{train,dev,test}.tsv`` (each may end in ``.gz``), lines score<TAB>sentence1<TAB>sentence2
without header or quoting. Subsets and protocol: SentEval as SimCSE uses it (Gao et al. 2021),
which leaves SMT out of STS13.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError, nearest
from isotrope.data.lines import check_file, is_folder, lines, place, shown
from isotrope.data.tables import cell_text, csv_rows, json_rows, named, parquet_rows

__all__ = ["TASKS", "Subset", "load_sts", "load_sts_file"]

_SPLITS = ("train", "dev", "test")
_LAYOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "STS12": ("sts12", ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")),
    "STS13": ("sts13", ("FNWN", "headlines", "OnWN")),
    "STS14": (
        "sts14",
        ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    ),
    "STS15": (
        "sts15",
        ("answers-forums", "answers-students", "belief", "headlines", "images"),
    ),
    "STS16": (
        "sts16",
        ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
    ),
    "STS-B": ("stsb", _SPLITS),
    "SICK-R": ("sickr", _SPLITS),
}

TASKS = tuple(_LAYOUT)
"""The seven tasks in the order in which papers print them."""

_COLUMNS = ("score", "sentence1", "sentence2")


@dataclass(frozen=True)
class Subset:
    """Scored sentence pairs that belong together.

    Attributes:
        task: ``"STS12"`` ... ``"SICK-R"``, or the name of the file.
        name: of the subset, e.g. ``"headlines"``; for STS-B and SICK-R the split.
        split: ``"train"``, ``"dev"``, ``"test"``, or ``"all"`` where the file does not say.
        scores: float64 (pairs), in the set's own unit (0 to 5, SICK-R 1 to 5).
        first: the first sentence of each pair, single spaces between words.
        second: the second sentence of each pair.
    """

    task: str
    name: str
    split: str
    scores: NDArray[np.float64]
    first: list[str]
    second: list[str]

    def __len__(self) -> int:
        return len(self.first)


def load_sts(folder: Path | str, tasks: Sequence[str] = TASKS) -> dict[str, list[Subset]]:
    """Load the STS tasks of a folder, every split of them, in the order of ``tasks``.

    Raises:
        InputError: an unknown task, a missing subset, or a line that is no scored pair; all
            files are checked before anything is returned.
    """
    folder = Path(folder)
    if not is_folder(folder):
        raise InputError(f"{place(folder)}: no such folder of STS sets; check the path")
    for task in tasks:
        if task not in _LAYOUT:
            raise InputError(
                f"unknown STS task {task!r}{nearest(task, TASKS)}; known are {', '.join(TASKS)}"
            )
    return {task: _load_task(folder, task) for task in tasks}


def _load_task(folder: Path, task: str) -> list[Subset]:
    room, names = _LAYOUT[task]
    subsets = []
    for name in names:
        path = folder / room / f"{name}.tsv"
        zipped = path.with_name(f"{name}.tsv.gz")
        if not path.exists() and not zipped.exists():
            raise InputError(
                f"{place(path)}: {task} needs this file and it is not there; "
                "complete the folder or leave the task out"
            )
        split = name if name in _SPLITS else "test"
        subsets.append(_load(path if path.exists() else zipped, task, name, split))
    return subsets


def load_sts_file(path: Path | str) -> Subset:
    """Load one file of scored pairs.

    ``.tsv`` or ``.txt``: ``score<TAB>sentence1<TAB>sentence2`` without quoting, a header line with
    these names allowed; ``.csv``, ``.jsonl``, ``.parquet``: columns score, sentence1, sentence2;
    each may end in ``.gz``. A file called train, dev or test has that split.

    Raises:
        InputError: the file cannot be read, or a row is no scored pair.
    """
    path = Path(path)
    check_file(path)
    stem = path.name.split(".")[0]
    return _load(path, path.name, stem, stem if stem in _SPLITS else "all")


def _load(path: Path, task: str, name: str, split: str) -> Subset:
    scores: list[float] = []
    first: list[str] = []
    second: list[str] = []
    for line, score, *sentences in _rows(path):
        texts = [
            " ".join(cell_text(cell, path, line, column).split())
            for cell, column in zip(sentences, _COLUMNS[1:], strict=True)
        ]
        if not all(texts):
            raise InputError(f"{place(path, line)}: an empty sentence; remove the line")
        scores.append(_score(score, path, line))
        first.append(texts[0])
        second.append(texts[1])
    if len(set(scores)) < 2:
        raise InputError(
            f"{place(path)}: {len(scores)} pairs with {len(set(scores))} different scores; "
            "a rank correlation needs at least two"
        )
    return Subset(task, name, split, np.array(scores), first, second)


def _rows(path: Path) -> Iterator[tuple[Any, ...]]:
    """Yield (line number, score, sentence1, sentence2), blank lines left out."""
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    suffix = plain.suffix.lower()
    tables = {".csv": csv_rows, ".jsonl": json_rows, ".parquet": parquet_rows}
    if suffix in tables:
        for line, cells in tables[suffix](path, named(_COLUMNS)):
            if any(cell not in (None, "") for cell in cells):
                yield line, *cells
    elif suffix in (".tsv", ".txt"):
        for line, text in lines(path):
            cells = tuple(text.split("\t"))
            if not text.strip() or (line == 1 and cells == _COLUMNS):
                continue
            if len(cells) != len(_COLUMNS):
                raise InputError(
                    f"{place(path, line)}: {len(cells)} tab-separated fields where 3 are needed: "
                    "score<TAB>sentence1<TAB>sentence2"
                )
            yield line, *cells
    else:
        raise InputError(
            f"{place(path)}: unknown kind of file {suffix!r} for scored pairs; "
            f"known are .tsv, .txt, {', '.join(tables)}, and each of them with .gz"
        )


def _score(value: object, path: Path, line: int) -> float:
    try:
        score = float(value) if isinstance(value, str | int | float) else math.nan
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise InputError(
            f"{place(path, line)}: score {shown(value)} is not a finite number; "
            "correct it or remove the line"
        )
    return score
