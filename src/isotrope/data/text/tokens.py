"""The token store: the token ids of a corpus, without duplicates, in memory-mapped files.

The memory needed to build a store does not grow with the corpus, except for hashes of pairs, which
hold out or link pairs that share a text. A store is a folder:

- ``tokens.bin``: token ids of all texts, one text after the other (uint16 or uint32);
- ``offsets.bin``: int64; the token ids of text t are ``tokens[offsets[t]:offsets[t + 1]]``;
- ``groups.bin``: uint64, a hash of each text. Near-identical texts have the same hash;
- ``rows.bin``: int64, one row for each training record: the number of the anchor's text, the number
  of the positive's text (in pairs), the number of the first hard negative's text and the count of
  hard negatives (if any), the bits of the scores (if any), a hash of the group (if any);
- ``holdout.jsonl``: a list for each held-out record: the texts, then the scores;
- ``answers.json``: the different positives, if they are known answers (an FAQ), at most 1,000;
- ``holdout-groups.bin``: int64, a hash of the group of each held-out record, if there are groups;
- ``manifest.json``: a description of the store and a hash of each file, written last.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from isotrope.core.documents import check_file, read_json
from isotrope.core.errors import InputError, place
from isotrope.core.files import atomic_replace, file_digest
from isotrope.core.run_folder import MANIFEST
from isotrope.data.schemas import EMPTY, Reading, Record
from isotrope.data.text.repeats import (
    CHUNK,
    group_mark,
    hash64,
    have_tokens,
    linked,
    mark_repeated,
    near_identical,
    new_groups,
    read_part,
)
from isotrope.data.text.views import ALONE, Formed, Former, HeldOut, ViewsName, resolve

Tokenize = Callable[[list[str], int], tuple[list[list[int]], int]]
Indices = NDArray[np.integer[Any]]

_FORMAT = 3
_WIDTHS = {1: 1, 2: 2, 3: 4}  # columns of rows.bin, by the columns of a record
# working files, which are removed when the store is complete
_ROWS, _HASHES, _GROUPED, _HELD = "rows.all", "hashes.all", "grouped.all", "held.all"
# files that only some stores have
_HELD_GROUPS, _ANSWERS = "holdout-groups.bin", "answers.json"
_MOST_ANSWERS = 1_000
_MOST_LINKED = 5_000_000  # with more pairs, no links through pairs of other batches are found
_TOO_FEW, _MORE = "training needs at least 2 different records", "give more text"
_BATCH_TEXTS, _BATCH_CHARACTERS = 1_000, 1_000_000  # approximate limits of a call of the tokenizer


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


@dataclass(frozen=True)
class StoreReport:
    """Counts of the records and texts from which a token store was built.

    Attributes:
        views: Source of the positives: ``"dropout"``, ``"adjacent"`` or ``"pairs"``.
        columns: 1 for single texts (dropout), 2 for pairs, 3 for pairs with hard negatives.
        kept: Number of training records.
        records: Number of records, including duplicates and held-out records.
        duplicates_dropped: Number of dropped records that are equal to an earlier record.
        empty_skipped: Number of records skipped because a text is empty or has no token.
        held_out: Number of held-out records.
        negatives_dropped: Number of hard negatives skipped because a held-out pair has the text.
        texts: Number of tokenised texts.
        tokens: Number of tokens of these texts, including special tokens.
        truncated_share: Share of the texts that were cut to ``max_length`` tokens.
        max_length: Largest number of tokens in a text; longer texts are cut.
        fingerprint: 16 hexadecimal digits that depend on all records and their order.
        grouped: Whether the records have groups.
        groups_dropped: Number of dropped duplicates that repeat earlier texts with a new group.
        understood: One line on the kind, number and columns of the records that were read.
        scored: Number of scores stored for each record.
    """

    views: str
    columns: int
    kept: int
    records: int
    duplicates_dropped: int
    empty_skipped: int
    held_out: int
    texts: int
    tokens: int
    truncated_share: float
    max_length: int
    fingerprint: str
    grouped: bool = False
    groups_dropped: int = 0
    understood: str = ""
    scored: int = 0
    negatives_dropped: int = 0


class TooFewRecords(InputError):
    """Fewer than two different records are left for training. ``report`` has the counts."""

    def __init__(self, message: str, report: StoreReport) -> None:
        super().__init__(message)
        self.report = report


class TokenStore:
    """A token store on disk, which :func:`build` writes. The files are memory-mapped.

    Attributes:
        folder: Folder of the store.
        columns: 1 for single texts, 2 for pairs, 3 for pairs with hard negatives.
        report: Counts of the records and texts.
        held_out_groups: Hash of the group of each held-out record, or of the anchor if the record
            has no group. None if the records have no groups, or if no record is held out.
    """

    def __init__(self, folder: Path, report: StoreReport, dtype: str) -> None:
        self.folder, self.report, self.columns = folder, report, report.columns
        self._tokens = _mapped(folder / "tokens.bin", dtype, (report.tokens,))
        self._offsets = _mapped(folder / "offsets.bin", "int64", (report.texts + 1,))
        self._groups = _mapped(folder / "groups.bin", "uint64", (report.texts,))
        width = _WIDTHS[report.columns] + report.scored + report.grouped
        self._rows = _mapped(folder / "rows.bin", "int64", (report.kept, width))
        self.held_out_groups = (
            _mapped(folder / _HELD_GROUPS, "int64", (report.held_out,))
            if report.grouped and report.held_out
            else None
        )

    @classmethod
    def open(cls, folder: Path, *, verify: bool = False) -> "TokenStore":
        """Open a store. If ``verify`` is True, compare every file with the hash in the manifest."""
        folder = Path(folder)
        try:
            manifest = read_json(folder / MANIFEST)
            if manifest["format"] != _FORMAT:
                raise ValueError(f"format {manifest['format']}, needed {_FORMAT}")
            # stores of older versions have no digests
            for name, digest in manifest.get("digests", {}).items() if verify else ():
                check_file(folder / name, folder)
                if file_digest(folder / name) != digest:
                    raise ValueError(f"{name} does not match its digest")
            return cls(folder, StoreReport(**manifest["report"]), manifest["dtype"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"delete the folder {place(folder)}: the tokens in it cannot be used ({error})"
            ) from error

    def __len__(self) -> int:
        return self.report.kept

    def rows(self, indices: Indices, column: int) -> list[NDArray[Any]]:
        """Return a list with an array of token ids for each text in one column of the records.

        Column 0 has anchors, column 1 positives, and column 2 all hard negatives of all records.
        """
        texts = self._texts_of(indices, column)
        starts, ends = self._offsets[texts].tolist(), self._offsets[texts + 1].tolist()
        return [self._tokens[start:end] for start, end in zip(starts, ends, strict=True)]

    def groups(self, indices: Indices, column: int) -> NDArray[np.uint64]:
        """Return a hash of each text of a column. Near-identical texts have the same hash."""
        return np.asarray(self._groups[self._texts_of(indices, column)])

    def owners(self, indices: Indices) -> NDArray[np.int64]:
        """Return, for each hard negative in column 2, the position of its record in ``indices``."""
        return np.repeat(np.arange(len(indices)), self._rows[indices, 3])

    def _texts_of(self, indices: Indices, column: int) -> NDArray[np.int64]:
        if column < 2:
            return np.asarray(self._rows[indices, column])
        first, count = self._rows[indices, 2], self._rows[indices, 3]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return np.asarray(np.repeat(first, count) + within)

    def labels(self, indices: Indices) -> list[NDArray[np.uint64]]:
        """Return a list with one array, a hash of each record's group; [] if there is no group."""
        return [self._rows[indices, -1].view(np.uint64)] if self.report.grouped else []

    def scores(self, indices: Indices) -> NDArray[np.float64]:
        """Return the k scores of each of n records, n x k."""
        bits = self._rows[indices][:, _WIDTHS[self.columns] :][:, : self.report.scored]
        return np.asarray(np.ascontiguousarray(bits).view(np.float64))

    def linked(self, indices: Indices) -> list[NDArray[np.uint64]]:
        """Return a list with one array, an id of each pair; [] without pairs, or above 5 million.

        Training does not push pairs with equal ids apart (see the function ``linked``).
        """
        return [] if self._links is None else [self._links[indices]]

    @cached_property
    def _links(self) -> NDArray[np.uint64] | None:
        if self.report.views != "pairs" or len(self) > _MOST_LINKED:
            return None
        return linked(self._groups[self._rows[:, :2]])

    @property
    def one_group(self) -> bool:
        """Whether all records are in one group, so that no record has a negative."""
        return self.report.grouped and bool((self._rows[:, -1] == self._rows[0, -1]).all())

    def held_out(self) -> Iterator[tuple[Any, ...]]:
        """Yield a tuple for each held-out record: the texts without prompts, then the scores."""
        with (self.folder / "holdout.jsonl").open(encoding="utf-8") as handle:
            for line in handle:
                yield tuple(json.loads(line))

    def answers(self) -> list[str]:
        """Return a list of the different positives; [] if the store has no ``answers.json``."""
        path = self.folder / _ANSWERS
        return json.loads(path.read_bytes()) if path.is_file() else []

    def trained_on(self, records: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
        """Return, for each record, whether a near-identical text of its first two is here."""
        marks = [[hash64(near_identical(text)) for text in record[:2]] for record in records]
        asked = np.array(marks, np.uint64).reshape(len(records), len(marks[0]) if marks else 1)
        met = np.zeros(asked.shape, dtype=bool)
        for start in range(0, len(self), CHUNK):
            part = np.arange(start, min(start + CHUNK, len(self)))
            for column in range(self.columns):
                met |= np.isin(asked, self.groups(part, column))
        return np.asarray(met.any(axis=1))


def _mapped(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    expected = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if path.stat().st_size != expected:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, not {expected}")
    # a plain array, because slicing a memmap object takes ten times as long
    return np.memmap(path, dtype=dtype, mode="r", shape=shape).view(np.ndarray)


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
            (temporary / _ANSWERS).write_text(json.dumps([*writer.answers]), encoding="utf-8")
        digests = {path.name: file_digest(path) for path in sorted(temporary.iterdir())}
        manifest = {"format": _FORMAT, "dtype": dtype, "report": report, "digests": digests}
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
    chosen = [*range(_WIDTHS[columns]), *range(written, width)]
    reading = records if isinstance(records, Reading) else None
    empty_rows = 0 if reading is None else reading.left[EMPTY]
    mark_repeated(hashes, repeated_file, writer.records)
    fingerprint = hashlib.blake2b(digest_size=8)
    kept = held_out = duplicates = 0
    with (
        (folder / "rows.bin").open("wb") as kept_rows,
        held_all.open("rb") as held_lines,
        (folder / "holdout.jsonl").open("wb") as held_file,
        (folder / _HELD_GROUPS).open("wb") as held_groups,
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
    unused = [] if writer.grouped else [folder / _HELD_GROUPS]
    for path in (hashes, rows, folder / _GROUPED, held_all, repeated_file, *unused):
        path.unlink()
    return report


def _check_enough(report: StoreReport) -> None:
    if report.kept < 2:
        left = f"{report.duplicates_dropped} repeated, {report.held_out} held out"
        found = f"{report.kept} (of {report.records}: {left}, {report.empty_skipped} empty)"
        raise TooFewRecords(f"{_MORE}: {_TOO_FEW}; found {found}", report)
