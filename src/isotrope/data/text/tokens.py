"""The token store: the token ids of a corpus, without duplicates, in memory-mapped files.

A store is a folder:

- ``tokens.bin``: token ids of all texts, one text after the other (uint16 or uint32);
- ``offsets.bin``: int64; the token ids of text t are ``tokens[offsets[t]:offsets[t + 1]]``;
- ``groups.bin``: uint64, a hash of each text. Near-identical texts have the same hash;
- ``rows.bin``: int64, one row for each training record: the number of the anchor's text, the number
  of the positive's text (in pairs), the number of the first hard negative's text and the count of
  hard negatives (if any), the bits of the scores (if any), a hash of the group (if any);
- ``holdout.jsonl``: a list for each held-out record: the texts, then the scores;
- ``answers.json``: known answers (of an FAQ, at most 1,000), each with a hash of its group, or 0;
- ``holdout-groups.bin``: int64, a hash of the group of each held-out record, if there are groups;
- ``manifest.json``: a description of the store and a hash of each file, written last.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isotrope.core.documents import check_file, read_json
from isotrope.core.errors import InputError, place
from isotrope.core.files import file_digest
from isotrope.core.run_folder import MANIFEST
from isotrope.data.text.repeats import hash64, joined_unless_large, near_identical

Indices = NDArray[np.integer[Any]]

CHUNK = 1 << 16
"""Number of records that are read from a file of a store at once."""
FORMAT = 3
WIDTHS = {1: 1, 2: 2, 3: 4}
"""Columns of rows.bin on texts, by the columns of the store."""
_FIRST_NEGATIVE, _NEGATIVES = 2, 3  # columns of rows.bin
_MOST_LINKED = 5_000_000  # with more pairs, no links through pairs of other batches are found


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
        partly_read: Whether ``understood`` names columns, rows or files that were not read.
        scored: Number of scores stored for each record.
        together: Whether pairs that share a text were held out together.
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
    partly_read: bool = False
    together: bool = False


class TokenStore:
    """A token store on disk, from :func:`isotrope.data.text.store_writer.build`.

    The files are memory-mapped.

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
        self._text_marks = _mapped(folder / "groups.bin", "uint64", (report.texts,))
        ends = [WIDTHS[report.columns], WIDTHS[report.columns] + report.scored]
        rows = _mapped(folder / "rows.bin", "int64", (report.kept, ends[1] + report.grouped))
        self._numbers, self._scores, self._groups = np.split(rows, ends, axis=1)
        self.held_out_groups = (
            _mapped(folder / "holdout-groups.bin", "int64", (report.held_out,))
            if report.grouped and report.held_out
            else None
        )

    @classmethod
    def open(cls, folder: Path, *, verify: bool = False) -> "TokenStore":
        """Open a store. If ``verify`` is True, compare every file with the hash in the manifest."""
        folder = Path(folder)
        try:
            manifest = read_json(folder / MANIFEST)
            if manifest["format"] != FORMAT:
                raise ValueError(f"format {manifest['format']}, needed {FORMAT}")
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

    def text_marks(self, indices: Indices, column: int) -> NDArray[np.uint64]:
        """Return a hash of each text of a column. Near-identical texts have the same hash."""
        return np.asarray(self._text_marks[self._texts_of(indices, column)])

    def owners(self, indices: Indices) -> NDArray[np.int64]:
        """Return, for each hard negative in column 2, the position of its record in ``indices``."""
        return np.repeat(np.arange(len(indices)), self._numbers[indices, _NEGATIVES])

    def _texts_of(self, indices: Indices, column: int) -> NDArray[np.int64]:
        """Return the numbers of the texts of a column."""
        if column < _FIRST_NEGATIVE:
            return np.asarray(self._numbers[indices, column])
        first, count = self._numbers[indices, _FIRST_NEGATIVE], self._numbers[indices, _NEGATIVES]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return np.asarray(np.repeat(first, count) + within)

    def group_marks(self, indices: Indices) -> list[NDArray[np.uint64]]:
        """Return a list with one array, a hash of each record's group; [] if there is no group."""
        return [self._groups[indices, 0].view(np.uint64)] if self.report.grouped else []

    def link_marks(self, indices: Indices) -> list[NDArray[np.uint64]]:
        """Return a list with one array, an id of each pair; [] without pairs, or above 5 million.

        Training does not push pairs with equal ids apart (:func:`joined_unless_large`).
        """
        return [] if self._links is None else [self._links[indices]]

    @cached_property
    def _links(self) -> NDArray[np.uint64] | None:
        if self.report.views != "pairs" or len(self) > _MOST_LINKED:
            return None
        return joined_unless_large(self._text_marks[self._numbers[:, :2]])

    def scores(self, indices: Indices) -> NDArray[np.float64]:
        """Return the k scores of each of n records, n x k."""
        return np.asarray(self._scores[indices].view(np.float64))

    @property
    def one_group(self) -> bool:
        """Whether all records are in one group, so that no record has a negative."""
        return self.report.grouped and bool((self._groups == self._groups[0]).all())

    def held_out(self) -> Iterator[tuple[Any, ...]]:
        """Yield a tuple for each held-out record: the texts without prompts, then the scores."""
        with (self.folder / "holdout.jsonl").open(encoding="utf-8") as handle:
            for line in handle:
                yield tuple(json.loads(line))

    def answers(self) -> dict[str, int]:
        """Return the content of ``answers.json``: a dict from answers to hashes of their groups."""
        path = self.folder / "answers.json"
        return json.loads(path.read_bytes()) if path.is_file() else {}

    def trained_on(self, records: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
        """Return, for each record, whether a near-identical text of its first two is here."""
        marks = [[hash64(near_identical(text)) for text in record[:2]] for record in records]
        asked = np.array(marks, np.uint64).reshape(len(records), len(marks[0]) if marks else 1)
        met = np.zeros(asked.shape, dtype=bool)
        for start in range(0, len(self), CHUNK):
            part = np.arange(start, min(start + CHUNK, len(self)))
            for column in range(self.columns):
                met |= np.isin(asked, self.text_marks(part, column))
        return np.asarray(met.any(axis=1))


def _mapped(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    expected = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if path.stat().st_size != expected:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, not {expected}")
    # a plain array, because slicing a memmap object takes ten times as long
    return np.memmap(path, dtype=dtype, mode="r", shape=shape).view(np.ndarray)
