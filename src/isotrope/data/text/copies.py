"""Counts near-copies: texts that share at least four fifths of their different words.

Words have no digits: ``Version 1 of the manual`` and ``Version 2 of the manual`` are near-copies.
In scripts without spaces, such as Chinese and Thai, each two neighbouring characters are a word.
Texts of fewer than four different words have no near-copies, because they are alike by chance.
"""

import functools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, compress

import numpy as np
from numpy.typing import NDArray

_FEWEST = 4  # different words
_MOST = 1 << 25  # limit of time and memory: 100,000 texts of 200 different words, for example
_UNSPACED = (  # Thai, Lao, Burmese, Khmer, Japanese, Chinese
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)


@dataclass(frozen=True)
class NearCopies:
    """The number of texts that have a near-copy.

    Attributes:
        texts: Number of texts that were examined.
        copies: Number of these texts that have a near-copy.
        compared: Number of texts in which near-copies were searched.
        left_out: Number of texts that were not compared, to limit memory and time.
    """

    texts: int
    copies: int
    compared: int
    left_out: int

    @property
    def share(self) -> float:
        """Share of the examined texts that have a near-copy."""
        return self.copies / max(1, self.texts)

    @property
    def limit(self) -> str:
        """Words on the texts that were not compared; empty if all were."""
        return f" (the last {self.left_out:,} were not compared)" if self.left_out else ""


def near_copies(
    texts: Sequence[str],
    *,
    groups: NDArray[np.int64] | None = None,
    examined: NDArray[np.bool_] | None = None,
) -> NearCopies:
    """Count the texts that have a near-copy among the first few hundred thousand texts.

    The count is exact. Only texts that share two of their rarest words are compared.

    Args:
        texts: The n texts to compare.
        groups: Group of each text, int64 (n). Texts of one group are no near-copies of each other.
            None if each text is a group of its own.
        examined: Whether to count a text, bool (n). None to count all texts.

    Example:
        >>> near_copies(["One and the same text, no 1", "one and the same text, no 2", "Another"])
        NearCopies(texts=3, copies=2, compared=3, left_out=0)
    """
    rows, row_of = _rows(texts)
    groups_of: list[set[int]] = [set() for _ in rows]
    for i, group in zip(row_of, np.arange(len(texts)) if groups is None else groups, strict=False):
        groups_of[i].add(int(group))
    has_copy = {i for i, own in enumerate(groups_of) if len(own) > 1 and len(rows[i]) >= _FEWEST}
    # Two near-copies share two of the s // 5 + 2 rarest words of each, where s is the number of its
    # words: the prefix filter of Bayardo et al. (2007), with two words in place of one.
    prefixes = [row[: len(row) // 5 + 2] if len(row) >= _FEWEST else () for row in rows]
    with_word: dict[int, list[int]] = defaultdict(list)
    for i, prefix in enumerate(prefixes):
        for word in prefix:
            with_word[word].append(i)
    counted = Counter(row_of if examined is None else compress(row_of, examined))
    for i in counted:
        if i in has_copy:
            continue
        words = set(rows[i])
        shared = Counter(chain.from_iterable(with_word[word] for word in prefixes[i]))
        for j in [j for j, count in shared.items() if count > 1 and j != i]:
            both = len(words.intersection(rows[j]))
            if 9 * both >= 4 * (len(words) + len(rows[j])) and len(groups_of[i] | groups_of[j]) > 1:
                has_copy |= {i, j}
    copies = sum(count for i, count in counted.items() if i in has_copy)
    return NearCopies(counted.total(), copies, len(row_of), len(texts) - len(row_of))


def _rows(texts: Sequence[str]) -> tuple[list[tuple[int, ...]], list[int]]:
    """Return the different sets of words, the rarest words first, and the set of each text."""
    number_of: dict[str, int] = {}
    places: dict[tuple[int, ...], int] = {}
    row_of, size = list[int](), 0
    for text in texts:
        own = {number_of.setdefault(word, len(number_of)) for word in _words(text)}
        row_of.append(places.setdefault(tuple(sorted(own)), len(places)))
        size += 128 + len(own)
        if size + 8 * len(number_of) > _MOST:  # a new word needs more memory than a known one
            break
    count = Counter(chain.from_iterable(places))
    return [tuple(sorted(row, key=count.__getitem__)) for row in places], row_of


def _words(text: str) -> list[str]:
    """Return the words of a text without digits; vowel signs, as in Hindi, belong to words."""
    text = unicodedata.normalize("NFKC", text).casefold()
    if text.isascii():
        return re.findall("[a-z]+", text)
    spaced, unspaced = _patterns()
    return [*spaced.findall(text), *unspaced.findall(text)]


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the pattern of a word, and that of two neighbouring characters without spaces."""
    letter = rf"[^\W\d_{_UNSPACED}]"
    marks = "".join(c for c in map(chr, range(0x20000)) if unicodedata.category(c)[0] == "M")
    word = f"{letter}+(?:[{marks}]{letter}*)*"
    return re.compile(word), re.compile(f"(?=([{_UNSPACED}]{{2}}))")
