"""Loads an image set of any kind: training and test pictures, all resized to one size.

isotrope recognises the kind of set by its content:

- ``digits``: scikit-learn's handwritten digits (write ``./digits`` for a folder of this name);
- an ``.npz`` file, or a folder of strips of lossless WebP (:mod:`isotrope.data.images.arrays`);
- a Hugging Face dataset folder (:mod:`isotrope.data.images.tables`), such as the hub's copy of
  CIFAR-10, CIFAR-100, STL-10, Tiny-ImageNet or Flowers102;
- any other folder of pictures (:mod:`isotrope.data.images.folder`). To load ImageNet-100, give the
  folder of ImageNet and a list of classes.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isotrope.core.documents import check_file
from isotrope.core.errors import InputError, place
from isotrope.core.fingerprint import fingerprint
from isotrope.core.trust import check_named
from isotrope.data.images.arrays import is_strips, load_digits, load_npz, load_strips
from isotrope.data.images.folder import load_folder
from isotrope.data.images.records import ImageSet, balanced_prefix, held_out
from isotrope.data.images.tables import is_table, load_table
from isotrope.data.lines import is_folder, lines

_LARGEST_OWN = 96
_SIDES = (32, 64, 96, 128, 256)
_BOUNDS = (4, 1024)


def load_images(
    path: Path | str,
    *,
    side: int | None = None,
    holdout: float = 0.0,
    seed: int = 0,
    limit: int | None = None,
    classes: Sequence[str] | Path | None = None,
) -> ImageSet:
    """Open a set of pictures of any known kind. Picture files are decoded when they are read.

    Args:
        path: Folder, ``.npz`` file, or ``"digits"``.
        side: Height and width of the pictures in pixels. The shorter side of a picture is resized
            to ``side``, then the centre is cut out. With None, pictures keep their size if all are
            squares of one size, from 4 to 96 pixels. Otherwise, None means the largest of 32, 64,
            96, 128 and 256 that is not above the median of the shorter sides, or else 32.
        holdout: Share of each class's pictures that form the test part if the set has no test part.
        seed: Seed of the random choice of the test pictures.
        limit: Largest number of training pictures, which are taken from all classes in turn.
        classes: Names of the classes to use, or a file with one name on each line.
    """
    check_named(path)
    recognised = _recognise(path, holdout, seed, limit, _class_list(classes))
    train, test = recognised.train, recognised.test
    if holdout and test is None:
        if train.labels is None:
            raise InputError(
                f"{recognised.name}: label the pictures, for example by one folder for each class; "
                "without labels, no pictures can be held out for scoring"
            )
        train_rows, test_rows = held_out(train.labels, holdout, seed)
        train, test = train.select(train_rows), train.select(test_rows)
    if limit is not None:
        train = train.select(balanced_prefix(train.labels, limit, len(train.images)))
    if len(train.images) < 2:
        raise InputError(
            f"{recognised.name}: give at least 2 pictures to train on, not {len(train.images)}"
        )
    side = _side(train.images.sizes, side)
    train = replace(train, images=train.images.resized(side))
    test = None if test is None else replace(test, images=test.images.resized(side))
    parts = [train] if test is None else [train, test]
    return replace(
        recognised,
        train=train,
        test=test,
        side=side,
        fingerprint=fingerprint(side, *((part.images.facts(), part.labels) for part in parts)),
        in_memory=all(part.images.in_memory() for part in parts),
    )


def _class_list(classes: Sequence[str] | Path | None) -> tuple[str, ...] | None:
    """Return the names of the classes; a file has one name on each line."""
    if classes is None:
        return None
    if isinstance(classes, str | Path):
        classes = [name for _, text in lines(Path(classes)) if (name := text.strip())]
    if len(set(classes)) < 2:
        raise InputError(f"name at least 2 different classes, not {len(set(classes))}")
    return tuple(classes)


def _recognise(
    path: Path | str, holdout: float, seed: int, limit: int | None, classes: tuple[str, ...] | None
) -> ImageSet:
    if classes is not None and (path == "digits" or Path(path).is_file()):
        raise InputError(
            f"{place(Path(path))}: leave out the list of classes; classes can be chosen only in a "
            "folder with one subfolder for each class"
        )
    if path == "digits":
        return load_digits(holdout, seed)
    path = Path(path)
    if not is_folder(path):
        check_file(path)
        if path.suffix.lower() == ".npz":
            return load_npz(path)
        raise InputError(
            f"{place(path)}: give a folder of pictures, an .npz file, or the word digits, not a "
            f"file with the ending {path.suffix!r}"
        )
    if classes is not None:
        return load_folder(path, classes)
    if is_strips(path):
        return load_strips(path, limit if (path / "test.npz").exists() else None)
    if is_table(path):
        return load_table(path)
    return load_folder(path)


def _side(sizes: NDArray[np.int64], requested: int | None) -> int:
    """Return the side of the pictures in pixels: the requested side, or a side that fits."""
    if requested is not None:
        if not _BOUNDS[0] <= requested <= _BOUNDS[1]:
            raise InputError(
                f"give a side between {_BOUNDS[0]} and {_BOUNDS[1]} pixels, not {requested}"
            )
        return requested
    if (sizes == sizes[0, 0]).all() and _BOUNDS[0] <= sizes[0, 0] <= _LARGEST_OWN:
        return int(sizes[0, 0])
    short = np.median(sizes.min(axis=1))
    return max((side for side in _SIDES if side <= short), default=_SIDES[0])
