"""Splits: classes take turns, every class gives its share, and the long tail is long."""

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.data.images.arrays import ArrayImages
from isotrope.data.images.records import ImagePart, balanced_prefix, held_out

LABELS = np.array([2, 2, 2, 2, 0, 0, 1, 0, 0, 0])


def test_the_classes_take_turns() -> None:
    expected = {2: [0, 4], 3: [0, 4, 6], 5: [0, 1, 4, 5, 6], 6: [0, 1, 2, 4, 5, 6]}
    for n, places in expected.items():
        assert balanced_prefix(LABELS, n, 10).tolist() == places
    assert balanced_prefix(LABELS, 99, 10).tolist() == list(range(10))


def test_of_interleaved_classes_it_is_the_prefix() -> None:
    labels = np.tile([3, 1, 2], 10)
    for n in (2, 7, 12, 30):
        assert balanced_prefix(labels, n, 30).tolist() == list(range(n))


def test_without_labels_it_is_the_prefix() -> None:
    assert balanced_prefix(None, 3, 10).tolist() == [0, 1, 2]
    assert balanced_prefix(None, 12, 10).tolist() == list(range(10))


def test_every_class_gives_its_share() -> None:
    labels = np.repeat([5, 7, 9], [40, 20, 1])
    kept, out = held_out(labels, 0.25, seed=1)
    assert sorted([*kept, *out]) == list(range(61))
    assert (np.diff(kept) > 0).all()
    assert (np.diff(out) > 0).all()
    assert np.bincount(labels[out])[[5, 7]].tolist() == [10, 5]
    again, other = held_out(labels, 0.25, seed=1)[1], held_out(labels, 0.25, seed=2)[1]
    assert out.tolist() == again.tolist() != other.tolist()


def test_every_class_keeps_one_to_train_on() -> None:
    kept, _ = held_out(np.repeat([0, 1, 2], [1, 2, 3]), 0.99, seed=0)
    assert len(kept) == 3
    assert set(np.repeat([0, 1, 2], [1, 2, 3])[kept]) == {0, 1, 2}


def test_pictures_without_a_label_are_no_class() -> None:
    labels = np.repeat([-1, 5, -1, 7], [30, 8, 10, 12])
    kept, out = held_out(labels, 0.25, seed=1)
    assert len(kept) + len(out) == 60
    assert labels[out].tolist() == [5] * 2 + [7] * 3
    images = ArrayImages(np.zeros((60, 3, 4, 4), np.uint8))
    assert ImagePart(images, labels).select(np.array([0, 31])).labels.tolist() == [-1, 5]
    assert ImagePart(images, labels).select(np.array([0, 1])).labels is None


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_no_share(share: float) -> None:
    with pytest.raises(InputError, match="give a held-out share between 0 and 1"):
        held_out(LABELS, share, 0)


def test_nothing_to_score_on() -> None:
    with pytest.raises(
        InputError, match=r"above 0\.01, .* 10 pictures in 3 classes, no class has a picture"
    ):
        held_out(LABELS, 0.01, 0)
