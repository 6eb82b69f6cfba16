"""Reads data sets from files, with or without names (``qa=pairs.tsv nli=nli.tsv``), or from memory.

In a folder, files that are test or dev splits by their names are skipped. Data in memory are
written once to a file of JSON lines. From this file, another process can resume, diagnose and
repeat a run; :func:`read` reads the file.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, zip_longest
from pathlib import Path
from typing import Literal

from isotrope.core.errors import InputError, place, unreadable
from isotrope.core.files import atomic_replace, file_digest, from_home
from isotrope.core.spelling import brief
from isotrope.core.trust import check_named
from isotrope.data.lines import is_folder
from isotrope.data.schemas import HEADER, TEXT, Reading
from isotrope.data.table import (
    SUFFIXES,
    check_kind,
    frame_library,
    is_hub_name,
    is_saved,
    plain_suffix,
    table_of,
)

Sampling = Literal["proportional", "round-robin"]
NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
"""Pattern of the name of a data set."""

_NAMED = re.compile(rf"({NAME.pattern})=(.+)", re.ASCII)

TRAIN = "train"
# the same words as in the library datasets of Hugging Face
_WORDS = {
    TRAIN: ("train", "training"),
    "test": ("test", "testing", "eval", "evaluation"),
    "validation": ("validation", "valid", "dev", "val"),
}
_UNTRAINED = _WORDS["test"] + _WORDS["validation"]
_PART = "|".join(_UNTRAINED)
# begins or ends with a word: test_set.tsv, ptb.valid.txt, a_test-00000-of-00001.csv.gz
_SURELY = re.compile(rf"^({_PART})[_.]|(^|[._-])({_PART})[-_\d]*(of-\d+)?(\.\w+){{1,2}}$")


def dataset_files(files: Sequence[str]) -> dict[str, list[str]]:
    """Return a dict from the name of each data set to its files. Without names, the key is ``""``.

    The path of an existing file is not split at ``=``.

    >>> dataset_files(["qa=a.tsv", "nli=b.tsv", "qa=c.tsv"])
    {'qa': ['a.tsv', 'c.tsv'], 'nli': ['b.tsv']}
    """
    datasets: dict[str, list[str]] = {}
    for file in files:
        match = _NAMED.fullmatch(file)
        match = None if match and Path(file).exists() else match
        name, path = match.groups() if match else ("", file)
        datasets.setdefault(name, []).append(from_home(path) if name else path)
    if "" in datasets and len(datasets) > 1:
        raise InputError(
            f"give {brief(datasets[''][0])} a name too, as NAME=FILE: the other data sets have "
            f"names ({', '.join(name for name in datasets if name)})"
        )
    return datasets


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Put the name of a data set, if not empty, before error messages of the ``with`` block."""
    try:
        yield
    except InputError as error:
        if name:
            error.problem = f"data set {name}: {error.problem}"
        raise


def digests(files: Iterable[Path | str]) -> dict[str, str]:
    """Return a dict from the path of each existing file to a hash of the bytes in the file."""
    return {str(path): file_digest(path) for path in map(Path, files) if path.is_file()}


def is_in_memory(data: object) -> bool:
    """Return True if ``data`` holds texts, and False if it holds names of files.

    A string in a list is the name of a file if this file exists (or a folder with such files), or
    if the string has no white space and ends in a suffix such as ``.tsv``. A list with both names
    and texts raises an error.
    """
    if isinstance(data, (str, Path)):
        return False
    if not isinstance(data, Iterable):
        raise InputError(
            "give the path of a file, a list of texts or of pairs, a DataFrame, or a "
            f"datasets.Dataset; found {brief(data)} ({type(data).__name__})"
        )
    if frame_library(data) or not isinstance(data, Sequence):
        return True
    files = [item for item in data if isinstance(item, Path) or _names_file(item)]
    if files and len(files) < len(data):
        text = next(item for item in data if item not in files)
        raise InputError(
            f"give only files or only texts in a list; {brief(str(files[0]))} names a file, but "
            f"{brief(text)} does not"
        )
    return not files


def _names_file(value: object) -> bool:
    if not isinstance(value, str) or not value or len(value) > 1000:
        return False
    try:
        path = Path(value)
        files = (file for file in path.rglob("*") if plain_suffix(file) in SUFFIXES)
        exists = any(files) if path.is_dir() else path.exists()
    except (OSError, ValueError):
        return False
    return exists or (len(value.split()) == 1 and plain_suffix(Path(value)) in SUFFIXES)


def named_datasets(data: object) -> Mapping[str, object]:
    """Return a mapping from name to data set. Data without a name have the key ``""``."""
    if not isinstance(data, Mapping) or frame_library(data):
        return {"": data}
    if HEADER & set(data) and not any(frame_library(value) for value in data.values()):
        raise InputError(
            "give columns as datasets.Dataset.from_dict(...) or as a list of pairs: the keys of a "
            f"dictionary must name data sets, but {brief(next(iter(data)))} is the name of a column"
        )
    if wrong := [name for name in data if not (isinstance(name, str) and NAME.fullmatch(name))]:
        raise InputError(
            "begin the name of a data set with a letter, and use only letters, digits, - and _; "
            f"found {brief(wrong[0])}"
        )
    return data


def write_records(
    data: object,
    columns: Sequence[str],
    file: Path,
    *,
    groups: str | None = None,
    scored: bool = False,
) -> Reading | None:
    """Write data in memory to ``file`` as records. An existing file must hold the same records.

    Args:
        data: Data for which :func:`is_in_memory` is True.
        columns: Columns of texts, in the order anchor, positive, negatives. If empty, the columns
            are recognised by their names.
        file: File to write.
        groups: Column of groups to write; None if there are no groups.
        scored: Whether scored pairs may be written. If False, they raise an error.

    Returns:
        The :class:`Reading` of the data; None if the file already existed.
    """
    if groups in {"anchor", "positive", "negative", "text", "scores"}:
        raise InputError(
            f"rename the column of groups: only texts or scores may have the name {groups!r}"
        )
    names = [str(column) for column in columns]
    table = table_of(data, wanted=[*names, groups or ""])
    reading = Reading([table], names, groups, paired=False, scored=scored)
    lines = _lines(reading, groups)
    if file.exists():
        with file.open(encoding="utf-8") as handle:
            if any(line != other for line, other in zip_longest(lines, handle)):
                raise InputError(
                    "give the same data to continue this run, or choose another output folder: "
                    f"the data of this call differ from those in {place(file)}"
                )
        return None
    first = next(lines)
    with atomic_replace(file) as temporary, temporary.open("w", encoding="utf-8") as handle:
        handle.writelines(chain([first], lines))
    return reading


def _lines(reading: Reading, groups: str | None) -> Iterator[str]:
    for record in reading:
        form, more = next(iter(reading.forms)), dict[str, object]()
        if form.scores and reading.kind != "scored pairs":
            more["scores"] = list(record.scores)
        if groups or record.group:
            more[groups or "label"] = record.group
        if reading.kind == "scored pairs":  # a column "positive" would not have scores
            names = ("sentence1", "sentence2", "score")
            values = dict[str, object](zip(names, (*record.texts, *record.scores), strict=True))
        elif len(form.texts) == 1:
            values = {"text": record.texts[0]}
        else:
            anchor, positive, *others = record.texts
            values = {"anchor": anchor, "positive": positive}
            values |= {"negative": others} if len(form.texts) > 2 else {}
        yield json.dumps({**values, **more}) + "\n"


def read(
    data: object,
    *,
    columns: Sequence[str] | None = None,
    groups: str | None = None,
    streaming: bool = False,
    paired: bool = True,
    scored: bool = False,
    choose: int = 2,
    tabs: bool = False,
) -> Reading:
    """Return a :class:`Reading` of ``data``. The other arguments are attributes of the Reading.

    ``data`` is a data frame, a data set, a list of records, or a list of paths and hub names.
    """
    names = [str(column) for column in columns or ()]
    how = (names, groups, streaming, paired, scored, choose, tabs)  # as the fields of Reading
    if not isinstance(data, (list, tuple)) or not all(isinstance(d, (str, Path)) for d in data):
        return Reading([table_of(data, wanted=[*names, groups or ""])], *how)
    if not data:
        raise InputError("name at least one file or folder with text; none is named")
    files, others = files_of(data)
    return Reading(files, *how, other_files=others)


def read_all(data: object, columns: Sequence[str] = (), groups: str | None = None) -> Reading:
    """Return the records of a file, a folder, a data set of the hub, or data in memory."""
    if is_in_memory(data):
        names = [str(column) for column in columns]
        return Reading([table_of(data, wanted=[*names, groups or ""])], names, groups)
    return read([Path(str(data))], columns=columns, groups=groups)


def unread_labels(reading: Reading) -> str:
    """Return advice on class labels that are not read as such, or on groups of single texts."""
    form, table = next(iter(reading.forms.items()))
    if form.kind not in ("texts", "pairs") or len(form.texts) > 2:
        return ""
    names = form.texts[table.titled :]  # without a header, labels may be first
    if form.kind == "texts" and form.group:
        names = (form.group,)  # the groups of an audit are numbers
    elif form.kind == "texts":
        names = tuple(n for n in table.columns if n not in form.columns and not reading.columns)
    elif form.group:
        return ""
    if any("," in name for name in form.texts):
        return ""  # no flag can name it
    label, values, rows = table.labels(name for name in names if "," not in name)
    why = f"column {label} looks like a class label ({values:,} values in {rows:,} rows): to train"
    why += " with it, use"
    if form.group:
        why = "texts of a group are not pushed apart; to pull them together, replace `--groups` by"
    (text,) = [text for text in form.texts if text != label][:1] or [label]
    text = text if text.lower() in TEXT else f"text={text}"
    return f"{why} `--columns {text},label={label}`" if label else ""


def named_split(path: Path, folder: Path) -> str | None:
    """Return the split named in a path: ``train``, ``test`` or ``validation``; otherwise None."""
    words = set(re.split(r"[\W\d_]+", path.relative_to(folder).as_posix().lower()))
    return next((split for split, names in _WORDS.items() if words & set(names)), None)


def files_of(paths: Iterable[Path | str]) -> tuple[list[Path], list[Path]]:
    """Return two lists: the files to read, and the skipped files in folders.

    Folders are searched to any depth, also through symbolic links. Hidden and empty files are
    ignored. A folder written by ``save_to_disk`` counts as one file.
    """
    files: list[Path] = []
    others: list[Path] = []
    for path in map(Path, paths):
        check_named(path)
        if is_hub_name(path) or is_saved(path):
            files.append(path)
        elif is_folder(path):
            to_read, skipped = _folder_files(path)
            files += to_read
            others += skipped
        else:
            check_kind(path)
            files.append(path)
    return files, others


def _folder_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of a folder to read, sorted by path, and the skipped files."""
    files: list[Path] = []
    others: list[Path] = []
    for path in _below(folder):
        # a broken link is kept: reading it raises an error that names it
        if plain_suffix(path) not in SUFFIXES:
            others.append(path)
        elif not path.is_file() or path.stat().st_size:
            files.append(path)
    if not files:
        raise InputError(
            f"{place(folder)}: give a folder with a file that ends in {', '.join(SUFFIXES)}; this "
            "folder has no file with text"
        )
    splits = {path: named_split(path, folder) for path in files}
    if TRAIN not in splits.values():  # a word elsewhere is often no split: dev guide.txt
        tops = {path: path.relative_to(folder).parts[0].lower() for path in files}
        sure = (p for p in files if tops[p] in _UNTRAINED or _SURELY.search(p.name.lower()))
        splits = {path: splits[path] for path in sure}
    # if all files are test or dev splits, they are meant
    to_read = [path for path in files if splits.get(path) in (None, TRAIN)] or files
    others += [path for path in files if path not in to_read]
    return sorted(to_read, key=lambda path: path.parts), others


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders that are not hidden."""
    visited: set[tuple[int, int]] = set()
    for root, folders, names in os.walk(folder, followlinks=True, onerror=_unreadable):
        status = Path(root).stat()
        if (status.st_dev, status.st_ino) in visited:  # a loop of symbolic links
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(root, name) for name in names if not name.startswith("."))


def _unreadable(error: OSError) -> None:
    raise unreadable(error.filename, error) from error
