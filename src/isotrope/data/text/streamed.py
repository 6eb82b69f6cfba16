"""Makes batches of data that do not fit on the disk. Training reads the data buffer by buffer.

A buffer holds the next ``size`` records. After the last record, reading starts again at the first.
A buffer is a token store (:mod:`isotrope.data.text.tokens`): duplicates within a buffer are
dropped, a share is held out, and the rest is shuffled by the seed and the number of the buffer. The
first buffer stays on the disk, because the training is scored on its held-out records. The disk
also holds the current buffer, and the next buffer while it is built. The records of a step depend
only on the data, the seed and the step, so a resumed training has the same steps.

There are no epochs. Records are not shuffled across buffers. Duplicates in different buffers are
not dropped. A held-out text is held out of every buffer. Adjacent texts are paired only within a
buffer. If a buffer after the first has fewer records than a batch, it is skipped.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path

from isotrope.core.documents import read_json
from isotrope.core.errors import CannotResume, InputError
from isotrope.core.files import remove, write_text
from isotrope.data.records import Record
from isotrope.data.text.batches import Batches, Drawn, joined
from isotrope.data.text.store_writer import TooFewRecords
from isotrope.data.text.tokens import StoreReport, TokenStore


class StreamedBatches:
    """The records of every step, read from one buffer after the other.

    Args:
        folder: Folder of the buffers.
        records: Function that reads the data from the beginning.
        build: Function that opens the token store of a folder, or builds it there from records.
        size: Number of records in a buffer.
        batch_size: Number of records in a batch. An incomplete last batch of a buffer is skipped.
        seed: Seed of the run.
        name: Name of the data set.

    Attributes:
        stores: Dict with the token store of the current buffer. The only key is the name.
        steps_per_epoch: None, because the length of the data is unknown.
    """

    steps_per_epoch = None

    def __init__(
        self,
        folder: Path,
        records: Callable[[], Iterable[Record]],
        build: Callable[[Path, Iterable[Record]], TokenStore],
        *,
        size: int,
        batch_size: int,
        seed: int,
        name: str = "",
    ) -> None:
        self.folder, self.size, self.batch_size, self.seed = folder, size, batch_size, seed
        self._records, self._build, self._name = records, build, name
        self._reader: Iterator[Record] = iter(())
        self._next = -1  # number of the buffer that _reader yields next
        self._reports: list[StoreReport] = []  # of each buffer so far
        self._begin(0, 0)

    @property
    def report(self) -> StoreReport:
        """Sums of the counts of all buffers so far. A record that is read twice counts twice."""
        return joined(self._reports)

    def at(self, step: int) -> Drawn:
        """Return the batch of a step, counted from the start of training."""
        number, first = (self._number, self._first) if step >= self._first else (0, 0)
        while step >= first + (steps := self._report(number).kept // self.batch_size):
            number, first = number + 1, first + steps
        if number != self._number:
            self._begin(number, first)
        return Drawn(self._name, step, self._batches.indices(number, step - first))

    def _begin(self, number: int, first: int) -> None:
        """Make a buffer the current one; ``first`` is its first step."""
        store = self._open(number)
        assert store is not None, "only a buffer with steps is begun"
        self._report(number)
        self._number, self._first, self.stores = number, first, {self._name: store}
        self._batches = Batches(store, self.batch_size, self.seed)
        for folder in self.folder.iterdir():
            if folder.is_dir() and folder.name not in ("0", str(number)):
                remove(folder)

    def _open(self, number: int) -> TokenStore | None:
        """Open or build the store of a buffer and write its counts; None if too few records."""
        store: TokenStore | None = None
        try:
            store = self._build(self.folder / str(number), self._buffer(number))
            report = store.report
        except TooFewRecords as error:
            report = error.report
        if number == 0 and report.kept < self.batch_size:
            raise InputError(
                f"give a larger buffer, such as `--streaming {10 * self.size}`, or a smaller "
                f"`--batch-size` than {self.batch_size}: of the first {self.size:,} records, only "
                f"{report.kept} can be trained on (repeated: {report.duplicates_dropped}, held "
                f"out: {report.held_out}, empty: {report.empty_skipped})"
            )
        kept = self.folder / f"{number}.json"
        if not kept.is_file():
            write_text(kept, json.dumps(asdict(report)))
        elif not read_json(kept).items() <= asdict(report).items():
            raise CannotResume(
                "restore the data, or choose another output folder: records "
                f"{number * self.size + 1:,} to {(number + 1) * self.size:,} have changed "
                "since this run first read them"
            )
        return store

    def _report(self, number: int) -> StoreReport:
        """Return the counts of a buffer; read the buffer first if it was never read."""
        while number >= len(self._reports):
            kept = self.folder / f"{len(self._reports)}.json"
            if not kept.is_file():
                self._open(len(self._reports))
            self._reports.append(StoreReport(**read_json(kept)))
        return self._reports[number]

    def _buffer(self, number: int) -> Iterator[Record]:
        """Yield the records of a buffer; records before it are skipped."""
        if number != self._next:
            self._reader = islice(self._endless(), number * self.size, None)
        self._next = number + 1
        yield from islice(self._reader, self.size)
        if number == 0:  # read one more record, so that _endless refuses data that end here
            self._reader = chain([next(self._reader)], self._reader)

    def _endless(self) -> Iterator[Record]:
        """Yield the records again and again; refuse data that fit into one buffer."""
        while True:
            count = 0
            for record in self._records():
                count += 1
                yield record
            if count <= self.size:
                raise InputError(
                    f"leave `--streaming` out: one buffer of `--streaming {self.size}` holds "
                    f"all {count:,} records"
                )
