"""Writes token stores (:mod:`isotrope.data.text.tokens`) from the records of a corpus.

The memory needed to build a store does not grow with the corpus, except for hashes of pairs, which
hold out or link pairs that share a text.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace, file_digest
from isotrope.core.run_folder import MANIFEST
from isotrope.data.schemas import EMPTY, Reading, Record
from isotrope.data.text.repeats import group_mark, hash64, near_identical
from isotrope.data.text.tokens import (
    ANSWERS,
    CHUNK,
    FORMAT,
    HELD_GROUPS,
    ROW_WIDTHS,
    StoreReport,
    TokenStore,
)
from isotrope.data.text.views import ALONE, Formed, Former, HeldOut, ViewsName, resolve

Tokenize = Callable[[list[str], int], tuple[list[list[int]], int]]

# working files, which are removed when the store is complete
_ROWS, _HASHES, _GROUPED, _HELD = "rows.all", "hashes.all", "grouped.all", "held.all"
_MOST_ANSWERS = 1_000
_TOO_FEW, _MORE = "training needs at least 2 different records", "give more text"
_BATCH_TEXTS, _BATCH_CHARACTERS = 1_000, 1_000_000  # approximate limits of a call of the tokenizer
_BUCKET = 1 << 20  # about how many different hashes are in memory while repetitions are found


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """The settings of a token store.

    Attributes:
        vocabulary: Number of token ids.
        max_length: Largest number of tokens in a text, including special tokens.
        prompts: Prompt before every anchor, and prompt before every positive and negative.
        holdout: Share of the records to hold out.
        seed: Seed of the choice of held-out records.
        views: Source of the positives: ``auto``, ``dropout``, ``adjacent`` or ``pairs``.
        grouped: Whether the records have groups.
        scored: Whether to store scores. If True, all records need the same number of texts, and the
            same number of scores.
    """

    vocabulary: int
    max_length: int
    prompts: tuple[str, str] = ("", "")
    holdout: float = 0.0
    seed: int = 0
    views: ViewsName = "auto"
    grouped: bool = False
    scored: bool = False


class TooFewRecords(InputError):
    """Fewer than two different records are left for training. ``report`` has the counts."""

    def __init__(self, message: str, report: StoreReport) -> None:
        super().__init__(message)
        self.report = report


def build(
    folder: Path,
    records: Iterable[Record],
    tokenize: Tokenize,
    settings: StoreSettings,
    *,
    held: HeldOut = ALONE,
    progress: Callable[[int], object] | None = None,
) -> TokenStore:
    """Tokenise a corpus, write the tokens to a token store, and open this store.

    Args:
        folder: Folder of the store. The folder appears when the store is complete.
        records: Records from :func:`isotrope.data.schemas.read`.
        tokenize: Function that takes a list of texts and ``max_length``. It returns a list of token
            ids for each text, and the number of texts that were cut.
        settings: Settings of the store.
        held: Pairs to hold out, from :func:`isotrope.data.text.views.held_out_together`.
        progress: Function that is called with the number of records read since the last call.
    """
    if not 0 <= settings.holdout < 1:
        raise InputError(f"set holdout to a share from 0 to less than 1; found {settings.holdout}")
    stream = iter(records) if progress is None else _watched(records, progress)
    first = next(stream, None)
    if first is None:
        raise InputError(f"{_MORE}: {_TOO_FEW}; found 0")
    views = resolve(settings.views, first)
    former = Former(views, settings.holdout, settings.seed, held.texts, settings.scored)
    grouped = settings.grouped or bool(first.group)
    dtype = "uint16" if settings.vocabulary <= 1 << 16 else "uint32"
    with atomic_replace(folder) as temporary:
        temporary.mkdir()
        with _Writer(temporary, tokenize, settings, dtype) as writer:
            writer.pairs, writer.grouped = former.views == "pairs", grouped
            writer.shape = (len(first.texts), len(first.scores)) if settings.scored else (0, 0)
            for formed in former.form(chain([first], stream)):
                writer.add(formed)
        report = asdict(_finish(temporary, former, writer, records))
        if held.known and 0 < len(writer.answers) <= _MOST_ANSWERS:
            (temporary / ANSWERS).write_text(json.dumps([*writer.answers]), encoding="utf-8")
        digests = {path.name: file_digest(path) for path in sorted(temporary.iterdir())}
        manifest = {"format": FORMAT, "dtype": dtype, "report": report, "digests": digests}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    return TokenStore.open(folder)


def _watched(records: Iterable[Record], progress: Callable[[int], object]) -> Iterator[Record]:
    read = 0
    for read, record in enumerate(records, 1):
        if read % _BATCH_TEXTS == 0:
            progress(_BATCH_TEXTS)
        yield record
    progress(read % _BATCH_TEXTS)


class _Writer:
    """Appends texts, records and hashes to the files of a store that is being built."""

    def __init__(
        self, folder: Path, tokenize: Tokenize, settings: StoreSettings, dtype: str
    ) -> None:
        self.tokenize, self.dtype = tokenize, dtype
        self.max_length, self.prompts = settings.max_length, settings.prompts
        self.records = self.texts = self.tokens = self.truncated = self.negatives = 0
        self.pairs, self.grouped, self.shape = False, False, (0, 0)
        self.answers: dict[str, None] = {}
        self._open = ExitStack()
        self._files: dict[str, BinaryIO] = {
            name: self._open.enter_context((folder / name).open("wb"))
            for name in ("tokens.bin", "offsets.bin", "groups.bin", _ROWS, _HASHES, _GROUPED, _HELD)
        }
        self._texts: list[str] = []  # flush() writes this list and the lists below
        self._characters = 0
        self._groups: list[int] = []
        self._rows: list[tuple[int, ...]] = []
        self._hashes: list[int] = []
        self._grouped: list[int] = []
        self._append("offsets.bin", np.zeros(1, np.int64))

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._open:
            if kind is None:
                self.flush()

    def add(self, record: Formed) -> None:
        """Append a record. A held-out record has a row of -1, because its texts are not stored."""
        self.records += 1
        self._hashes.append(hash64("\0".join(record.texts).encode()))
        if record.held:
            row: tuple[int, ...] = (-1,) * (4 if self.pairs else len(record.texts))
            self._files[_HELD].write(json.dumps(record.texts + record.scores).encode() + b"\n")
        elif record.continues and self.prompts[0] == self.prompts[1]:
            row = (self.texts - 1, self._add_text(record.texts[1], 1))
        else:
            row = tuple(self._add_text(t, c) for c, t in enumerate(record.texts))
            if self.pairs:
                if len(self.answers) <= _MOST_ANSWERS and not (self.grouped or self.shape[1]):
                    self.answers[record.texts[1]] = None
                row = (*row[:2], row[1] + 1, len(row) - 2)
                self.negatives += len(record.texts) - 2
        if self.shape[1]:
            if (shape := (len(record.texts), len(record.scores))) != self.shape:
                raise InputError(
                    f"give each record {self.shape[0]} texts and {self.shape[1]} scores, like the "
                    f"first; record {self.records} has {shape[0]} texts and {shape[1]} scores"
                )
            row += tuple(np.array(record.scores).view(np.int64).tolist())
        if self.grouped:
            row += (group_mark(record.group, record.texts[0]) >> 1,)  # fits into an int64
            grouped = "\0".join((*record.texts, record.group)).encode()
            self._grouped.append(hash64(grouped) if record.group and not record.held else 0)
        self._rows.append(row)
        if len(self._hashes) >= _BATCH_TEXTS or self._characters >= _BATCH_CHARACTERS:
            self.flush()

    def _add_text(self, text: str, column: int) -> int:
        """Append a text and return its number."""
        self._texts.append(self.prompts[min(column, 1)] + text)
        self._characters += len(text)
        self._groups.append(hash64(near_identical(text)))
        self.texts += 1
        return self.texts - 1

    def flush(self) -> None:
        """Tokenise and write the collected records."""
        if self._texts:
            ids, truncated = self.tokenize(self._texts, self.max_length)
            self._append("tokens.bin", np.fromiter(chain.from_iterable(ids), self.dtype))
            ends = self.tokens + np.cumsum([len(row) for row in ids], dtype=np.int64)
            self._append("offsets.bin", ends)
            self._append("groups.bin", np.array(self._groups, np.uint64))
            self.truncated += truncated
            self.tokens = int(ends[-1])
        self._append(_ROWS, np.array(self._rows, np.int64))
        self._append(_HASHES, np.array(self._hashes, np.uint64))
        self._append(_GROUPED, np.array(self._grouped, np.uint64))
        self._texts, self._groups, self._rows, self._hashes, self._grouped = [], [], [], [], []
        self._characters = 0

    def _append(self, name: str, array: NDArray[Any]) -> None:
        # array.tofile would not say in its error that the disk is full
        self._files[name].write(array.tobytes())


def _finish(
    folder: Path, former: Former, writer: _Writer, records: Iterable[Record]
) -> StoreReport:
    """Write rows.bin and holdout.jsonl without duplicates, and remove the working files."""
    hashes, rows, held_all = folder / _HASHES, folder / _ROWS, folder / _HELD
    columns = 1 if former.views == "dropout" else 3 if writer.negatives else 2
    written = 4 if writer.pairs else columns  # columns of rows.all before scores and group
    repeated_file, width = folder / "repeated.all", written + writer.shape[1] + writer.grouped
    chosen = [*range(ROW_WIDTHS[columns]), *range(written, width)]
    reading = records if isinstance(records, Reading) else None
    empty_rows = 0 if reading is None else reading.left[EMPTY]
    mark_repeated(hashes, repeated_file, writer.records)
    fingerprint = hashlib.blake2b(digest_size=8)
    kept = held_out = duplicates = 0
    with (
        (folder / "rows.bin").open("wb") as kept_rows,
        held_all.open("rb") as held_lines,
        (folder / "holdout.jsonl").open("wb") as held_file,
        (folder / HELD_GROUPS).open("wb") as held_groups,
    ):
        for start in range(0, writer.records, CHUNK):
            fingerprint.update(read_part(hashes, np.uint64, start, CHUNK).tobytes())
            repeated = read_part(repeated_file, np.uint8, start, CHUNK) == 1
            chunk = read_part(rows, np.int64, start * width, CHUNK * width).reshape(-1, width)
            fingerprint.update(chunk[:, written:].tobytes())
            held = chunk[:, 0] < 0
            # repeated comes first: zip must not read a line that belongs to the next chunk
            for again, line in zip(repeated[held], held_lines, strict=False):
                held_file.write(b"" if again else line)
            groups = chunk[held & ~repeated, width - writer.grouped :]  # empty without groups
            held_groups.write(groups.tobytes())
            empty = ~repeated & ~have_tokens(folder / "offsets.bin", chunk[:, :written], held)
            keep = ~repeated & ~held & ~empty
            kept_rows.write(chunk[keep][:, chosen].tobytes())
            kept += int(keep.sum())
            held_out += int((held & ~repeated).sum())
            duplicates += int(repeated.sum())
            empty_rows += int(empty.sum())
    report = StoreReport(
        views=former.views,
        columns=columns,
        kept=kept,
        records=writer.records,
        duplicates_dropped=duplicates,
        empty_skipped=empty_rows,
        held_out=held_out,
        texts=writer.texts,
        tokens=writer.tokens,
        truncated_share=writer.truncated / max(writer.texts, 1),
        max_length=writer.max_length,
        fingerprint=fingerprint.hexdigest(),
        grouped=writer.grouped,
        groups_dropped=new_groups(folder / _GROUPED, repeated_file) if writer.grouped else 0,
        understood="" if reading is None else str(reading),
        scored=writer.shape[1],
        negatives_dropped=former.negatives,
    )
    _check_enough(report)
    unused = [] if writer.grouped else [folder / HELD_GROUPS]
    for path in (hashes, rows, folder / _GROUPED, held_all, repeated_file, *unused):
        path.unlink()
    return report


def _check_enough(report: StoreReport) -> None:
    if report.kept < 2:
        left = f"{report.duplicates_dropped} repeated, {report.held_out} held out"
        found = f"{report.kept} (of {report.records}: {left}, {report.empty_skipped} empty)"
        raise TooFewRecords(f"{_MORE}: {_TOO_FEW}; found {found}", report)


def read_part(path: Path, dtype: type[Any], start: int, count: int) -> NDArray[Any]:
    """Return ``count`` items of a binary file, from item ``start``; fewer if the file ends."""
    return np.fromfile(path, dtype, count, offset=start * np.dtype(dtype).itemsize)


def mark_repeated(hashes: Path, repeated: Path, count: int) -> None:
    """Write one byte for each record to ``repeated``: 1 if an earlier record has the same hash."""
    # each pass over the file handles about _BUCKET different hashes, which fit into memory
    with repeated.open("wb") as handle:
        # a sparse file would hide here that the disk is full
        for start in range(0, count, CHUNK):
            handle.write(bytes(min(CHUNK, count - start)))
    if not count:
        return
    marks = np.memmap(repeated, np.uint8, "r+", shape=(count,))
    buckets = -(-count // _BUCKET)
    for bucket in range(buckets):
        values: list[NDArray[np.uint64]] = []
        places: list[NDArray[np.int64]] = []
        for start in range(0, count, CHUNK):
            chunk = read_part(hashes, np.uint64, start, CHUNK)
            inside = np.flatnonzero(chunk % np.uint64(buckets) == bucket)
            values.append(chunk[inside])
            places.append(inside + start)
            if sum(map(len, values)) > 2 * _BUCKET or start + CHUNK >= count:
                hashes_so_far, records = np.concatenate(values), np.concatenate(places)
                # np.unique returns first occurrences, and places ascend
                first = np.sort(np.unique(hashes_so_far, return_index=True)[1])
                marks[np.delete(records, first)] = 1
                values, places = [hashes_so_far[first]], [records[first]]
    marks.flush()


def new_groups(grouped: Path, repeated: Path) -> int:
    """Count the records that repeat the texts of earlier records, but with a new group.

    Args:
        grouped: File with one hash for each record, made from the texts and the group together. The
            hash is 0 if the record has no group.
        repeated: File that :func:`mark_repeated` wrote from hashes of only the texts.
    """
    again, count, new = grouped.with_name("again.all"), repeated.stat().st_size, 0
    mark_repeated(grouped, again, count)
    for start in range(0, count, CHUNK):
        twice, before = (read_part(p, np.uint8, start, CHUNK) == 1 for p in (repeated, again))
        has_group = read_part(grouped, np.uint64, start, CHUNK) != 0
        new += int((twice & ~before & has_group).sum())
    again.unlink()
    return new


def have_tokens(
    offsets: Path, rows: NDArray[np.int64], held: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return True for each record that is held out, or whose texts all have tokens."""
    if held.all():
        return held
    # texts are stored in the order of the records, so the texts of these records are contiguous
    first = rows[:, 0]
    last = first + rows[:, 3] + 1 if rows.shape[1] == 4 else rows[:, -1]
    start, end = int(first[~held].min()), int(last[~held].max())
    lacking = np.diff(read_part(offsets, np.int64, start, end - start + 2)) == 0
    before = np.concatenate([[0], np.cumsum(lacking)])
    texts = np.where(held[:, None], start, np.stack([first, last], axis=1)) - start
    complete: NDArray[np.bool_] = before[texts[:, 1] + 1] == before[texts[:, 0]]
    return held | complete
