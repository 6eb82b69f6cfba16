"""The audit of pictures sees what the first step of a training sees."""

from pathlib import Path

import numpy as np
import pytest
import torch

import isotrope
from isotrope.core.errors import InputError
from isotrope.data.images.batches import ImageBatch
from isotrope.training.images.audit import _first_views
from isotrope.training.images.settings import ImageSettings
from isotrope.training.images.train import prepare
from tests.training.tiny_images import SIZE, encoder


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    images = draw.integers(0, 255, (24, SIZE, SIZE, 3), dtype=np.uint8)
    images[19] = images[4]
    file = tmp_path / "pictures.npz"
    np.savez(file, images=images, labels=np.arange(24) % 3)
    return file


@pytest.mark.parametrize("method", ["simclr", "mocov3"])
def test_the_views_are_those_of_the_first_step(pictures: Path, method: str) -> None:
    settings = ImageSettings.read(
        {"data": str(pictures), "output": "none", "method": method, "batch_size": 24}
    )
    task = prepare(settings, encoder(batch_norm=True))
    embedded, _ = _first_views(task)
    again = prepare(settings, encoder(batch_norm=True))
    batch: ImageBatch = again.batches.at(0)
    torch.manual_seed(0)
    expected = again.module.train().views(again.module.crops(batch))[0]
    # the batch is shuffled, the audit is in the order of the data
    order = again.batches._batches.at(0)
    for own, views in (
        (embedded.anchors, expected.anchors),
        (embedded.positives, expected.positives),
    ):
        torch.testing.assert_close(own[torch.from_numpy(order)], views.detach())


def test_each_picture_is_seen_once_in_batches_of_the_size_of_training(pictures: Path) -> None:
    settings = ImageSettings.read({"data": str(pictures), "output": "none", "batch_size": 10})
    task, sizes = prepare(settings, encoder(batch_norm=True)), []
    crops = task.module.crops
    task.module.crops = lambda batch: (sizes.append(batch.size), crops(batch))[1]  # type: ignore[method-assign]
    embedded, marks = _first_views(task)
    assert sizes == [12, 12]
    assert len(embedded) == 24
    assert marks[19] == marks[4]
    assert len(set(marks.tolist())) == 23


def test_an_encoder_of_ones_own_stays_as_it_is(pictures: Path) -> None:
    own = encoder(batch_norm=True).eval()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    state = torch.random.get_rng_state()
    audit = isotrope.audit_images(pictures, encoder=own, batch_size=8)
    assert all(torch.equal(before[name], value) for name, value in own.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert not own.training
    assert not audit.scratch
    assert audit.found["repeated"].tolist() == [19]


def test_pictures_keep_their_numbers_in_the_file(pictures: Path) -> None:
    audit = isotrope.audit_images(
        pictures, encoder=encoder(batch_norm=False), batch_size=8, holdout=0.5, limit=6
    )
    assert len(audit.names) == 6
    file = np.load(pictures)
    assert file["labels"][list(audit.names)].tolist() == audit.pictures.labels.tolist()
    assert audit.names != list(range(6))


def test_a_queue_of_noise_is_refused(pictures: Path) -> None:
    with pytest.raises(
        InputError, match="mocov2 takes negatives from a queue, and the queue contains only noise"
    ):
        isotrope.audit_images(pictures, encoder=encoder(batch_norm=False), method="mocov2")
    with pytest.raises(InputError, match="method_settings"):
        isotrope.audit_images(pictures, method="simclr", method_setting={"hidden": 4})
