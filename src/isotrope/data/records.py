"""The records of a corpus, and the pairs that labelled texts form."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class Record(NamedTuple):
    """A record of a corpus, with its file and line.

    Attributes:
        texts: Texts of the record: (text,), or (anchor, positive, negatives ...). White space at
            the ends is removed.
        path: File of the record.
        line: Number of the line in the file, from 1, or a :class:`RowNumber`.
        opens: Whether a document begins here: at the start of a file, or after a blank line.
        group: Group or label of the record as text; empty if the record has neither.
        scores: Scores of the texts after the anchor; empty if the table has no scores.
        id: Cell of the column ``_id`` or ``id``; empty without this column, or if ids are not read.
    """

    texts: tuple[str, ...]
    path: Path
    line: int
    opens: bool
    group: str = ""
    scores: tuple[float, ...] = ()
    id: str = ""


def pairs_by_label(
    records: Iterable[Record],
    holds_out: Callable[[str], bool],
    leave: Callable[[str, Path, int], object],
) -> Iterator[Record]:
    """Pair each text with the previous text of its label, and the first text with the last.

    No text is in a pair with a held-out anchor and in one with another anchor. The only held-out
    text of a label becomes a positive of the others, unless it has other labels, too.
    ``leave`` gets the reason, the file and the line of each text that is left out.
    """
    import numpy as np  # help is printed without loading it

    from isotrope.data.text.repeats import hash64, near_identical

    first: dict[tuple[str, bool], Record] = {}
    before: dict[tuple[str, bool], Record] = {}
    hashes = array("Q")  # 8 bytes for each text
    for record in records:
        side = record.group, holds_out(record.texts[0])
        hashes.append(hash64(near_identical(record.texts[0])))
        if side in before:
            yield _paired(record, before[side])
        first.setdefault(side, record)
        before[side] = record
    values, counts = np.unique(np.frombuffer(hashes, np.uint64), return_counts=True)
    repeated = frozenset(values[counts > 1].tolist())
    for (label, held), record in first.items():
        others = label, not held
        if before[label, held] is not record:
            yield _paired(record, before[label, held])
        elif others not in first:
            leave("a label that no other row has", record.path, record.line)
        elif (several := before[others] is not first[others]) or held:
            # a single text becomes only a positive
            anchor, positive = (first[others], record) if several else (record, first[others])
            if hash64(near_identical(positive.texts[0])) in repeated:
                leave("a text that has several labels", record.path, record.line)
            else:
                yield _paired(anchor, positive)


def _paired(anchor: Record, positive: Record) -> Record:
    return anchor._replace(texts=(anchor.texts[0], positive.texts[0]))
