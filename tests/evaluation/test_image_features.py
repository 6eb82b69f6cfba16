import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.core.progress import showing
from isotrope.evaluation.image_tasks import both_features, image_features
from isotrope.evaluation.linear_probe import linear_probe
from isotrope.evaluation.nearest import knn
from isotrope.evaluation.tables import tables

from .pictures import Part, Pictures, PictureSet, Sums, blobs, picture_set


@pytest.mark.parametrize("batch_size", [1, 7, 64, 240, 1000])
def test_blocks_change_nothing_but_what_is_held(batch_size):
    part = blobs(240, 0)
    found = image_features(Sums(), part, batch_size=batch_size)
    np.testing.assert_array_equal(found.vectors, Sums().encode(part.images.pixels))
    np.testing.assert_array_equal(found.labels, part.labels)
    assert found.vectors.dtype == np.float32
    assert max(part.images.reads) == min(batch_size, 240)
    assert sum(part.images.reads) == 240


def test_a_limit_takes_as_many_of_each_class_and_reads_no_others():
    part = blobs(240, 0)
    found = image_features(Sums(), part, limit=20, batch_size=6)
    assert np.bincount(found.labels).tolist() == [4, 4, 3, 3, 3, 3]
    first = [int(np.flatnonzero(part.labels == c)[0]) for c in range(6)]
    expected = Sums().encode(part.images.pixels)
    for label, place in enumerate(first):
        own = found.vectors[found.labels == label]
        np.testing.assert_array_equal(own[0], expected[place])
    assert sum(part.images.reads) == 20


@pytest.mark.parametrize("limit", [None, 30])
def test_pictures_without_a_label_are_not_scored(limit):
    data = picture_set()
    unlabelled = blobs(500, 2)
    unlabelled.labels[:] = -1
    mixed = [
        Part(
            Pictures(np.concatenate([unlabelled.images.pixels, part.images.pixels])),
            np.concatenate([unlabelled.labels, part.labels]),
        )
        for part in (data.train, data.test)
    ]
    found = both_features(Sums(), PictureSet(*mixed), limit=limit)
    expected = both_features(Sums(), data, limit=limit)
    for some, same in zip(found, expected, strict=True):
        np.testing.assert_array_equal(some.labels, same.labels)
        np.testing.assert_array_equal(some.vectors, same.vectors)


def test_test_pictures_that_are_training_pictures_are_counted():
    data = picture_set()
    for protocol, scored in (("knn", knn), ("linear", linear_probe)):
        assert scored(*both_features(Sums(), data)).details[protocol]["repeated"] == 0
    pixels, labels = data.test.images.pixels.copy(), data.test.labels
    pixels[[3, 8]] = data.train.images.pixels[[100, 0]]
    leaked = PictureSet(data.train, Part(Pictures(pixels), labels))
    found = knn(*both_features(Sums(), leaked))
    assert found.details["knn"]["repeated"] == 2
    listed = tables(found)
    assert "the training part contains 2 of 90 test examples" in listed
    assert "in the training part" not in tables(knn(*both_features(Sums(), data)))


@pytest.mark.parametrize("limit", [240, 1000])
def test_a_limit_beyond_all_takes_all(limit):
    part = blobs(240, 0)
    assert image_features(Sums(), part, limit=limit).labels.tolist() == part.labels.tolist()


@pytest.mark.usefixtures("terminal")
def test_both_parts_and_their_bars(capsys):
    data = picture_set()
    with showing(show=True):
        train, test = both_features(Sums(), data, limit=60)
    assert (len(train.vectors), len(test.vectors)) == (60, 60)
    said = capsys.readouterr().err
    assert said.count("60/60") >= 2
    assert "training pictures/s" in said
    assert "test pictures/s" in said
    both_features(Sums(), data)
    assert capsys.readouterr().err == ""


def test_what_cannot_be_scored():
    data = picture_set()
    with pytest.raises(InputError, match="the test pictures have no labels"):
        both_features(Sums(), PictureSet(data.train, Part(data.test.images, None)))


class Odd:
    """Returns what it is told to."""

    def __init__(self, function):
        self.function = function

    def encode(self, images):
        return self.function(len(images))


@pytest.mark.parametrize(
    ("returned", "shape"),
    [
        (lambda n: np.zeros((n + 1, 3)), r"\(9, 3\)"),
        (lambda n: np.zeros(n), r"\(8,\)"),
        (lambda n: np.zeros((n, 3, 2)), r"\(8, 3, 2\)"),
    ],
)
def test_an_encoder_that_returns_something_else(returned, shape):
    with pytest.raises(InputError, match=f"one vector for each of .* array of shape {shape}"):
        image_features(Odd(returned), blobs(10, 0), batch_size=8)


def test_an_encoder_that_returns_no_numbers():
    with pytest.raises(InputError, match="must return an array of numbers"):
        image_features(Odd(lambda n: [["a"]] * n), blobs(10, 0), batch_size=8)
