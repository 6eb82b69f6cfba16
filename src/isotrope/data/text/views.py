"""Forms the positive of each record, and splits the records into training and held-out records.

The positive is the text itself (``dropout``), the next text in the document (``adjacent``), or the
second text of the record (``pairs``).
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Literal, NamedTuple

import numpy as np

from isotrope.core.errors import InputError, place
from isotrope.data.records import Record
from isotrope.data.text.repeats import hash64, joined_groups, letters, near_identical

Views = Literal["dropout", "adjacent", "pairs"]
ViewsName = Literal["auto", "dropout", "adjacent", "pairs"]

ONE_GROUP = (
    "give several labels and texts, or name a column with several values in `--groups`: all {:,} "
    "records are in one group, as they share their label, their value of `--groups` or a text, so "
    "none has a negative. To train on single texts, choose one column with `--columns`"
)


class Formed(NamedTuple):
    """A training record or held-out record.

    Attributes:
        texts: (anchor,) with views ``dropout``, else (anchor, positive, negatives ...).
        held: Whether the record is held out.
        continues: Whether the anchor is also the positive of the previous training record.
        group: Group of the record; an empty text if there is none.
        scores: Scores of the record; an empty tuple if there are none.
        line: Line of the record; of the second text if two adjacent texts are joined.
    """

    texts: tuple[str, ...]
    held: bool
    continues: bool = False
    group: str = ""
    scores: tuple[float, ...] = ()
    line: int = 0


def resolve(views: ViewsName, first: Record) -> Views:
    """Return ``views``, which must fit the first record; ``"auto"`` becomes the kind that fits."""
    single = len(first.texts) == 1
    if views == "auto":
        return "dropout" if single else "pairs"
    if single and views == "pairs":
        raise InputError(
            f"{place(first.path, first.line)}: use `--views dropout` or `--views adjacent`; with "
            "`--views pairs`, a record needs two or more texts, but this record has one"
        )
    if not single and views != "pairs":
        raise InputError(
            f"{place(first.path, first.line)}: use `--views pairs`, or choose one column; with "
            f"`--views {views}`, a record needs one text, but this record has {len(first.texts)}"
        )
    return views


FEWEST = 40  # held-out records that suffice to compare two models
QUESTIONS = 3  # pairs for each different positive from which the positives are known answers
_LARGEST = 10  # a held-out set of linked pairs is at most a tenth of all held-out pairs
_SLACK = 10  # pairs that may always be held out beyond twice the number asked for


class HeldOut(NamedTuple):
    """The result of :func:`held_out_together`.

    Attributes:
        texts: Hashes of all texts of held-out pairs. If None, a hash of each anchor decides.
        known: Whether the positives are known answers, as in an FAQ.
    """

    texts: frozenset[int] | None = None
    known: bool = False


ALONE = HeldOut()


def held_out_together(records: Iterable[Record], holdout: float, seed: int) -> HeldOut:
    """Choose the pairs to hold out so that no training pair has a text of a held-out pair.

    Pairs that share a text, directly or through other pairs, form a set, which is held out or
    trained on as a whole. If a set exceeds a tenth of all pairs to hold out, it is trained on.

    ``texts`` is None in three cases, in which a hash of the anchor decides for each record alone:

    - There are at least three times as many pairs as different positives. Such positives are
      probably the answers that a search should find (``known``), so all of them are trained on.
    - The sets to hold out have less than a quarter of the pairs that ``holdout`` asks for, or fewer
      than 40 pairs although ``holdout`` asks for at least 40, and the hash holds out more pairs,
      but not over twice as many as ``holdout`` asks for, as it does if there are few anchors.
    - A record has only one text.
    """
    chosen = held_out_alone(holdout, seed)
    marks, alone = array("Q"), bytearray()  # 17 bytes for each pair
    for record in records:
        if len(record.texts) == 1:
            return ALONE
        marks.extend(hash64(near_identical(text)) for text in record.texts[:2])
        alone.append(chosen(record.texts[0]))
    if not marks:
        return ALONE
    pairs = np.array(marks, np.uint64).reshape(-1, 2)
    if len(np.unique(pairs, axis=0)) >= QUESTIONS * len(np.unique(pairs[:, 1])):
        return HeldOut(known=True)
    linked = joined_groups(pairs)
    _, first, group, size = np.unique(
        linked, return_index=True, return_inverse=True, return_counts=True
    )
    wanted = holdout * len(pairs)
    by_hash = np.frombuffer(alone, bool)
    together = (by_hash[first] & (size <= max(1, wanted / _LARGEST)))[group]
    fewest = max(FEWEST if wanted >= FEWEST else 0, wanted / 4)
    enough = together.sum() >= min(fewest, by_hash.sum())
    too_many_alone = by_hash.sum() > 2 * wanted + _SLACK
    texts = frozenset(pairs[together].ravel().tolist())
    return HeldOut(texts) if enough or too_many_alone else ALONE


def held_out_alone(holdout: float, seed: int) -> Callable[[str], bool]:
    """Return a function of an anchor; it is True if a record with that anchor is held out."""
    if not holdout:
        return lambda anchor: False
    threshold, key = holdout * 2.0**64, str(seed).encode()
    return lambda anchor: hash64(letters(anchor), key) < threshold


@dataclass
class Former:
    """Forms the views of records, and holds out a share of the records.

    A hash of the seed and of the anchor's letters and digits decides which records are held out.
    The order of the records does not matter.

    Attributes:
        views: Source of the positives: ``dropout``, ``adjacent`` or ``pairs``.
        holdout: Share of the records that is never trained on.
        seed: Seed of the choice of held-out records.
        held: ``HeldOut.texts``. If None, the hash of each anchor decides.
        scored: Whether negatives that are held out stay, because each record needs a score for as
            many negatives as the first. If False, these negatives are skipped.
        negatives: Number of negatives skipped so far, because held-out pairs have their texts.
    """

    views: Views
    holdout: float
    seed: int
    held: frozenset[int] | None = None
    scored: bool = False
    negatives: int = 0

    def form(self, records: Iterable[Record]) -> Iterator[Formed]:
        """Yield the training records and the held-out records, in the order of ``records``."""
        chosen = held_out_alone(self.holdout, self.seed)
        if self.views == "adjacent":
            yield from self._adjacent(records, chosen)
            return
        for record in records:
            texts, scores = record.texts, record.scores
            held = chosen(texts[0]) if self.held is None else self._has(texts[0])
            if not (held or self.scored):
                wanted = [not self._has(text) for text in texts]
                self.negatives += wanted.count(False)
                texts, scores = tuple(compress(texts, wanted)), tuple(compress(scores, wanted[1:]))
            yield Formed(texts, held, False, record.group, scores, record.line)

    def _has(self, text: str) -> bool:
        """Return whether a held-out pair has a text, up to case and most punctuation."""
        return self.held is not None and hash64(near_identical(text)) in self.held

    def _adjacent(
        self, records: Iterable[Record], chosen: Callable[[str], bool]
    ) -> Iterator[Formed]:
        """Pair each text with the next one of its document."""
        before: str | None = None
        before_chosen = before_held = before_trained = False
        for record in records:
            if record.group:
                raise InputError(
                    f"{place(record.path, record.line)}: use `--views dropout`, or leave "
                    "`--groups` out: an adjacent pair joins two records, whose groups may differ"
                )
            text = record.texts[0]
            text_chosen, text_held, text_trained = chosen(text), False, False
            if before is None:  # a buffer may begin within a document, after a held-out text
                text_held = self.holdout > 0 and not record.opens
            if before is not None and not record.opens:
                if before_chosen:
                    text_held = True
                    yield Formed((before, text), held=True, line=record.line)
                elif not (before_held or text_chosen):  # no text is shared with a held-out pair
                    text_trained = True
                    yield Formed((before, text), False, before_trained, line=record.line)
            before = text
            before_chosen, before_held, before_trained = text_chosen, text_held, text_trained
