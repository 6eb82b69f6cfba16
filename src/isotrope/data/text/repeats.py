"""Decides which texts count as the same: hashes of exact and of near-identical texts."""

import hashlib
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 16
"""Number of records read at a time from an array file."""

_BUCKET = 1 << 20  # different hashes held at a time while looking for repetitions
_ASCII_DROPPED = bytes(c for c in range(128) if not chr(c).isalnum())


def near_identical(text: str) -> bytes:
    """Return the key that two near-identical texts share.

    The key has the letters, their marks (vowels and tones of many scripts) and the digits of the
    text after NFKC normalisation and case folding. A text without any of these (emoji, punctuation)
    is its own key.

    >>> near_identical("Don't panic!") == near_identical("DON'T  PANIC")
    True
    """
    if text.isascii():
        letters = text.lower().encode().translate(None, _ASCII_DROPPED)
    else:
        folded = unicodedata.normalize("NFKC", text).casefold()
        letters = "".join(c for c in folded if unicodedata.category(c)[0] in "LNM").encode()
    return letters or text.encode()


def hash64(content: bytes, key: bytes = b"") -> int:
    """Return the 64-bit BLAKE2b hash of ``content``, keyed if a key of up to 64 bytes is given."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, key=key).digest(), "little")


def group_mark(group: str, anchor: str) -> int:
    """Return the hash of a record's group, or of its anchor (the same for near-identical ones)."""
    return hash64(group.encode(), b"group") if group else hash64(near_identical(anchor))


def read_part(path: Path, dtype: type[Any], start: int, count: int) -> NDArray[Any]:
    """Return ``count`` items (fewer at the end) of an array file, from item ``start`` on."""
    return np.fromfile(path, dtype, count, offset=start * np.dtype(dtype).itemsize)


def mark_repeated(hashes: Path, repeated: Path, count: int) -> None:
    """Write one byte for each record: 1 if an earlier record has the same hash.

    Each pass over the hashes handles one bucket of values, so that about ``_BUCKET`` different ones
    are in memory.
    """
    with repeated.open("wb") as handle:
        for start in range(0, count, CHUNK):  # no hole: a full disk must show here, not below
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


def joined_groups(marks: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return one id per row, equal for rows that shared marks connect.

    Two rows are connected if any mark of one equals any mark of the other (in whatever column:
    the anchor of one record may be the positive of another), directly or through other rows.

    Args:
        marks: Hashes, n x k.

    Returns:
        int64 (n): the smallest mark of each connected set, its bits read as a signed number.
    """
    names, nodes = np.unique(marks, return_inverse=True)
    nodes = nodes.reshape(marks.shape)
    label = np.arange(len(names))
    while True:
        rows = label[nodes].min(axis=1)
        lower = label.copy()
        np.minimum.at(lower, nodes, rows[:, None])
        if (lower == label).all():
            joined: NDArray[np.int64] = names[rows].view(np.int64)
            return joined
        label = lower


def new_groups(grouped: Path, repeated: Path) -> int:
    """Return the number of repeated records whose group occurs for the first time.

    Args:
        grouped: File that holds, for each record, a hash of the record and its group, or 0 if the
            record has no group.
        repeated: File that holds marks of the records without their groups.
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
    """Return whether every text of each record has tokens; held-out records count as having."""
    if held.all():
        return held
    # records are in the order of their texts, so those of a chunk lie side by side
    first = rows[:, 0]
    last = first + rows[:, 3] + 1 if rows.shape[1] == 4 else rows[:, -1]
    start, end = int(first[~held].min()), int(last[~held].max())
    lacking = np.diff(read_part(offsets, np.int64, start, end - start + 2)) == 0
    before = np.concatenate([[0], np.cumsum(lacking)])
    texts = np.where(held[:, None], start, np.stack([first, last], axis=1)) - start
    complete: NDArray[np.bool_] = before[texts[:, 1] + 1] == before[texts[:, 0]]
    return held | complete
