"""Chooses the data set and the records of each training step, and pads the texts of a batch."""

import hashlib
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError
from isotrope.data.order import Order
from isotrope.data.sources import Sampling, named_errors
from isotrope.data.text.repeats import hash64, joined_groups
from isotrope.data.text.tokens import StoreReport, TokenStore


class Batches:
    """The records of every step, computed from the seed, the epoch and the step."""

    def __init__(self, store: Sized, batch_size: int, seed: int = 0) -> None:
        self.n, self.batch_size, self.seed = len(store), batch_size, seed
        if batch_size < 2:
            raise InputError(
                f"use a batch size of at least 2: a batch of {batch_size} has no negatives"
            )
        if batch_size > self.n:
            raise InputError(
                f"use a batch size of at most {self.n}, not {batch_size}, or give more text: the "
                f"data have only {self.n} different records"
            )
        self.steps_per_epoch = self.n // batch_size  # an incomplete last batch is left out
        self._order = Order(self.n, seed, 0)
        self._epoch = 0

    def indices(self, epoch: int, step: int) -> NDArray[np.int64]:
        """Return the record numbers of a step, which is counted from 0 within ``epoch``."""
        if epoch != self._epoch:
            self._order, self._epoch = Order(self.n, self.seed, epoch), epoch
        start = step * self.batch_size
        return self._order[np.arange(start, start + self.batch_size)]

    def at(self, step: int) -> NDArray[np.int64]:
        """Return the record numbers of a step, which is counted from 0 over the whole training."""
        return self.indices(*divmod(step, self.steps_per_epoch))


class Column(NamedTuple):
    """The texts of one column of a batch, as the input of an encoder.

    Attributes:
        input_ids: Token ids of each text, int64 (rows x tokens), padded at the end.
        attention_mask: 1 for a token and 0 for padding, int64 (rows x tokens).
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """The texts of a batch in columns, and the groups of its records.

    Attributes:
        columns: List of columns: the n anchors, the n positives and, if there are any, the hard
            negatives. A hard negative that repeats a text of the batch is left out.
        groups: Group of each record, int64 (n). Records of one group are not negatives of each
            other.
        dataset: Name of the data set; empty if there is only one.
        number: Number of the batch within its data set; None if this is the number of the step.
        scores: Scores of the pairs; None if the loss does not use scores. With scores, no hard
            negative is left out: the k-th hard negatives of all records are one column of n texts.
    """

    columns: list[Column]
    groups: NDArray[np.int64]
    dataset: str = ""
    number: int | None = None
    scores: NDArray[np.float64] | None = None


def collate(
    store: TokenStore, indices: NDArray[np.int64], *, pad_id: int, part: slice = slice(None)
) -> Batch:
    """Return the batch of the given records, or the part of the batch that one process embeds.

    The text of a record with one text is both anchor and positive. If there are no scores, a hard
    negative is left out if it is near-identical to an anchor, positive or earlier hard negative in
    the batch. It would be a false negative of that anchor or positive, or would count twice.

    Args:
        store: Token store with the records.
        indices: Numbers of the n records.
        pad_id: Token id of padding.
        part: Positions in ``indices`` of the records that this process embeds.
    """
    columns = [store.rows(indices, c) for c in range(store.columns)]
    groups = [store.text_marks(indices, c) for c in range(min(store.columns, 2))]
    # texts that differ only after max_length tokens are the same input for the encoder
    inputs = [np.array([hash64(row.tobytes()) for row in c], np.uint64) for c in columns]
    views = [column[part] for column in columns]
    if store.columns == 1:
        views *= 2
    if scored := store.report.scored:
        each = len(columns[2]) // len(indices) if store.columns == 3 else 0  # negatives of a record
        views = [*views[:2], *(columns[2][place::each][part] for place in range(each))]
    elif store.columns == 3:
        new = unseen(store.text_marks(indices, 2), groups) & unseen(inputs[2], inputs[:2])
        new &= np.isin(store.owners(indices), np.arange(len(indices))[part])
        views[2] = [row for row, wanted in zip(columns[2], new, strict=True) if wanted]
    marks = [*groups, *inputs[:2], *store.group_marks(indices), *store.link_marks(indices)]
    return Batch(
        columns=[_padded(view, pad_id) for view in views if view],
        groups=joined_groups(np.stack(marks, axis=1))[part],
        scores=store.scores(indices)[part] if scored else None,
    )


def unseen(marks: NDArray[np.uint64], others: Sequence[NDArray[np.uint64]]) -> NDArray[np.bool_]:
    """Return whether each hash is new: neither earlier in ``marks`` nor in one of ``others``."""
    new = np.zeros(len(marks), bool)
    new[np.unique(marks, return_index=True)[1]] = True
    return new & ~np.isin(marks, np.concatenate(others))


def _padded(rows: Sequence[NDArray[Any]], pad_id: int) -> Column:
    longest = max(map(len, rows))
    ids = np.full((len(rows), longest), pad_id, np.int64)
    mask = np.zeros((len(rows), longest), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return Column(ids, mask)


def cut(lengths: NDArray[np.integer[Any]], overhead: int) -> list[int]:
    """Divide texts, sorted by length, into the chunks that together cost least.

    The cost of a chunk is (number of texts x longest length + ``overhead``), in tokens.

    >>> cut(np.array([3, 3, 3, 30, 30]), overhead=10)
    [0, 3, 5]
    >>> cut(np.array([3, 3, 3, 30, 30]), overhead=1000)
    [0, 5]

    Args:
        lengths: Lengths of the texts in tokens, in ascending order.
        overhead: Additional cost of every chunk, in tokens.

    Returns:
        List of the first row of each chunk. The last item is the number of rows.
    """
    values, counts = np.unique(lengths, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(counts)])  # ends[j]: rows of the j shortest lengths
    best = np.zeros(len(values) + 1)
    came_from = np.zeros(len(values) + 1, np.int64)
    for j, longest in enumerate(values.tolist(), start=1):
        costs = best[:j] + (ends[j] - ends[:j]) * longest + overhead
        came_from[j] = costs.argmin()
        best[j] = costs[came_from[j]]
    bounds = [len(values)]
    while bounds[-1]:
        bounds.append(int(came_from[bounds[-1]]))
    return [int(ends[j]) for j in reversed(bounds)]


def fewer(bounds: Sequence[int], lengths: NDArray[np.integer[Any]], most: int) -> list[int]:
    """Merge neighbouring chunks, each time with the least padding, until at most ``most`` remain.

    >>> fewer([0, 3, 4, 5], np.array([3, 3, 3, 9, 10]), most=2)
    [0, 3, 5]

    Args:
        bounds: List of the first row of each chunk and, last, the number of rows (:func:`cut`).
        lengths: Lengths of the texts in tokens, in ascending order.
        most: Largest number of chunks.
    """
    bounds = list(bounds)
    while len(bounds) - 1 > most:
        padding = [
            (middle - start) * int(lengths[end - 1] - lengths[middle - 1])
            for start, middle, end in zip(bounds, bounds[1:], bounds[2:], strict=False)
        ]
        del bounds[1 + int(np.argmin(padding))]
    return bounds


class Drawn(NamedTuple):
    """The data set of a step, and the numbers of the records.

    Attributes:
        dataset: Name of the data set that the records come from.
        number: Number of the batch within this data set, from 0.
        indices: Numbers of the records within this data set, int64.
    """

    dataset: str
    number: int
    indices: NDArray[np.int64]


class DatasetMixture:
    """The data set and the records of every step, computed from the seed and the step.

    ``proportional``: an epoch has every full batch of every data set once, in random order, so a
    large data set has more batches. ``round-robin``: the data sets take turns, with one batch each.
    An epoch ends where the smallest data set ends; the others continue in the next epoch.
    """

    def __init__(
        self, stores: Mapping[str, TokenStore], batch_size: int, sampling: Sampling, seed: int
    ) -> None:
        self.stores, self.sampling, self.seed = stores, sampling, seed
        self.parts = {}
        for name, store in stores.items():
            with named_errors(name):
                self.parts[name] = Batches(store, batch_size, seed)
        steps = [batches.steps_per_epoch for batches in self.parts.values()]
        self._ends = np.array([*accumulate(steps)])
        in_turn = sampling == "round-robin"
        self.steps_per_epoch = len(steps) * min(steps) if in_turn else sum(steps)

    @property
    def report(self) -> StoreReport:
        """The counts of all data sets together."""
        return joined([store.report for store in self.stores.values()])

    def at(self, step: int) -> Drawn:
        """Return the data set and the records of a step, counted from the start of training."""
        names = list(self.parts)
        if len(names) == 1:
            return Drawn(names[0], step, self.parts[names[0]].at(step))
        if self.sampling == "round-robin":
            number, place = divmod(step, len(names))
            return Drawn(names[place], number, self.parts[names[place]].at(number))
        epoch, place = divmod(step, self.steps_per_epoch)
        drawn = Order(self.steps_per_epoch, self.seed, epoch)[np.array([place])][0]
        part = int(np.searchsorted(self._ends, drawn, side="right"))
        number = int(drawn) - (int(self._ends[part - 1]) if part else 0)
        return Drawn(names[part], number, self.parts[names[part]].indices(epoch, number))


def joined(reports: Sequence[StoreReport]) -> StoreReport:
    """Return the sums of the counts of several reports."""
    first = reports[0]
    if len(reports) == 1:
        return first
    counts = (
        "kept records duplicates_dropped empty_skipped held_out texts tokens groups_dropped "
        "negatives_dropped"
    )
    totals: dict[str, Any] = {n: sum(getattr(r, n) for r in reports) for n in counts.split()}
    return replace(
        first,
        **totals,
        views=", ".join(dict.fromkeys(report.views for report in reports)),
        columns=max(report.columns for report in reports),
        truncated_share=sum(r.truncated_share * r.texts for r in reports) / totals["texts"],
        fingerprint=hashlib.blake2b(
            "".join(report.fingerprint for report in reports).encode(), digest_size=8
        ).hexdigest(),
    )
