"""The long-tailed Flowers102 of table 3, written as a folder that isotrope opens.

    python -m papers.draganov2024.flowers_tail FLOWERS DATA/flowers102-long-tailed

Draganov et al. 2024, section 4, say of their split, which is unpublished, that it trains on the
further, imbalanced examples, 50 to 250 a class. This one takes the official training and test parts
together (30 to 248 a class), leaves out classes with fewer than the smallest number, draws of those
with more, and scores on the validation part (10 a class) of the classes that stay.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

from isotrope.core import InputError


def write_long_tail(
    flowers: Path, output: Path, *, smallest: int = 50, largest: int = 250, seed: int = 0
) -> None:
    """Write train/ and test/ with a folder for each class; the pictures are links."""
    labels = loadmat(flowers / "imagelabels.mat")["labels"].ravel()
    ids = loadmat(flowers / "setid.mat")
    pool = np.sort(np.concatenate([ids["trnid"].ravel(), ids["tstid"].ravel()]))
    train = pool[long_tailed(labels[pool - 1], smallest, largest, seed)]
    valid = ids["valid"].ravel()
    test = np.sort(valid[np.isin(labels[valid - 1], labels[train - 1])])
    for part, numbers in (("train", train), ("test", test)):
        for number in numbers:
            link = output / part / f"{labels[number - 1]:03}" / f"image_{number:05}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to((flowers / "jpg" / link.name).resolve())


def long_tailed(
    labels: NDArray[np.integer], smallest: int, largest: int, seed: int
) -> NDArray[np.int64]:
    """Return the places of classes of ``smallest`` to ``largest`` pictures, ascending."""
    names, counts = np.unique(labels, return_counts=True)
    if counts.max() < smallest:
        raise InputError(
            f"no class has {smallest} pictures (the largest has {counts.max()}); ask for fewer"
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    rows = [order[labels[order] == name] for name in names[counts >= smallest]]
    return np.sort(np.concatenate([places[:largest] for places in rows]))


if __name__ == "__main__":
    write_long_tail(Path(sys.argv[1]), Path(sys.argv[2]))
