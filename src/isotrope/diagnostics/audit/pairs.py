"""Finds rows from which training will not learn as intended; needs no labels.

There are six kinds of such rows. For each kind, the result is an array of row numbers, counted
from 0. The rows of *apart* are sorted from worst to best, all other rows by their numbers.

- *apart*: the anchor is nearer to the positives of most other rows than to its own positive. Many
  rows are *apart* if a column of the file is shifted by some lines.
- *solved*: the gradient dissipation GD is below 0.01, so the row has nothing left to learn.
- *cut*: a text is too long, so training cuts off its last tokens.
- *repeated*: an earlier row has exactly the same texts, so training drops the row.
- *lengths*: a text is far longer or shorter than the middle half of the texts in its column.
- *scripts*: a text is in a script that is rare in its column, for example Cyrillic.
"""

import functools
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from isotrope.core.views import unit
from isotrope.data.order import Order
from isotrope.data.text.repeats import record_mark
from isotrope.diagnostics.audit.rows import Embedded, EmbeddedTexts, PairedRows
from isotrope.paradigm.anatomy import DEAD
from isotrope.paradigm.objective import Objective

_COMPARED = 1024  # other rows' positives that are compared with an anchor's own
_PIECE = 1024  # anchors at a time
_MOST = 0.5  # share of other positives that may be nearer to an anchor than its own
_FAR = 3  # a length this many interquartile ranges outside the middle half is unusual
_LEAST_SPREAD = 0.2  # smallest range to use, of log lengths: texts of one length have none
_FEW = 0.1  # a script is rare below this share of the texts of a column
_ONE_SCRIPT = dict.fromkeys(("HIRAGANA", "KATAKANA", "BOPOMOFO"), "CJK")  # mixed in one text


def find_pairs(
    embedded: Embedded, objective: Objective, *, batch_size: int, seed: int = 0
) -> dict[str, NDArray[np.int64]]:
    """Return a dict from the kinds ``apart`` and ``solved`` (see the module) to row numbers."""
    nearer = _nearer(embedded, seed)
    apart = np.flatnonzero(nearer > _MOST)
    return {
        "apart": apart[np.argsort(-nearer[apart], kind="stable")],
        "solved": np.flatnonzero(_done(embedded, objective, batch_size, seed)),
    }


def find_texts(rows: PairedRows, embedded: EmbeddedTexts) -> dict[str, NDArray[np.int64]]:
    """Return a dict from ``cut``, ``repeated``, ``lengths`` and ``scripts`` to row numbers."""
    return {
        "cut": np.flatnonzero(embedded.cut),
        "repeated": repeated(np.array([record_mark(texts) for texts in rows.texts], np.uint64)),
        "lengths": np.flatnonzero(_outlying(embedded.lengths)),
        "scripts": np.flatnonzero(_other_scripts(rows.texts)),
    }


def repeated(marks: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the numbers of the rows whose hash in ``marks`` (n) equals that of an earlier row."""
    return np.setdiff1d(np.arange(len(marks)), np.unique(marks, return_index=True)[1])


@torch.no_grad()
def _nearer(embedded: Embedded, seed: int) -> NDArray[np.float64]:
    """Return for each anchor the share of other positives that are nearer than its positive."""
    n = len(embedded)
    drawn = torch.from_numpy(Order(n, seed, 1)[np.arange(min(n, _COMPARED))])
    compared = unit(embedded.positives[drawn])
    shares = []
    for piece in torch.arange(n).split(_PIECE):
        others = ~embedded.same(piece, drawn)
        anchors, positives = unit(embedded.anchors[piece]), unit(embedded.positives[piece])
        own = (anchors * positives).sum(dim=1, keepdim=True)
        nearer = (anchors @ compared.T > own) & others
        shares.append(nearer.sum(dim=1) / others.sum(dim=1).clamp_min(1))
    return torch.cat(shares).double().numpy()


@torch.no_grad()
def _done(
    embedded: Embedded, objective: Objective, batch_size: int, seed: int
) -> NDArray[np.bool_]:
    """Return which anchors have GD < 0.01 and at least one negative in their batch."""
    n, done = len(embedded), torch.zeros(len(embedded), dtype=torch.bool)
    order, size = torch.from_numpy(Order(n, seed, 0)[np.arange(n)]), min(batch_size, n)
    # rows of the first batch, which is measured last, fill up the last batch
    for start in reversed(range(0, n, size)):
        rows = order[torch.arange(start, start + size) % n]
        pairs = objective.compare(embedded.batch(rows))
        terms = objective.components(pairs)
        opposed = pairs.negative(terms.against).any(dim=1)
        done[rows] = opposed & (terms.dissipation < DEAD)
    return np.asarray(done)


def _outlying(lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows have a text much longer or shorter than the middle half of its column."""
    logarithms = np.log(np.maximum(lengths, 1))
    low, high = np.quantile(logarithms, [0.25, 0.75], axis=0)
    reach = _FAR * np.maximum(high - low, _LEAST_SPREAD)
    beyond = (logarithms < low - reach) | (logarithms > high + reach)
    return np.asarray(beyond.any(axis=1))


def _other_scripts(texts: Sequence[tuple[str, ...]]) -> NDArray[np.bool_]:
    """Return which rows have a text in a script that few texts of its column have."""
    other = np.zeros(len(texts), dtype=bool)
    for column in zip(*(record[:2] for record in texts), strict=True):
        scripts = np.array([_script(text) for text in column])
        names, counts = np.unique(scripts[scripts != ""], return_counts=True)
        other |= np.isin(scripts, names[counts < _FEW * counts.sum()])
    return other


def _script(text: str) -> str:
    """Return the script of most letters of a text, as Unicode names it; empty without letters.

    >>> _script("a мир"), _script("日本語のテキスト"), _script("123")
    ('CYRILLIC', 'CJK', '')
    """
    if text.isascii():
        return "LATIN" if any(map(str.isalpha, text)) else ""
    scripts = Counter(_script_of(letter) for letter in text if letter.isalpha())
    return scripts.most_common(1)[0][0] if scripts else ""


@functools.lru_cache(maxsize=1 << 16)
def _script_of(letter: str) -> str:
    name = unicodedata.name(letter, "").partition(" ")[0]
    return _ONE_SCRIPT.get(name, name)
