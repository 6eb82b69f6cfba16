"""Forms the positive of a record and splits the records into training and held-out records.

The positive is the text itself (dropout), the next text (adjacent), or the second text (pairs).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError, place
from isotrope.data.schemas import Record
from isotrope.data.text.repeats import hash64, joined_groups, near_identical

Views = Literal["dropout", "adjacent", "pairs"]
ViewsName = Literal["auto", "dropout", "adjacent", "pairs"]

ONE_GROUP = (
    "leave `--groups` out, or name a column that has several values: all {:,} records are in one "
    "group, so no record has a negative"
)


class Formed(NamedTuple):
    """A training record or held-out record.

    Attributes:
        texts: Anchor, then positive and hard negatives if there are any.
        held: Whether the record is held out.
        continues: Whether the anchor is also the positive of the previous training record.
        group: Group of the record; empty if it has none.
        scores: Scores of the record; empty without scores.
    """

    texts: tuple[str, ...]
    held: bool
    continues: bool = False
    group: str = ""
    scores: tuple[float, ...] = ()


def resolve(views: ViewsName, first: Record) -> Views:
    """Return what ``views`` means for the first record; raise an error if it does not fit."""
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


def held_out_together(
    records: Iterable[Record], holdout: float, seed: int
) -> NDArray[np.bool_] | None:
    """Return whether to hold out each pair, so that training uses no text of a held-out pair.

    Pairs that share a text, directly or through other pairs, are held out or trained on together. A
    set of linked pairs is trained on if it is larger than a tenth of the number to hold out.

    In three cases, the result is None, and a hash of the anchor decides for each record alone:

    - A positive has at least three pairs on average. Such positives are probably the answers that a
      search will find, so questions are held out and all answers are trained on.
    - The sets to hold out have less than a quarter of the pairs that ``holdout`` asks for. Or they
      have fewer than 40 pairs although ``holdout`` asks for 40 or more.
    - Records have groups or only one text.
    """
    chosen = _chosen(holdout, seed)
    marks: list[list[int]] = []
    alone: list[bool] = []
    for record in records:
        if record.group or len(record.texts) == 1:
            return None
        marks.append([hash64(near_identical(text)) for text in record.texts[:2]])
        alone.append(chosen(record.texts[0]))
    if not marks:
        return None
    pairs = np.array(marks, np.uint64)
    if len(np.unique(pairs, axis=0)) >= QUESTIONS * len(np.unique(pairs[:, 1])):
        return None
    linked = joined_groups(pairs)
    _, first, group, size = np.unique(
        linked, return_index=True, return_inverse=True, return_counts=True
    )
    held = np.array(alone)[first] & (size <= max(1, holdout * len(marks) / _LARGEST))
    together = np.asarray(held[group], bool)
    wanted = holdout * len(marks)
    fewest = FEWEST if wanted >= FEWEST else wanted / 4
    return together if together.sum() >= max(fewest, wanted / 4) else None


def _chosen(holdout: float, seed: int) -> Callable[[str], bool]:
    """Return a function of an anchor; it is True if a record with that anchor is held out."""
    if not holdout:
        return lambda anchor: False
    threshold, key = holdout * 2.0**64, str(seed).encode()
    return lambda anchor: hash64(near_identical(anchor), key) < threshold


@dataclass
class Former:
    """Forms the views of records and holds out a share of the records.

    A hash of the seed and of the letters and digits of the anchor decides whether a record is held
    out. The choice does not depend on the order of records. Near-identical anchors have one hash.

    Attributes:
        views: ``dropout``, ``adjacent`` or ``pairs``.
        holdout: Share of the records that is never trained on.
        seed: Seed of the choice of these records.
        held: Result of :func:`held_out_together`, or None to let the hash decide.
        neighbours: Number of adjacent pairs that were skipped so far. They share a text with a
            held-out pair, or may do so, because reading began within their document.
    """

    views: Views
    holdout: float
    seed: int
    held: NDArray[np.bool_] | None = None
    neighbours: int = 0

    def form(self, records: Iterable[Record]) -> Iterator[Formed]:
        """Yield the views of each record in order, and whether it is held out."""
        chosen = _chosen(self.holdout, self.seed)
        if self.views == "adjacent":
            yield from self._adjacent(records, chosen)
            return
        for number, record in enumerate(records):
            held = chosen(record.texts[0]) if self.held is None else bool(self.held[number])
            yield Formed(record.texts, held, group=record.group, scores=record.scores)

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
                    "`--groups` out: adjacent views join records, which may differ in their groups"
                )
            text = record.texts[0]
            text_chosen, text_held, text_trained = chosen(text), False, False
            if before is None:  # a buffer may begin within a document, after a held-out text
                text_held = self.holdout > 0 and not record.opens
            if before is not None and not record.opens:
                if before_chosen:
                    text_held = True
                    yield Formed((before, text), held=True)
                elif before_held or text_chosen:
                    self.neighbours += 1
                else:
                    text_trained = True
                    yield Formed((before, text), held=False, continues=before_trained)
            before = text
            before_chosen, before_held, before_trained = text_chosen, text_held, text_trained
