"""The long-tailed Flowers102: which pictures, and as a folder that opens."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from isotrope.core import InputError
from isotrope.data import load_images
from papers.draganov2024.flowers_tail import long_tailed, write_long_tail
from tests.data.pictures import save


def flowers(folder: Path) -> Path:
    """Write 30 pictures of 3 classes: 2 each to train and to validate on, 4, 6 and 8 to test."""
    starts = np.array([0, 8, 18])
    ids = {
        "trnid": np.concatenate([starts + 1, starts + 2]),
        "valid": np.concatenate([starts + 3, starts + 4]),
    }
    ids["tstid"] = np.setdiff1d(np.arange(1, 31), np.concatenate(list(ids.values())))[::-1]
    folder.mkdir()
    savemat(folder / "imagelabels.mat", {"labels": np.repeat([1, 2, 3], [8, 10, 12])})
    savemat(folder / "setid.mat", ids)
    for i in range(1, 31):
        save(folder / "jpg" / f"image_{i:05}.jpg", np.full((12, 16, 3), 8 * i, np.uint8))
    return folder


def shown(part: Any) -> list[int]:
    """Return the numbers of the pictures of a part, which are their brightness."""
    values = part.images.read(range(len(part.images)))[:, 0].mean((1, 2))
    return (values / 8).round().astype(int).tolist()


def test_which_pictures() -> None:
    labels = np.repeat(np.arange(6), [3, 49, 50, 120, 250, 300])
    places = long_tailed(labels, 50, 250, seed=0)
    assert (np.diff(places) > 0).all()
    assert np.bincount(labels[places]).tolist() == [0, 0, 50, 120, 250, 250]
    assert long_tailed(labels, 50, 250, seed=0).tolist() == places.tolist()
    assert long_tailed(labels, 50, 250, seed=1).tolist() != places.tolist()
    with pytest.raises(InputError, match=r"no class has 301 pictures \(the largest has 300\)"):
        long_tailed(labels, 301, 400, seed=0)


def test_the_folder_opens(tmp_path: Path) -> None:
    """6, 8 and 10 pictures of a class stand beside those to validate on."""
    folder = flowers(tmp_path / "flowers-102")
    tail = tmp_path / "flowers102-long-tailed"
    write_long_tail(folder, tail, smallest=7, largest=9, seed=1)
    found = load_images(tail)
    assert found.train.labels is not None
    assert np.bincount(found.train.labels).tolist() == [8, 9]
    assert found.test is not None
    assert found.test.labels is not None
    assert found.test.labels.tolist() == [0, 0, 1, 1]
    assert shown(found.test) == [11, 12, 21, 22]
    assert not set(shown(found.train)) & set(shown(found.test))
