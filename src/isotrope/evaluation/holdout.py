"""The label-free dev score (``--dev auto``): held-out pairs as a small retrieval task.

The held-out records, which are never trained on, become a search task without labels. In a pair (or
two adjacent texts), the first text is the query and the second the target. A single text of at
least eight words is cut in the middle into query and target. The score is the MRR@10 of each
query's own target among all held-out targets.

The score shows whether embeddings keep enough of a text's subject to recognise its continuation
among a few hundred others, on the user's own kind of text. It falls when training destroys a model,
and stops rising when training stops helping. It does not measure graded similarity as people judge
it (it cannot distinguish a paraphrase from a contradiction on the same subject), nor other kinds of
text. Shared words make the task easy, so a high value does not prove understanding. Compare scores
only on the same records, with the same seed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError
from isotrope.data.text.retrieval_sets import RetrievalSet, from_pairs

_WORDS = 8
_LEAST = 20


def holdout_set(
    records: Sequence[Sequence[str]],
    views: str,
    limit: int = 1000,
    seed: int = 0,
    groups: Sequence[int] | NDArray[np.integer[Any]] | None = None,
) -> RetrievalSet:
    """Make a search task from held-out records.

    Equal queries or targets count once. Query and target of one record must differ. If there are
    more than ``limit`` queries, ``limit`` are drawn, in an order that depends only on the seed.
    With groups, the target of any record of the query's group is correct.

    Args:
        records: Lists of one text (``dropout``), or of an anchor, its positive and other texts,
            which are ignored (``adjacent`` and ``pairs``).
        views: ``dropout``, ``adjacent`` or ``pairs``, as in training.
        limit: Largest number of queries.
        seed: The seed of the draw.
        groups: A number for each record, equal for records that belong together; equal records have
            the group of the first.
    """
    halves = (_halves(record[0]) if views == "dropout" else record[:2] for record in records)
    usable: dict[tuple[str, str], int] = {}
    for number, (a, b) in enumerate(halves):
        if a and b and a != b:
            usable.setdefault((a, b), number)
    if len(usable) < _LEAST:
        kind = f"texts of at least {_WORDS} words" if views == "dropout" else "pairs that differ"
        raise InputError(
            f"`--dev auto` needs at least {_LEAST} held-out {kind}; found {len(usable)} among "
            f"{len(records)} records. Hold out more, such as `--holdout 0.2` (the default is "
            "0.1), or give `--dev` an STS file or a retrieval folder"
        )
    pairs = list(usable)
    order = np.random.default_rng(seed).permutation(len(pairs))[:limit]
    drawn = [pairs[i] for i in order]
    data = from_pairs(drawn)
    if groups is not None:
        _share_targets(data, drawn, [int(groups[usable[pair]]) for pair in drawn])
    return data


def _share_targets(
    data: RetrievalSet, pairs: Sequence[tuple[str, str]], groups: Sequence[int]
) -> None:
    """Make the targets of a group relevant to all its queries."""
    query_at = {text: place for place, text in enumerate(data.queries)}
    target_at = {text: place for place, text in enumerate(data.corpus)}
    targets: dict[int, dict[int, float]] = {}
    for (_, target), group in zip(pairs, groups, strict=True):
        targets.setdefault(group, {})[target_at[target]] = 1.0
    for (query, _), group in zip(pairs, groups, strict=True):
        data.relevant[query_at[query]].update(targets[group])
    for number, place in list(data.itself.items()):
        if place in data.relevant[number]:  # a text of the group may be found
            del data.itself[number]


def _halves(text: str) -> tuple[str, str]:
    """Cut a text in the middle of its words; two empty halves if there are too few."""
    words = text.split()
    if len(words) < _WORDS:
        return "", ""
    middle = len(words) // 2
    return " ".join(words[:middle]), " ".join(words[middle:])
