"""The label-free dev score (``--dev auto``): held-out pairs as a small retrieval task.

The held-out records, which are never trained on, become a search task without labels. In a pair (or
two adjacent texts), the first text is the query and the second is the target. A single text of at
least eight words is cut in the middle into query and target. The score is the MRR@10: all held-out
targets are ranked for each query, and the rank of the query's own target counts.

The score shows whether embeddings keep enough of a text's subject to recognise its continuation
among a few hundred others, on the user's own kind of text. It falls when training destroys a model,
and stops rising when training stops helping. It does not measure similarity as people judge it: it
cannot distinguish a paraphrase from a contradiction on the same subject. It does not measure other
kinds of text. Shared words make the task easy, so a high value does not prove understanding.
Compare scores only on the same records, with the same seed.
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

    Equal queries or targets count once. Records whose query equals the target are left out. If more
    than ``limit`` pairs remain, ``limit`` of them are drawn; the draw depends only on the seed.
    With groups, the target of every record in the query's group is correct.

    Args:
        records: Lists of one text (``dropout``), or of an anchor, its positive and other texts that
            are ignored (``adjacent`` and ``pairs``).
        views: ``dropout``, ``adjacent`` or ``pairs``, as in training.
        limit: Largest number of query-target pairs.
        seed: Seed of the draw.
        groups: A number for each record, equal for records that belong together. Equal records have
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
            "hold out more records, such as with `--holdout 0.2` (the default is 0.1), or give "
            f"`--dev` an STS file or a retrieval folder: `--dev auto` needs at least {_LEAST} "
            f"held-out {kind}; found {len(usable)} among {len(records)} records"
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
    """Make all targets of a group relevant to all queries of the group."""
    query_at = {text: place for place, text in enumerate(data.queries)}
    target_at = {text: place for place, text in enumerate(data.corpus)}
    targets: dict[int, dict[int, float]] = {}
    for (_, target), group in zip(pairs, groups, strict=True):
        targets.setdefault(group, {})[target_at[target]] = 1.0
    for (query, _), group in zip(pairs, groups, strict=True):
        data.relevant[query_at[query]].update(targets[group])
    for number, place in list(data.itself.items()):
        if place in data.relevant[number]:  # the query itself is a target of its group
            del data.itself[number]


def _halves(text: str) -> tuple[str, str]:
    """Cut a text in the middle of its words; return two empty texts if there are too few words."""
    words = text.split()
    if len(words) < _WORDS:
        return "", ""
    middle = len(words) // 2
    return " ".join(words[:middle]), " ".join(words[middle:])
