"""Batches of pictures: a function of seed and step, in slices, and in order from any workers."""

import functools
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from isotrope.core.errors import InputError
from isotrope.data.images.arrays import ArrayImages
from isotrope.data.images.batches import ImageBatch, ImageBatches
from isotrope.data.images.records import ImagePart
from isotrope.data.images.sets import load_images
from isotrope.training.loop import Steps

from ..pictures import folders, ramp, save

# fewer cores than workers: slower than it could be, and otherwise the same
few = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def part(n: int) -> ImagePart:
    """Pictures of one pixel value each: their number."""
    array = np.broadcast_to(np.arange(n, dtype=np.uint8)[:, None, None, None], (n, 3, 4, 4))
    return ImagePart(ArrayImages(np.ascontiguousarray(array)), None)


def numbers(batch: ImageBatch) -> list[int]:
    return batch.images[:, 0, 0, 0].tolist()


def test_an_epoch_takes_every_picture_at_most_once() -> None:
    batches = ImageBatches(part(50), 8, seed=1)
    assert batches.steps_per_epoch == 6
    epochs = [
        [i for step in range(6 * e, 6 * e + 6) for i in numbers(batches.at(step))] for e in range(3)
    ]
    for epoch in epochs:
        assert len(epoch) == len(set(epoch)) == 48
        assert set(epoch) < set(range(50))
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_what_a_batch_holds() -> None:
    batch = ImageBatches(part(50), 8, seed=1).at(9)
    assert (batch.step, batch.size) == (9, 8)
    assert batch.images.dtype == torch.uint8
    assert batch.images.shape == (8, 3, 4, 4)


def test_a_step_is_a_function_of_seed_and_number() -> None:
    batches = ImageBatches(part(50), 8, seed=1)
    expected = [numbers(batches.at(step)) for step in range(20)]
    again = ImageBatches(part(50), 8, seed=1)
    assert [numbers(again.at(step)) for step in reversed(range(20))] == expected[::-1]
    assert numbers(ImageBatches(part(50), 8, seed=2).at(0)) != expected[0]


def test_fewer_pictures_than_a_batch_make_one() -> None:
    batches = ImageBatches(part(5), 8)
    assert (batches.size, batches.steps_per_epoch) == (5, 1)
    assert sorted(numbers(batches.at(3))) == list(range(5))
    assert batches.at(3).size == 5


@pytest.mark.parametrize("size", [1, 0, -3])
def test_impossible_batches(size: int) -> None:
    with pytest.raises(InputError, match=f"a batch of {size} has no negatives"):
        ImageBatches(part(5), size)


def test_slices_make_the_whole_batch() -> None:
    batches = ImageBatches(part(50), 9, seed=4)
    whole = batches.at(7)
    bounds = [0, 4, 4, 9]
    parts = [batches.at(7, slice(a, b)) for a, b in itertools.pairwise(bounds)]
    assert torch.equal(torch.cat([p.images for p in parts]), whole.images)
    assert {(p.step, p.size) for p in parts} == {(7, 9)}
    assert [len(p.images) for p in parts] == [4, 0, 5]


def test_only_the_rows_of_the_slice_are_read() -> None:
    class Counted(ArrayImages):
        seen = 0

        def read(self, indices):
            Counted.seen += len(indices)
            return super().read(indices)

    array = np.zeros((20, 3, 4, 4), np.uint8)
    ImageBatches(ImagePart(Counted(array), None), 10).at(0, slice(2, 5))
    assert Counted.seen == 3


@few
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize(("start", "stop"), [(5, 12), (4, 5), (3, 3)])
def test_any_number_of_workers_gives_the_same_order(workers: int, start: int, stop: int) -> None:
    batches = ImageBatches(part(50), 8, seed=1)
    steps = Steps(functools.partial(batches.at, part=slice(1, 6)), start, stop)
    with pytest.raises(TypeError):
        len(steps)  # Lightning would end a resumed run early
    found = list(DataLoader(steps, batch_size=None, num_workers=workers))
    assert [batch.step for batch in found] == list(range(start, stop))
    for batch in found:
        assert isinstance(batch, ImageBatch)
        assert batch.size == 8
        assert torch.equal(batch.images, batches.at(batch.step, slice(1, 6)).images)


@few
def test_files_decoded_in_workers_are_the_same_and_what_broke_is_known(tmp_path: Path) -> None:
    folders(tmp_path, classes=2, each=6)
    path = save(tmp_path / "c1" / "3.png", ramp(30, 20))
    path.write_bytes(path.read_bytes()[:-40])
    found = load_images(tmp_path, side=8)
    batches = ImageBatches(found.train, 4, seed=0)
    loaded = list(
        DataLoader(Steps(batches.at, 0, 7), batch_size=None, num_workers=2, prefetch_factor=1)
    )
    assert found.replaced == ("c1/3.png",)
    again = ImageBatches(load_images(tmp_path, side=8).train, 4, seed=0)
    for step, batch in enumerate(loaded):
        assert torch.equal(batch.images, again.at(step).images)
