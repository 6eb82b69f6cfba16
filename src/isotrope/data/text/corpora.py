r"""Reads training text from .txt, .tsv, .csv, .jsonl and .parquet files as a stream of records.

A record is a single text, a pair, or a pair with a hard negative. The name of a file and its first
record decide which:

- ``.txt``: one sentence a line (a tab is text); a blank line ends a document;
- ``.tsv``: ``anchor<TAB>positive[<TAB>hard negative]`` without header or quoting, or one field of
  text; with ``columns`` the first line is a header;
- ``.csv`` (with header), ``.jsonl``, ``.parquet``: the columns ``anchor, positive[, negative]``,
  or ``text``, or ``sentence``, or the only one, or those named by ``columns``;
- each of these with ``.gz`` appended; a folder: every such file below it, in sorted order; if the
  names of its parquet files say which split they are, only those of the training split;
- a folder that ``save_to_disk`` of Hugging Face's ``datasets`` wrote, columns as above;
- ``user/dataset``: the training split of a data set of the Hugging Face hub, columns as above.

Text is UTF-8 and stays as it is: it is neither composed nor decomposed (NFC, NFD), and
directions, joiners and emoji are left to the tokenizer. White space at the ends is removed; a text
without visible characters (zero-width spaces, a byte-order mark) counts as empty. Lines end at LF
or CR LF and nowhere else.
"""

import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from isotrope.core.errors import InputError, nearest
from isotrope.data.lines import check_file, is_folder, lines, place, quoted, visible
from isotrope.data.splits import TRAIN, named_split
from isotrope.data.tables import TABLE_READERS, cell_text, named, plain_suffix, whole
from isotrope.data.text.hub import hub_rows, is_hub_name
from isotrope.data.text.saved_dataset import arrow_rows, is_saved, shards

__all__ = [
    "HEADER",
    "PAIR",
    "SUFFIXES",
    "TEXT",
    "Record",
    "corpus_files",
    "other_splits",
    "read",
    "usual_columns",
]

SUFFIXES = (".txt", ".tsv", *TABLE_READERS)
"""The formats that can be read, each also with ``.gz`` appended."""

PAIR = ("anchor", "positive", "negative")
"""The columns of pairs with a hard negative; without one, the first two."""

TEXT = ("text", "sentence")
"""The columns of single texts, the first that is there."""

HEADER = frozenset({
    "anchor", "positive", "negative", "query", "question", "answer", "text", "text1", "text2",
    "sentence", "sentence1", "sentence2", "sentence_a", "sentence_b", "title", "body", "document",
    "passage", "context", "response", "score", "label", "id",
})  # fmt: skip
"""Names of columns: a first line of nothing else is a header, which would be trained on."""
_WHOLE = re.compile(r"^(-?\d+)\.0+$")  # of a group: beside missing numbers, 1 is written as 1.0
_HUB = "hub"  # in place of a suffix
_KINDS = {1: "single texts", 2: "pairs", 3: "pairs with a hard negative"}


class Record(NamedTuple):
    """One record of a corpus, and its file and line.

    Attributes:
        texts: (sentence,), (anchor, positive) or (anchor, positive, hard negative), stripped. A
            field of a pair may be empty; a single sentence is not.
        path: the file.
        line: line number in it, from 1 (of a parquet file the row).
        opens: whether a document starts here, because of a new file or a blank line before it.
        group: what it has in the column of groups; empty if there is none.
    """

    texts: tuple[str, ...]
    path: Path
    line: int
    opens: bool
    group: str = ""


def read(
    paths: Sequence[Path | str],
    *,
    columns: Sequence[str] | None = None,
    groups: str | None = None,
    limit: int | None = None,
    streaming: bool = False,
    by_name: bool = True,
    unread: Callable[[Path, Sequence[str]], object] | None = None,
) -> Iterator[Record]:
    """Yield the records of files and folders in order, in constant memory.

    Args:
        paths: files, folders, and names of data sets of the hub.
        columns: one, two or three column names of tables, in the order of a record's texts.
        groups: the column of tables that says which group a record belongs to: text or whole
            numbers, where 1.0 is 1.
        limit: the largest number of records.
        streaming: keep no copy of a data set of the hub.
        by_name: whether the user can name columns, as messages then propose.
        unread: called with each table of which columns are left out that nobody named.

    Raises:
        InputError: anything wrong with the input, naming file and line: see
            :mod:`isotrope.data.lines` and :mod:`isotrope.data.tables`; also files of unknown
            format, and records of different kinds in one corpus.
        MissingExtra: a parquet file, and pyarrow is not installed; a data set of the hub, and
            datasets is not.
    """
    if not paths:
        raise InputError("no text given; name at least one file or folder")
    if columns is not None and not 1 <= len(columns) <= 3:
        raise InputError(
            f"{len(columns)} columns given; name one (text), two (anchor, positive) or three "
            "(anchor, positive, hard negative)"
        )
    files = corpus_files(paths)
    for path in files if groups is not None else ():
        if _format(path) == ".txt" or (_format(path) == ".tsv" and columns is None):
            raise InputError(
                f"{place(path)}: has no named columns, so none of groups ({groups}); give a .csv, "
                ".jsonl or .parquet file, or a .tsv with a header and `--columns`"
            )
    if columns is not None and all(_format(path) == ".txt" for path in files):
        raise InputError(
            f"{place(files[0])}: has no columns to choose ({', '.join(columns)}): every line of a "
            ".txt file is one text; leave the columns out"
        )
    found = _records(files, columns, groups, streaming, by_name=by_name, unread=unread)
    return islice(found, limit)


def _records(
    files: Sequence[Path],
    columns: Sequence[str] | None,
    groups: str | None,
    streaming: bool,
    *,
    by_name: bool,
    unread: Callable[[Path, Sequence[str]], object] | None,
) -> Iterator[Record]:
    first: Record | None = None
    for path in files:
        opens, has_text = True, False
        rows = _file_rows(path, columns, groups, streaming, by_name=by_name, unread=unread)
        for line, cells in rows:
            texts = tuple(map(visible, cells if groups is None else cells[:-1]))
            if not any(texts):
                opens = True
                continue
            group = "" if groups is None else _WHOLE.sub(r"\1", cells[-1])
            record = Record(texts, path, line, opens, group)
            first = first or record
            if len(texts) != len(first.texts):
                raise InputError(
                    f"{place(path, line)}: found {_kind(texts)}, but "
                    f"{place(first.path, first.line)} holds {_kind(first.texts)}; "
                    "give records of one kind"
                )
            opens, has_text = False, True
            yield record
        if not has_text:
            raise InputError(f"{place(path)}: holds no text; give at least one record")


def _kind(texts: Sequence[str]) -> str:
    return f"{_KINDS[len(texts)]} ({len(texts)} field{'s' if len(texts) > 1 else ''})"


def _file_rows(
    path: Path,
    columns: Sequence[str] | None,
    groups: str | None,
    streaming: bool,
    *,
    by_name: bool,
    unread: Callable[[Path, Sequence[str]], object] | None,
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the line and the texts of each row; the group comes last, if there are any."""
    suffix, last = _format(path), () if groups is None else (groups,)
    if suffix == ".txt":
        return ((line, (text.strip(),)) for line, text in lines(path))
    if suffix == ".tsv":
        return _tab_separated(path, None if columns is None else (*columns, *last), by_name=by_name)
    names: list[str] = []
    usual = functools.partial(usual_columns, by_name=by_name)

    def choose(path: Path, header: Sequence[str]) -> Sequence[str]:
        chosen = (named(columns) if columns else usual)(path, header)
        chosen = [*chosen, *named(last)(path, header)]
        left = [name for name in header if name not in chosen]
        if unread is not None and left and columns is None and not names:
            unread(path, left)
        names[:] = chosen
        return chosen

    def cell(value: object, line: int, place: int) -> str:
        if place == len(names) - len(last) and (number := whole(value)) is not None:
            return str(number)
        return cell_text(value, path, line, names[place])

    if suffix == _HUB:
        rows = hub_rows(path, choose, streaming=streaming)
    else:
        rows = {**TABLE_READERS, ".arrow": arrow_rows}[suffix](path, choose)
    return (
        (line, tuple(cell(value, line, i) for i, value in enumerate(cells))) for line, cells in rows
    )


def _tab_separated(
    path: Path, columns: Sequence[str] | None, *, by_name: bool
) -> Iterator[tuple[int, tuple[str, ...]]]:
    width: int | None = None
    positions: list[int] | None = None
    for line, text in lines(path):
        if not text.strip():
            yield line, ("",)
            continue
        cells = [cell.strip() for cell in text.split("\t")]
        if columns is not None and positions is None:
            try:
                positions = [cells.index(name) for name in named(columns)(path, cells)]
            except InputError as error:
                raise InputError(
                    f"{error}; columns are named in the first line of a .tsv"
                ) from error
            width = len(cells)
            continue
        if width is None and len(cells) > 1 and {c.lower().strip('"') for c in cells} <= HEADER:
            choose = f"choose columns by name (`--columns {','.join(cells[:2])}`) or "
            raise InputError(
                f"{place(path, line)}: {quoted(text)} is a header, which would be read as a "
                f"record; {choose if by_name else ''}remove it"
            )
        width = width or len(cells)
        if len(cells) != width:
            raise InputError(
                f"{place(path, line)}: {len(cells)} tab-separated fields where the lines before "
                f"have {width}; give every line the same fields"
            )
        if positions is None and len(cells) > len(PAIR):
            raise InputError(
                f"{place(path, line)}: {len(cells)} tab-separated fields; a record is text, "
                "anchor<TAB>positive or anchor<TAB>positive<TAB>hard negative"
                f"{' (with a header line, choose its columns by name)' if by_name else ''}"
            )
        yield line, tuple(cells if positions is None else (cells[p] for p in positions))


def usual_columns(path: Path, header: Sequence[str], *, by_name: bool = True) -> Sequence[str]:
    """Choose the columns of a table if the user named none; ``by_name`` is that of ``read``.

    Raises:
        InputError: the table has none of the usual columns.
    """
    if {"anchor", "positive"} <= set(header):
        return named(PAIR if "negative" in header else PAIR[:2])(path, header)
    for name in TEXT:
        if name in header:
            return named((name,))(path, header)
    if len(header) == 1 and not any(separator in header[0] for separator in ";\t"):
        return header
    one = len(header) == 1  # a line of a table with another separator
    separated = ", or separate the columns by commas" if one else ""
    choose = "rename its columns (anchor and positive, for pairs)"
    if by_name:
        choose = f"choose by name (`--columns {','.join(header[:2]) or 'NAME'}`)"
    raise InputError(
        f"{place(path)}: no column 'text', 'sentence' or 'anchor' with 'positive'; found "
        f"{quoted(', '.join(map(repr, header)), 200)[1:-1] or 'none'}; "
        f"{choose}{separated}"
    )


def _format(path: Path) -> str:
    """Return the suffix of ``path`` that decides how to read it, without ``.gz``."""
    if is_hub_name(path):
        return _HUB
    suffix = plain_suffix(path)
    if suffix not in SUFFIXES and path.suffix != ".arrow":
        raise InputError(
            f"{place(path)}: unknown kind of file {suffix!r}{nearest(suffix, SUFFIXES)}; "
            f"known are {', '.join(SUFFIXES)}, and each of them with .gz"
        )
    return suffix


def corpus_files(paths: Sequence[Path | str]) -> list[Path]:
    """Return the files that ``paths`` name; for a folder its readable files, sorted.

    For a saved dataset these are its tables. Other folders are searched to any depth, following
    symbolic links, each folder once. Hidden files, files of other kinds and empty files in a folder
    are ignored.

    Raises:
        InputError: a named file that does not exist or is of unknown kind, or a folder without any
            readable file.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if is_hub_name(path):
            files.append(path)
        elif is_folder(path):
            files += shards(path) if is_saved(path) else _folder_files(path)
        else:
            check_file(path)
            _format(path)
            files.append(path)
    return files


def other_splits(paths: Sequence[Path | str]) -> list[Path]:
    """Return the files that are read of folders although a name calls them a test or a dev part.

    None are where no other name says that its file is to train on.
    """
    found: list[Path] = []
    for folder in map(Path, paths):
        if not is_hub_name(folder) and is_folder(folder) and not is_saved(folder):
            splits = {path: named_split(path, folder) for path in _folder_files(folder)}
            if TRAIN in splits.values():
                found += [path for path, split in splits.items() if split not in (None, TRAIN)]
    return found


def _folder_files(folder: Path) -> list[Path]:
    visited: set[tuple[int, int]] = set()
    files: list[Path] = []
    for root, folders, names in os.walk(folder, followlinks=True, onerror=_unreadable):
        status = Path(root).stat()
        if (status.st_dev, status.st_ino) in visited:  # a loop of symbolic links
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(root, name) for name in names if not name.startswith(".")):
            # a broken link is kept: reading it raises an error that names it
            if plain_suffix(path) in SUFFIXES and not (path.exists() and not _size(path)):
                files.append(path)
    if not files:
        raise InputError(
            f"{place(folder)}: no file with text in this folder; known kinds are "
            f"{', '.join(SUFFIXES)}, and each of them with .gz"
        )
    return sorted(_to_train_on(files, folder), key=lambda path: path.parts)


def _to_train_on(files: Sequence[Path], folder: Path) -> list[Path]:
    """Leave out the other splits of a dataset in parquet files, named as on the hub."""
    tables = {path for path in files if path.name.lower().endswith((".parquet", ".parquet.gz"))}
    splits = {path: named_split(path, folder) for path in tables}
    if TRAIN not in splits.values():
        return list(files)
    return [path for path in files if splits.get(path) in (None, TRAIN)]


def _unreadable(error: OSError) -> None:
    raise InputError(f"{place(Path(error.filename))}: cannot be read ({error.strerror})") from error


def _size(path: Path) -> int:
    """Return the size in bytes; 1 for a pipe or device, so that it does not count as empty."""
    return path.stat().st_size if path.is_file() else 1
