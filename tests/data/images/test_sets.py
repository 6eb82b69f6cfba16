"""Image sets: what is recognised, which side pictures get, what is held out, what is refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError, MissingExtra
from isotrope.data.images.sets import load_images

from ..pictures import folders, ramp, save


def of_sizes(root: Path, *sizes: tuple[int, int]) -> Path:
    for i, (width, height) in enumerate(sizes):
        save(root / f"{i:02}.png", ramp(width, height, i))
    return root


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ([(28, 28)] * 3, 28),
        ([(96, 96)] * 3, 96),
        ([(4, 4)] * 3, 4),
        ([(97, 97)] * 3, 96),  # alike, but of no usual side
        ([(256, 256)] * 2, 256),
        ([(40, 32)] * 3, 32),
        ([(64, 48), (70, 65), (64, 66), (300, 80)], 64),
        ([(500, 375), (375, 500), (20, 20)], 256),
        ([(10, 20), (20, 10)], 32),
        ([(2, 2), (2, 2)], 32),
    ],
)
def test_the_side_of_pictures(tmp_path: Path, sizes: list[tuple[int, int]], side: int) -> None:
    found = load_images(of_sizes(tmp_path, *sizes))
    assert found.side == side
    assert found.train.images.read([1, 0]).shape == (2, 3, side, side)
    assert not found.in_memory


def test_a_side_of_ones_own(tmp_path: Path) -> None:
    found = load_images(of_sizes(tmp_path, (8, 8), (90, 40)), side=48)
    assert found.train.images.read([0, 1]).shape == (2, 3, 48, 48)
    for side in (3, 0, -1, 1025):
        with pytest.raises(InputError, match=f"between 4 and 1024 pixels, not {side}"):
            load_images(tmp_path, side=side)


def test_arrays_of_another_side(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.stack([ramp(40, 32), ramp(40, 32, 9)]))
    found = load_images(tmp_path / "a.npz")
    assert (found.side, found.in_memory) == (32, False)
    assert found.train.images.read([0]).shape == (1, 3, 32, 32)
    np.savez(tmp_path / "b.npz", x=np.stack([ramp(8, 8)] * 3))
    assert not load_images(tmp_path / "b.npz", side=16).in_memory
    assert load_images(tmp_path / "b.npz", side=8).in_memory


def test_held_out_pictures_are_a_test_part(tmp_path: Path) -> None:
    found = load_images(folders(tmp_path, classes=3, each=10), holdout=0.2, seed=5)
    assert found.test is not None
    assert found.test.labels is not None
    assert found.train.labels is not None
    assert np.bincount(found.test.labels).tolist() == [2, 2, 2]
    assert np.bincount(found.train.labels).tolist() == [8, 8, 8]
    seen = {row.tobytes() for row in found.train.images.read(range(24))}
    assert not seen & {row.tobytes() for row in found.test.images.read(range(6))}
    again = load_images(tmp_path, holdout=0.2, seed=5).fingerprint
    assert found.fingerprint == again != load_images(tmp_path, holdout=0.2, seed=6).fingerprint


def test_a_test_part_of_its_own_is_kept(tmp_path: Path) -> None:
    folders(tmp_path / "train", each=10)
    folders(tmp_path / "test", each=2)
    found = load_images(tmp_path, holdout=0.5)
    assert found.test is not None
    assert (len(found.train.images), len(found.test.images)) == (20, 4)


def test_a_limit_takes_the_classes_in_turn(tmp_path: Path) -> None:
    folders(tmp_path, classes=3, each=5)
    found = load_images(tmp_path, limit=7)
    assert found.train.labels is not None
    assert found.train.labels.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert len(load_images(tmp_path, limit=99).train.images) == 15
    both = load_images(tmp_path, limit=6, holdout=0.4)
    assert both.test is not None
    assert (len(both.train.images), len(both.test.images)) == (6, 6)


def test_without_labels_nothing_is_held_out(tmp_path: Path) -> None:
    of_sizes(tmp_path, (8, 8), (8, 8), (8, 8))
    with pytest.raises(
        InputError, match=r"for each class; without labels, no pictures can be held out"
    ):
        load_images(tmp_path, holdout=0.5)


def test_paths_that_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing: check the path; there is no such file"):
        load_images(tmp_path / "nothing")
    with pytest.raises(
        InputError, match=r"give a folder of pictures, .* not a file with the ending '\.png'"
    ):
        load_images(save(tmp_path / "a.png", ramp(8, 8)))
    with pytest.raises(InputError, match="no such file"):
        load_images("Digits")


@pytest.mark.parametrize(
    ("module", "extra"), [("PIL", "image"), ("sklearn.datasets", "image"), ("datasets", "image")]
)
def test_what_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    path: Path | str = folders(tmp_path)
    if module == "sklearn.datasets":
        path = "digits"
    if module == "datasets":
        for name in ("dataset_info.json", "state.json"):
            (tmp_path / name).write_text("{}")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"\.\[{extra}\].*'{module.partition('.')[0]}'"):
        load_images(path)


def test_arrays_need_pillow_only_to_be_resized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "a.npz", x=np.stack([ramp(8, 8)] * 2))
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert load_images(tmp_path / "a.npz").train.images.read([0]).shape == (1, 3, 8, 8)
    with pytest.raises(MissingExtra, match=r"\.\[image\].*'PIL'"):
        load_images(tmp_path / "a.npz", side=16).train.images.read([0])


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    code = (
        "import sys, isotrope.data.images.sets\n"
        "print(*{'PIL', 'datasets', 'sklearn', 'scipy', 'pyarrow'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
