"""Chooses the data set of each training step, if there are several."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isotrope.data.order import Order
from isotrope.data.sources import Sampling, named_errors
from isotrope.data.text.batches import Batches
from isotrope.data.text.tokens import StoreReport, TokenStore


class Drawn(NamedTuple):
    """The records of a step.

    Attributes:
        dataset: Name of the data set of these records.
        number: Number of the batch within that data set, from 0.
        indices: Numbers of the records, int64.
    """

    dataset: str
    number: int
    indices: NDArray[np.int64]


class DatasetMixture:
    """The data set and the records of every step, computed from (seed, step).

    ``proportional``: an epoch has every full batch of every data set once, in random order. Large
    data sets are therefore drawn more often. ``round-robin``: the data sets take turns, one batch
    each. An epoch ends when the smallest data set does; the others continue in the next epoch.
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
        "kept records duplicates_dropped empty_skipped held_out neighbours_dropped texts tokens "
        "groups_dropped"
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
