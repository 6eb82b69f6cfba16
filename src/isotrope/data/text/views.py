"""Forms the positive of a record: the text itself (dropout), the next text, or its second field.

Here records also part into those trained on and those held out.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from isotrope.core.errors import InputError, place
from isotrope.data.schemas import Record
from isotrope.data.text.repeats import hash64, near_identical

Views = Literal["dropout", "adjacent", "pairs"]
ViewsName = Literal["auto", "dropout", "adjacent", "pairs"]


class Formed(NamedTuple):
    """A record as it is trained on or held out.

    Attributes:
        texts: anchor, then positive and hard negatives if it has them.
        held: whether it is never trained on.
        continues: whether its anchor is the positive of the training record before.
        group: of the record, empty if it has none.
    """

    texts: tuple[str, ...]
    held: bool
    continues: bool = False
    group: str = ""


def resolve(views: ViewsName, first: Record) -> Views:
    """Resolve ``"auto"``, or return ``views`` if they fit the first record."""
    single = len(first.texts) == 1
    if views == "auto":
        return "dropout" if single else "pairs"
    if single and views == "pairs":
        raise InputError(
            f"{place(first.path, first.line)}: views 'pairs' need two or more texts in a record, "
            "found one; use `--views dropout` or `--views adjacent`"
        )
    if not single and views != "pairs":
        raise InputError(
            f"{place(first.path, first.line)}: views {views!r} need records of one text, found "
            f"{len(first.texts)}; use `--views pairs`, or choose one column"
        )
    return views


@dataclass
class Former:
    """Forms records by their views and holds a share of them out.

    A record is held out by a hash of the seed and its anchor: the choice does not depend on the
    order, and near-identical anchors fall on one side.

    Attributes:
        views: see the module.
        holdout: share that is never trained on.
        seed: the seed of the choice.
        neighbours: adjacent pairs left out so far because they share a text with a held-out pair,
            or may: the text before the first is not known where that does not open a document.
    """

    views: Views
    holdout: float
    seed: int
    neighbours: int = 0

    def form(self, records: Iterable[Record]) -> Iterator[Formed]:
        """Yield the formed and the held-out records, in the order of ``records``."""
        chosen = self._chooser()
        if self.views == "adjacent":
            yield from self._adjacent(records, chosen)
        else:
            for record in records:
                yield Formed(record.texts, chosen(record.texts[0]), group=record.group)

    def _chooser(self) -> Callable[[str], bool]:
        """Return the test of whether a record with this anchor is held out."""
        if not self.holdout:
            return lambda anchor: False
        threshold, key = self.holdout * 2.0**64, str(self.seed).encode()
        return lambda anchor: hash64(near_identical(anchor), key) < threshold

    def _adjacent(
        self, records: Iterable[Record], chosen: Callable[[str], bool]
    ) -> Iterator[Formed]:
        """Pair each text with the next one of its document."""
        before: str | None = None
        before_chosen = before_held = before_trained = False
        for record in records:
            if record.group:
                raise InputError(
                    f"{place(record.path, record.line)}: a group is of one record, and adjacent "
                    "views are of two; use `--views dropout`, or leave `--groups` out"
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
