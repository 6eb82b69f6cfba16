"""Recognises near-identical texts by keys and hashes, and joins records that share a text."""

import hashlib
import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# punctuation counts only before a digit, "=" or ">" (1.5, -5, 12:30, !=, ->), and a hyphen after a
# letter (GPT-4) never counts
_PUNCTUATION = re.compile(r"[.,:!-](?![\d=>])|(?<=[^\W\d_])-(?=\d)")
_BOLD = re.compile(r"(?<![\w(*])\*\*(?=\w)([^*\n]*[^\s*])\*\*(?![\w*])")
_THOUSANDS = re.compile(r"(?<![\w.,(\[{])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")  # not range(1,100)
_SAME = str.maketrans("\u2044\u2010\u2012\u2013\u2014\u2212", "/-----")  # slash, dashes


def _tells_apart(character: str) -> bool:
    """Return whether a character tells two texts apart; :data:`_PUNCTUATION` removes more."""
    return character in "#%&*/@\\.,:!-" or (
        unicodedata.category(character)[0] in "LNMS" and character != "`"
    )


_ASCII_DROPPED = bytes(c for c in range(128) if not _tells_apart(chr(c)))


def near_identical(text: str) -> bytes:
    """Return a key of the text; two texts with the same key are near-identical.

    The key has the letters, digits and combining marks (vowels and tones of many scripts) of the
    text, NFKC-normalised and case-folded. It also has signs that matter in code, mathematics and
    prices: symbols, ``#%&*/@`` and backslashes, and ``.,:!-`` before a digit, ``=`` or ``>``, but
    not the commas of 1,000,000 and the asterisks around **bold** words. If a text has none of these
    characters, the key is the text.

    >>> near_identical("Don't panic!") == near_identical("DON'T  PANIC")
    True
    """
    if "**" in text:
        text = _BOLD.sub(r"\1", text)
    if "," in text:
        text = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)
    if text.isascii():
        key = _PUNCTUATION.sub("", text.lower()).encode().translate(None, _ASCII_DROPPED)
    else:
        folded = unicodedata.normalize("NFKC", text).casefold().translate(_SAME)
        key = "".join(filter(_tells_apart, _PUNCTUATION.sub("", folded))).encode()
    return key or text.encode()


def letters(text: str) -> bytes:
    """Return the letters, digits and marks of :func:`near_identical`, or the key if it has none."""
    key = near_identical(text)
    kept = (c for c in key.decode() if unicodedata.category(c)[0] in "LNM")
    return "".join(kept).encode() or key


def hash64(content: bytes, key: bytes = b"") -> int:
    """Return the 64-bit BLAKE2b hash of ``content``; ``key`` has at most 64 bytes."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, key=key).digest(), "little")


def record_mark(texts: Sequence[str]) -> int:
    """Return a hash of a record's texts; training drops a record whose hash an earlier one has."""
    return hash64("\0".join(texts).encode())


def group_mark(group: str, anchor: str) -> int:
    """Return a hash of the group; for an empty group, of the anchor's key."""
    return hash64(group.encode(), b"group") if group else hash64(near_identical(anchor))


def joined_groups(marks: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return an id for each row, int64 (n). Connected rows have the same id.

    Two rows are connected if they share a hash, directly or through other rows. The shared hash may
    be in different columns: the anchor of one record may be the positive of another record.

    Args:
        marks: Hashes, n x k.
    """
    names, nodes = np.unique(marks, return_inverse=True)
    nodes = nodes.reshape(marks.shape)
    joined: NDArray[np.int64] = names[groups_of(nodes, len(names))[nodes[:, 0]]].view(np.int64)
    return joined


def joined_unless_large(marks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return an id for each pair of hashes, uint64 (n). Training does not push equal ids apart.

    Pairs that share a text, directly or through other pairs, have the same id. If these are more
    than a twentieth of all pairs, few negatives would be left, so each has the hash of its anchor.
    """
    joined = joined_groups(marks).view(np.uint64)
    _, place, sizes = np.unique(joined, return_inverse=True, return_counts=True)
    return np.where(sizes[place] > max(2, len(marks) // 20), marks[:, 0], joined)


def groups_of(links: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return for each of ``count`` numbers the lowest number of its group, int64 (count).

    The numbers in a row of ``links`` are in one group.

    >>> groups_of(np.array([[0, 3], [3, 4]]), 6)
    array([0, 1, 2, 0, 0, 5])
    """
    group = np.arange(count)
    while True:
        # a group is renamed as a whole, so that a long chain takes few rounds
        lower, names = group.copy(), group[links]
        np.minimum.at(lower, names, names.min(axis=1, keepdims=True))
        lower = lower[lower]
        if (lower == group).all():
            return group
        group = lower
