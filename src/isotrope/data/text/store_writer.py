"""Writes token stores (:mod:`isotrope.data.text.tokens`) from the records of a corpus.

A first pass over the records writes their tokens, and working files with an entry for each record.
A second pass, over the working files, writes the rows of the store without repeated records.

The memory needed to build a store does not grow with the corpus, except for hashes of pairs, which
hold out or link pairs that share a text.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace, file_digest
from isotrope.core.run_folder import MANIFEST
from isotrope.data.records import Record
from isotrope.data.schemas import EMPTY, Reading
from isotrope.data.text.repeats import group_mark, hash64, near_identical, record_mark
from isotrope.data.text.tokens import CHUNK, FORMAT, WIDTHS, StoreReport, TokenStore
from isotrope.data.text.views import ALONE, Formed, Former, HeldOut, Views, ViewsName, resolve

Tokenize = Callable[[list[str], int], tuple[list[list[int]], int]]

# working files, which are removed when the store is complete
_ROWS = "rows.all"  # a row for each record (_RowLayout); -1 for texts that are held out
_HASHES = "hashes.all"  # a hash of the texts of each record
_GROUPED = "grouped.all"  # a hash of texts and group; 0 if held out, or without a group
_HELD = "held.all"  # a line for each held-out record
_REPEATED = "repeated.all"  # one byte for each record: 1 if an earlier record has the same hash
_TYPES = {"groups.bin": np.uint64, _ROWS: np.int64, _HASHES: np.uint64, _GROUPED: np.uint64}

_MOST_ANSWERS = 1_000
_TOO_FEW = "give more text: training needs at least 2 different records; found"
_BATCH_RECORDS, _BATCH_CHARACTERS = 1_000, 1_000_000  # approximate limits of a tokenizer's call
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
        records: Records from :func:`isotrope.data.sources.read`.
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
        raise InputError(f"{_TOO_FEW} 0")
    views = resolve(settings.views, first)
    former = Former(views, settings.holdout, settings.seed, held.texts, settings.scored)
    with atomic_replace(folder) as temporary:
        temporary.mkdir()
        with _Writer(temporary, tokenize, settings, views, first) as writer:
            for formed in former.form(chain([first], stream)):
                writer.add(formed)
        report = _write_rows(temporary, writer.layout, _first_report(former, writer, records))
        _check_enough(report)
        for working in (_ROWS, _HASHES, _GROUPED, _HELD, _REPEATED):
            (temporary / working).unlink()
        if held.known and 0 < len(writer.answers) <= _MOST_ANSWERS:
            (temporary / "answers.json").write_text(json.dumps(writer.answers), encoding="utf-8")
        digests = {path.name: file_digest(path) for path in sorted(temporary.iterdir())}
        manifest = {"format": FORMAT, "dtype": writer.dtype, "report": asdict(report)}
        text = json.dumps(manifest | {"digests": digests}, indent=2)
        (temporary / MANIFEST).write_text(text, encoding="utf-8")
    return TokenStore.open(folder)


def _watched(records: Iterable[Record], progress: Callable[[int], object]) -> Iterator[Record]:
    read = 0
    for read, record in enumerate(records, 1):
        if read % _BATCH_RECORDS == 0:
            progress(_BATCH_RECORDS)
        yield record
    progress(read % _BATCH_RECORDS)


@dataclass(frozen=True)
class _RowLayout:
    """The columns of a row of ``rows.all``: numbers of texts, then scores, then the group."""

    numbers: int  # 1 with views dropout, 2 with adjacent, 4 with pairs (as with hard negatives)
    scores: int
    grouped: bool


class _Writer:
    """Writes the texts and the working files: the first pass. It counts what it has written.

    Attributes:
        dtype: Type of the token ids.
        answers: Dict from the different positives, not all above 1,000, to a hash of the group.
    """

    def __init__(
        self, folder: Path, tokenize: Tokenize, settings: StoreSettings, views: Views, first: Record
    ) -> None:
        self.settings, self._tokenize, self._first = settings, tokenize, first
        self.layout = _RowLayout(
            numbers={"dropout": 1, "adjacent": 2, "pairs": 4}[views],
            scores=len(first.scores) if settings.scored else 0,
            grouped=settings.grouped or bool(first.group),
        )
        self.dtype = "uint16" if settings.vocabulary <= 1 << 16 else "uint32"
        self.records = self.texts = self.tokens = self.truncated = self.negatives = 0
        self.answers: dict[str, int] = {}
        self._open = ExitStack()
        self._files: dict[str, BinaryIO] = {
            name: self._open.enter_context((folder / name).open("wb"))
            for name in ("tokens.bin", "offsets.bin", _HELD, *_TYPES)
        }
        # _flush() writes these texts and values
        self._texts: list[str] = []
        self._characters = 0
        self._values: dict[str, list[Any]] = {name: [] for name in _TYPES}
        self._append("offsets.bin", np.zeros(1, np.int64))

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._open:
            if kind is None:
                self._flush()

    def add(self, record: Formed) -> None:
        """Append a record. The texts of a held-out record are not tokenised."""
        self.records += 1
        layout, texts, scores = self.layout, len(record.texts), len(record.scores)
        if layout.scores and (texts, scores) != (len(self._first.texts), layout.scores):
            raise InputError(
                f"give each record {len(self._first.texts)} texts and {layout.scores} scores, like "
                f"the first; record {self.records} has {texts} texts and {scores} scores"
            )
        mark = group_mark(record.group, record.texts[0]) >> 1 if layout.grouped else 0  # an int64
        if record.held:
            row: tuple[int, ...] = (-1,) * layout.numbers
            self._files[_HELD].write(json.dumps(record.texts + record.scores).encode() + b"\n")
        else:
            row = self._add_texts(record, mark)
        if layout.scores:
            row += tuple(np.array(record.scores).view(np.int64).tolist())
        if layout.grouped:
            row += (mark,)
            grouped = "\0".join((*record.texts, record.group)).encode()
            has_group = record.group and not record.held
            self._values[_GROUPED].append(hash64(grouped) if has_group else 0)
        self._values[_ROWS].append(row)
        self._values[_HASHES].append(record_mark(record.texts))
        too_many = len(self._values[_ROWS]) >= _BATCH_RECORDS
        if too_many or self._characters >= _BATCH_CHARACTERS:
            self._flush()

    def _add_texts(self, record: Formed, mark: int) -> tuple[int, ...]:
        """Append the texts of a record with a hash of its group; return the numbers in its row."""
        layout, (query, passage) = self.layout, self.settings.prompts
        anchor, *others = record.texts
        if record.continues and query == passage:  # the anchor is the last text that was added
            return self.texts - 1, self._add_text(passage, others[0])
        own = (self._add_text(query, anchor), *(self._add_text(passage, text) for text in others))
        if layout.numbers < 4:
            return own
        if len(self.answers) <= _MOST_ANSWERS and not layout.scores:
            known = self.answers.get(others[0], mark)
            self.answers[others[0]] = mark if record.group else known
        negatives = len(own) - 2
        self.negatives += negatives
        return own[0], own[1], own[1] + 1, negatives

    def _add_text(self, prompt: str, text: str) -> int:
        """Append a text and return its number."""
        self._texts.append(prompt + text)
        self._characters += len(text)
        self._values["groups.bin"].append(hash64(near_identical(text)))
        self.texts += 1
        return self.texts - 1

    def _flush(self) -> None:
        """Tokenise and write the collected records."""
        if self._texts:
            ids, truncated = self._tokenize(self._texts, self.settings.max_length)
            self._append("tokens.bin", np.fromiter(chain.from_iterable(ids), self.dtype))
            ends = self.tokens + np.cumsum([len(row) for row in ids], dtype=np.int64)
            self._append("offsets.bin", ends)
            self.truncated += truncated
            self.tokens = int(ends[-1])
        for name, values in self._values.items():
            self._append(name, np.array(values, _TYPES[name]))
            values.clear()
        self._texts, self._characters = [], 0

    def _append(self, name: str, array: NDArray[Any]) -> None:
        # array.tofile would not say in its error that the disk is full
        self._files[name].write(array.tobytes())


def _first_report(former: Former, writer: _Writer, records: Iterable[Record]) -> StoreReport:
    """Return the counts of the first pass; those that :func:`_write_rows` counts are 0."""
    reading = records if isinstance(records, Reading) else None
    return StoreReport(
        views=former.views,
        columns=3 if writer.negatives else min(writer.layout.numbers, 2),
        kept=0,
        records=writer.records,
        duplicates_dropped=0,
        empty_skipped=0 if reading is None else reading.left[EMPTY],
        held_out=0,
        texts=writer.texts,
        tokens=writer.tokens,
        truncated_share=writer.truncated / max(writer.texts, 1),
        max_length=writer.settings.max_length,
        fingerprint="",
        grouped=writer.layout.grouped,
        understood="" if reading is None else str(reading),
        scored=writer.layout.scores,
        negatives_dropped=former.negatives,
        partly_read=reading is not None and bool(reading.not_read),
        together=former.held is not None,
    )


def _write_rows(folder: Path, layout: _RowLayout, report: StoreReport) -> StoreReport:
    """Write rows.bin and the held-out records: the second pass. Repeated records are left out.

    In rows.bin, records in which a text has no token are left out as well.
    """
    mark_repeated(folder / _HASHES, folder / _REPEATED, report.records)
    width = layout.numbers + layout.scores + layout.grouped
    fingerprint = hashlib.blake2b(digest_size=8)
    kept = held_out = duplicates = without_tokens = 0
    with (
        (folder / "rows.bin").open("wb") as kept_rows,
        (folder / _HELD).open("rb") as held_lines,
        (folder / "holdout.jsonl").open("wb") as held_file,
        (folder / "holdout-groups.bin").open("wb") as held_groups,
    ):
        for start in range(0, report.records, CHUNK):
            fingerprint.update(read_part(folder / _HASHES, np.uint64, start, CHUNK).tobytes())
            repeated = read_part(folder / _REPEATED, np.uint8, start, CHUNK) == 1
            rows = read_part(folder / _ROWS, np.int64, start * width, CHUNK * width)
            numbers, others = np.split(rows.reshape(-1, width), [layout.numbers], axis=1)
            fingerprint.update(others.tobytes())
            held = numbers[:, 0] < 0
            # repeated comes first: zip must not read a line that belongs to the next chunk
            for again, line in zip(repeated[held], held_lines, strict=False):
                held_file.write(b"" if again else line)
            groups = others[:, layout.scores :]  # no column if there are no groups
            held_groups.write(groups[held & ~repeated].tobytes())
            empty = ~repeated & ~_have_tokens(folder / "offsets.bin", numbers, held)
            keep = ~repeated & ~held & ~empty
            stored = np.hstack([numbers[:, : WIDTHS[report.columns]], others])
            kept_rows.write(stored[keep].tobytes())
            kept += int(keep.sum())
            held_out += int((held & ~repeated).sum())
            duplicates += int(repeated.sum())
            without_tokens += int(empty.sum())
    if not layout.grouped:
        (folder / "holdout-groups.bin").unlink()
    return replace(
        report,
        kept=kept,
        held_out=held_out,
        duplicates_dropped=duplicates,
        empty_skipped=report.empty_skipped + without_tokens,
        groups_dropped=_new_groups(folder) if layout.grouped else 0,
        fingerprint=fingerprint.hexdigest(),
    )


def _check_enough(report: StoreReport) -> None:
    if report.kept < 2:
        left = f"{report.duplicates_dropped} repeated, {report.held_out} held out"
        found = f"{report.kept} (of {report.records}: {left}, {report.empty_skipped} empty)"
        raise TooFewRecords(f"{_TOO_FEW} {found}", report)


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


def _new_groups(folder: Path) -> int:
    """Count the records that repeat the texts of earlier records, but with a new group."""
    again, count, new = folder / "again.all", (folder / _REPEATED).stat().st_size, 0
    mark_repeated(folder / _GROUPED, again, count)
    for start in range(0, count, CHUNK):
        same_texts = read_part(folder / _REPEATED, np.uint8, start, CHUNK) == 1
        same_texts_and_group = read_part(again, np.uint8, start, CHUNK) == 1
        has_group = read_part(folder / _GROUPED, np.uint64, start, CHUNK) != 0
        new += int((same_texts & ~same_texts_and_group & has_group).sum())
    again.unlink()
    return new


def _have_tokens(
    offsets: Path, numbers: NDArray[np.int64], held: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return True for each record that is held out, or whose texts all have tokens."""
    if held.all():
        return held
    # texts are stored in the order of the records, so the texts of these records are contiguous
    first, last = numbers[:, 0], numbers[:, -1]
    if numbers.shape[1] == 4:  # number of the first hard negative, and count of them
        last = numbers[:, 2] + numbers[:, 3] - 1
    start, end = int(first[~held].min()), int(last[~held].max())
    lacking = np.diff(read_part(offsets, np.int64, start, end - start + 2)) == 0
    before = np.concatenate([[0], np.cumsum(lacking)])
    texts = np.where(held[:, None], start, np.stack([first, last], axis=1)) - start
    complete: NDArray[np.bool_] = before[texts[:, 1] + 1] == before[texts[:, 0]]
    return held | complete
