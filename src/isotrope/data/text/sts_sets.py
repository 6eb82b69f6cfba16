"""Reads sentence pairs with human similarity scores: the seven STS tasks, or one file.

The folder of the seven tasks has one of two layouts:

- files ``sts12/MSRpar.tsv`` ... ``stsb/test.tsv``, ``sickr/test.tsv``, which may end in ``.gz``.
  The lines are score<TAB>sentence1<TAB>sentence2, without header or quoting;
- SentEval's folder ``downstream``, with ``STS/STS12-en-test/STS.input.MSRpar.txt`` and
  ``STS.gs.MSRpar.txt`` ..., ``STS/STSBenchmark/sts-test.csv``, ``SICK/SICK_test_annotated.txt``.
  You may also give the folder ``STS`` in it. A pair with a blank score is skipped.

Subsets and protocol are those of SimCSE (Gao et al. 2021), which leaves out SentEval's subset SMT
of STS13. A subset with a wrong number of pairs raises an error, because its file may be cut off.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isotrope.core.documents import check_file
from isotrope.core.errors import InputError, place, unknown
from isotrope.data.lines import fields, is_folder, lines, quoted
from isotrope.data.rows import cell_score, cell_text
from isotrope.data.sources import read

# the number of scored pairs in every subset
_PAIRS: dict[str, dict[str, int]] = {
    "STS12": {
        "MSRpar": 750,
        "MSRvid": 750,
        "SMTeuroparl": 459,
        "surprise.OnWN": 750,
        "surprise.SMTnews": 399,
    },
    "STS13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "STS14": {
        "deft-forum": 450,
        "deft-news": 300,
        "headlines": 750,
        "images": 750,
        "OnWN": 750,
        "tweet-news": 750,
    },
    "STS15": {
        "answers-forums": 375,
        "answers-students": 750,
        "belief": 375,
        "headlines": 750,
        "images": 750,
    },
    "STS16": {
        "answer-answer": 254,
        "headlines": 249,
        "plagiarism": 230,
        "postediting": 244,
        "question-question": 209,
    },
    "STS-B": {"dev": 1500, "test": 1379},
    "SICK-R": {"dev": 500, "test": 4927},
}
_SPLITS = ("train", "dev", "test")
_SICK_COLUMNS = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
_SICK_FILES = {"dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}

COLUMNS = ("score", "sentence1", "sentence2")
"""The columns of a file of scored pairs."""
TASKS = tuple(_PAIRS)
"""The seven tasks in the order in which papers print them."""


@dataclass(frozen=True)
class Subset:
    """Sentence pairs with similarity scores: a subset of a task, or a file.

    Attributes:
        task: Name of the task, ``"STS12"`` ... ``"SICK-R"``, or name of the file.
        name: Name of the subset, such as ``"headlines"``. The subsets of STS-B and SICK-R have the
            names of splits.
        split: ``"train"``, ``"dev"`` or ``"test"``; ``"all"`` if the file has none of these names.
        scores: Score of each pair, float64: 0 to 5 in a task (SICK-R: 1 to 5).
        first: First sentence of each pair, with single spaces between words.
        second: Second sentence of each pair.
    """

    task: str
    name: str
    split: str
    scores: NDArray[np.float64]
    first: list[str]
    second: list[str]

    def __len__(self) -> int:
        return len(self.first)


Rows = Iterator[tuple[Any, ...]]  # (line number, score, sentence1, sentence2)


def load_sts(folder: Path | str, tasks: Sequence[str] = TASKS) -> dict[str, list[Subset]]:
    """Return a dict from the name of each task in ``tasks`` to a list of :class:`Subset`.

    For STS-B and SICK-R, the list has the dev split, if its file exists, and the test split.
    """
    folder = Path(folder)
    if not is_folder(folder):
        raise InputError(f"{place(folder)}: check the path; there is no such file or folder")
    for task in tasks:
        if task not in _PAIRS:
            raise InputError(unknown("unknown STS task", task, TASKS))
    absent = [task for task in tasks if not _source(folder, task, "test")[0].parent.is_dir()]
    if absent and len(absent) == len(tasks):
        raise InputError(
            f"{place(folder)}: give SentEval's folder downstream, or a folder with files such as "
            "sts12/MSRpar.tsv and lines score<TAB>sentence1<TAB>sentence2; this folder holds none "
            "of the STS tasks"
        )
    if absent:
        raise InputError(
            f"{place(folder)}: add the tasks {', '.join(absent)}; needed: {', '.join(tasks)}"
        )
    return {task: _load_task(folder, task) for task in tasks}


def _load_task(folder: Path, task: str) -> list[Subset]:
    subsets = []
    for name, pairs in _PAIRS[task].items():
        path, rows = _source(folder, task, name)
        lacking = [file for file in (path, _gold(path)) if not file.exists()]
        if lacking and name == "dev":
            continue
        if lacking:
            raise InputError(
                f"{place(lacking[0])}: add this file for the task {task}; it does not exist"
            )
        split = name if name in _SPLITS else "test"
        subset = _load(path, rows, task, name, split, (1 if task == "SICK-R" else 0, 5))
        if len(subset) != pairs:
            raise InputError(
                f"{place(path)}: download this file again; it has {len(subset)} scored "
                f"pairs, but the subset {name} of {task} has {pairs}"
            )
        subsets.append(subset)
    return subsets


def _source(folder: Path, task: str, name: str) -> tuple[Path, Callable[[Path], Rows]]:
    """Return the file of a subset in the layout of the folder, and the function to read it."""
    sts = folder / "STS" if (folder / "STS").is_dir() else folder
    if not (sts / "STS12-en-test").is_dir() and not (sts / "STSBenchmark").is_dir():
        path = folder / task.lower().replace("-", "") / f"{name}.tsv"
        zipped = path.with_name(f"{name}.tsv.gz")
        path = zipped if zipped.exists() and not path.exists() else path
        return path, _rows
    if task == "SICK-R":
        sick = folder / "SICK" if (folder / "SICK").is_dir() else sts.parent / "SICK"
        return sick / _SICK_FILES[name], _sick_rows
    if task == "STS-B":
        return sts / "STSBenchmark" / f"sts-{name}.csv", _benchmark_rows
    return sts / f"{task}-en-test" / f"STS.input.{name}.txt", _year_rows


def _gold(path: Path) -> Path:
    """Return the file with the scores, often ``path`` itself."""
    return path.with_name(path.name.replace("STS.input.", "STS.gs."))


def load_sts_file(path: Path | str) -> Subset:
    """Load one file of scored pairs.

    The file is a table with the columns ``sentence1``, ``sentence2`` and ``score`` (or other usual
    names, see :mod:`isotrope.data.schemas`). A file without a header has a score and two sentences
    on each line, separated by tabs. A file called train, dev or test is taken as this split.
    """
    path = Path(path)
    check_file(path)
    stem = path.name.split(".")[0]
    return _load(path, _rows, path.name, stem, stem if stem in _SPLITS else "all")


def _load(
    path: Path,
    rows: Callable[[Path], Rows],
    task: str,
    name: str,
    split: str,
    scale: tuple[float, float] = (-math.inf, math.inf),
) -> Subset:
    scores: list[float] = []
    first: list[str] = []
    second: list[str] = []
    for line, score, *sentences in rows(path):
        texts = [
            " ".join(cell_text(cell, path, line, column).split())
            for cell, column in zip(sentences, COLUMNS[1:], strict=True)
        ]
        if not all(texts):
            raise InputError(f"{place(path, line)}: remove this line; a sentence is empty")
        scores.append(_score(score, scale, _gold(path), line))
        first.append(texts[0])
        second.append(texts[1])
    if len(set(scores)) < 2:
        raise InputError(
            f"{place(_gold(path))}: give at least two different scores, which a rank correlation "
            f"needs; the number of different scores in this file is {len(set(scores))}"
        )
    return Subset(task, name, split, np.array(scores), first, second)


def _rows(path: Path) -> Rows:
    """Yield the rows of a table of scored pairs."""
    reading = read([path], scored=True, tabs=True, choose=0)
    for record in reading:
        if reading.kind != "scored pairs" or not record.scores:
            raise InputError(
                f"{place(path, record.line)}: give a score and two sentences in each line, or a "
                "header with score, sentence1 and sentence2; this line is no scored pair"
            )
        yield record.line, record.scores[0], *record.texts
    if reading.left:
        raise InputError(f"{place(path)}: remove or complete {reading.left_out}")


def _year_rows(path: Path) -> Rows:
    """Yield the rows of SentEval's STS12 to STS16; their scores are in a separate file."""
    gold = _gold(path)
    for pair, score in zip_longest(fields(path, "sentence1<TAB>sentence2"), lines(gold)):
        if pair is None or score is None:
            longer, line, shorter = (path, pair[0], gold) if pair else (gold, score[0], path)
            raise InputError(
                f"{place(longer, line)}: download this file and {shorter.name} again; the file "
                f"{shorter.name} has no such line"
            )
        if score[1].strip():
            yield pair[0], score[1], *pair[1]


def _benchmark_rows(path: Path) -> Rows:
    """Yield the rows of SentEval's STS-B; fields after the sentences (sources) are ignored."""
    for line, text in lines(path):
        cells = text.split("\t")
        if not 7 <= len(cells) <= 9:
            raise InputError(
                f"{place(path, line)}: give 7 to 9 tab-separated fields, with score, sentence1 and "
                f"sentence2 as fields 5 to 7; this line has {len(cells)}"
            )
        yield line, *cells[4:7]


def _sick_rows(path: Path) -> Rows:
    """Yield the rows of SICK, which has a header."""
    for line, cells in fields(path, "<TAB>".join(_SICK_COLUMNS)):
        if line > 1 or cells[:4] != _SICK_COLUMNS[:4]:
            yield line, cells[3], cells[1], cells[2]


def _score(value: object, scale: tuple[float, float], path: Path, line: int) -> float:
    number = cell_score(value, path, line)
    if not scale[0] <= number <= scale[1]:
        raise InputError(
            f"{place(path, line)}: correct the score {quoted(value)}; scores lie between "
            f"{scale[0]:g} and {scale[1]:g}"
        )
    return number
