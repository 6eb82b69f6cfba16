import numpy as np
import pytest

from isotrope.data.images.sets import load_images
from isotrope.data.text.labelled import Features
from isotrope.encoders.image import ImageEncoder
from isotrope.evaluation.image_tasks import both_features, image_tasks, knn_evaluation
from isotrope.evaluation.linear_probe import linear_probe
from isotrope.evaluation.nearest import knn
from tests.evaluation.raw_pixels import RawPixels

from .pictures import Sums, picture_set


def features(data):
    return [
        Features(Sums().encode(part.images.pixels), part.labels) for part in (data.train, data.test)
    ]


def test_the_scores_are_those_of_the_features():
    data, encoder = picture_set(), Sums()
    tasks = image_tasks(data, knn=True, linear=True, batch_size=50)
    assert [task.kind for task in tasks] == ["knn", "linear"]
    for task, scored in zip(tasks, (knn, linear_probe), strict=True):
        found, expected = task.score(encoder), scored(*features(data), name="sums")
        assert (found.kind, found.name) == (task.kind, "sums")
        assert found.metrics == expected.metrics
        details, alone = found.details[task.kind], expected.details[task.kind]
        # features alone come without their pictures
        assert (details.pop("repeated"), alone.pop("repeated")) == (0, None)
        assert details == alone | {"skipped": 0, "replaced": 0}
        assert found.items.keys() == expected.items.keys()
        assert 0.4 < found.metrics[f"{task.kind}_top1"] <= 1
    # both from one pass over the pictures
    assert encoder.seen == sum(data.train.images.reads + data.test.images.reads) == 240 + 90


def test_knn_on_the_way():
    data = picture_set()
    look = knn_evaluation(Sums(), data)
    assert look.value == 100 * knn(*both_features(Sums(), data)).metrics["knn_top1"]
    assert look.value == 100 * look.items.mean()
    part = knn_evaluation(Sums(), data, limit=60)
    limited = picture_set()
    for side in (limited.train, limited.test):
        ranks = [np.flatnonzero(side.labels == c)[: 60 // 6] for c in range(6)]
        places = np.sort(np.concatenate(ranks))
        side.images.pixels, side.labels = side.images.pixels[places], side.labels[places]
    assert part.value == 100 * knn(*features(limited)).metrics["knn_top1"]


def test_noise_scores_chance():
    data = picture_set()
    rng = np.random.default_rng(0)
    for part in (data.train, data.test):
        part.images.pixels = rng.integers(0, 256, size=part.images.pixels.shape, dtype=np.uint8)
    assert knn_evaluation(RawPixels(data.train), data).value == pytest.approx(100 / 6, abs=12)


@pytest.fixture(scope="module")
def cifar(shared_data):
    """5,000 training pictures and all 10,000 test pictures."""
    return load_images(shared_data / "cifar10", limit=5000)


@pytest.mark.slow
def test_raw_pixels_of_cifar(cifar):
    # 25.08 without the mean of each channel taken off
    assert knn_evaluation(RawPixels(cifar.train), cifar).value == pytest.approx(32.95, abs=0.1)


@pytest.mark.nightly
def test_an_untrained_encoder_is_worse_than_raw_pixels(cifar):
    encoder = ImageEncoder.build("resnet18", width=16, image_size=32, seed=0)
    assert 20 < knn_evaluation(encoder, cifar).value < 32
