"""Batches from a buffer that moves over data that do not fit on the disk."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import CannotResume, InputError
from isotrope.data.records import Record
from isotrope.data.text.store_writer import StoreSettings, build
from isotrope.data.text.streamed import StreamedBatches
from isotrope.data.text.tokens import TokenStore

SIZE, BATCH = 30, 4


class Source:
    """Records that count how far they were read: ``wanted`` of them, over and over."""

    def __init__(self, wanted: int | None = None, changed: int = -1) -> None:
        self.wanted, self.changed, self.read, self.built = wanted, changed, 0, []

    def records(self) -> Iterator[Record]:
        for number in count() if self.wanted is None else range(self.wanted):
            self.read += 1
            # every tenth text is the one before
            text = "changed" if number == self.changed else str(number - (number % 10 == 9))
            yield Record((text,), Path("data"), number + 1, False)

    def store(self, folder: Path, records: Iterator[Record]) -> TokenStore:
        if (folder / "manifest.json").is_file():
            return TokenStore.open(folder)
        self.built.append(folder.name)
        settings = StoreSettings(vocabulary=70_000, max_length=9, holdout=0.2)
        return build(folder, records, ids_of, settings)


def ids_of(texts: list[str], most: int) -> tuple[list[list[int]], int]:
    return [[int(text) if text.isdigit() else 0] for text in texts], 0


def streamed(folder: Path, source: Source, *, size: int = SIZE, seed: int = 1) -> StreamedBatches:
    return StreamedBatches(
        folder, source.records, source.store, size=size, batch_size=BATCH, seed=seed
    )


def texts_at(batches: StreamedBatches, step: int) -> list[int]:
    drawn = batches.at(step)
    return [int(row[0]) for row in batches.stores[drawn.dataset].rows(drawn.indices, 0)]


def on_disk(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()}


def test_a_buffer_moves_over_more_than_it_holds(tmp_path: Path) -> None:
    source = Source()
    batches = streamed(tmp_path, source)
    held = {int(text) for (text,) in batches.stores[""].held_out()}
    assert held
    steps = [texts_at(batches, step) for step in range(60)]
    seen = [text for step in steps for text in step]
    assert len(seen) == len(set(seen)), "nothing comes twice within a pass"
    assert not held & set(seen)
    assert not [text for text in seen if text % 10 == 9], "they repeat the text before"
    kept = [batches._report(number).kept // BATCH for number in range(3)]
    first = [text for step in steps[: kept[0]] for text in step]
    assert max(first) < SIZE, "in the order of the buffers"
    assert first != sorted(first), "and shuffled in each"
    # one buffer is ahead of what was trained on at most, and two are on the disk
    assert source.read <= max(seen) + 2 * SIZE
    assert on_disk(tmp_path) == {"0", str(batches._number)}
    assert batches.report.records == SIZE * (batches._number + 1)
    other = streamed(tmp_path / "other", Source(), seed=2)
    assert texts_at(other, 0) != steps[0]
    assert {*first} >= {*texts_at(other, 0)} - {int(t) for (t,) in other.stores[""].held_out()}


def test_resuming_skips_what_was_read(tmp_path: Path) -> None:
    whole = streamed(tmp_path / "a", Source())
    expected = [texts_at(whole, step) for step in range(40)]
    source = Source()
    again = streamed(tmp_path / "a", source)  # the counts of all buffers are there
    assert [texts_at(again, step) for step in (25, 26, 39, 3)] == [
        expected[step] for step in (25, 26, 39, 3)
    ]
    assert "1" not in source.built
    assert len(source.built) == 2
    # without the counts they are found again
    assert texts_at(streamed(tmp_path / "b", Source()), 39) == expected[39]
    with pytest.raises(
        CannotResume, match=r"^restore the data, .*: records 61 to 90 have changed since"
    ):
        texts_at(streamed(tmp_path / "a", Source(changed=62)), 12)


def test_data_that_end_begin_again(tmp_path: Path) -> None:
    batches = streamed(tmp_path, Source(wanted=SIZE + 5))
    steps = [texts_at(batches, step) for step in range(20)]
    assert len({text for step in steps for text in step}) < 80
    assert np.unique(np.concatenate(steps)).max() < SIZE + 5


def test_a_later_buffer_without_two_different_records_has_no_step(tmp_path: Path) -> None:
    def made(folder: Path) -> StreamedBatches:
        numbers = [*range(30), *[7] * 65, *range(30, 100)]
        records = [Record((str(i),), Path("data"), line, False) for line, i in enumerate(numbers)]
        source = Source()
        return StreamedBatches(
            folder, lambda: iter(records), source.store, size=SIZE, batch_size=BATCH, seed=1
        )

    batches = made(tmp_path)
    steps = [texts_at(batches, step) for step in range(20)]
    assert [batches._report(number).kept < 2 for number in range(4)] == [False, True, True, False]
    assert max(max(step) for step in steps) > 30
    assert texts_at(made(tmp_path), 19) == steps[19]


@pytest.mark.parametrize("different", [1, BATCH - 1])
def test_a_first_buffer_with_less_than_a_batch_names_a_larger_one(
    tmp_path: Path, different: int
) -> None:
    numbers = [*(line % different for line in range(SIZE)), *range(30, 100)]
    records = [Record((str(i),), Path("data"), line, False) for line, i in enumerate(numbers)]
    message = r"streaming=300, .* than 4: of the first 30 records, only \d can be trained on"
    with pytest.raises(InputError, match=message):
        StreamedBatches(
            tmp_path, lambda: iter(records), Source().store, size=SIZE, batch_size=BATCH, seed=1
        )


def test_adjacent_texts_across_the_border_of_a_buffer_stay_held_out(tmp_path: Path) -> None:
    lines = [Record((str(i),), Path("data"), i + 1, opens=i == 0) for i in range(150)]

    def store(folder: Path, records: Iterator[Record]) -> TokenStore:
        if (folder / "manifest.json").is_file():
            return TokenStore.open(folder)
        settings = StoreSettings(
            vocabulary=70_000,
            max_length=9,
            holdout=0.2,
            views="adjacent",
        )
        return build(folder, records, ids_of, settings)

    batches = StreamedBatches(
        tmp_path, lambda: iter(lines), store, size=37, batch_size=BATCH, seed=1
    )
    held = {int(text) for pair in batches.stores[""].held_out() for text in pair}
    seen: set[int] = set()
    for step in range(60):  # a few passes
        drawn = batches.at(step)
        rows = [batches.stores[""].rows(drawn.indices, column) for column in (0, 1)]
        seen |= {int(row[0]) for column in rows for row in column}
    assert len(held) > 3
    assert len(seen) > 50
    assert not held & seen


@pytest.mark.parametrize("wanted", [12, SIZE])
def test_data_that_need_no_streaming(tmp_path: Path, wanted: int) -> None:
    message = rf"one buffer of streaming=30 holds all {wanted} records"
    with pytest.raises(InputError, match=message):
        streamed(tmp_path, Source(wanted=wanted))
