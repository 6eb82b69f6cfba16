"""Arrays of pictures: every layout is the same pictures, and nothing in a file is executed."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from isotrope.core.errors import InputError
from isotrope.data.images.arrays import ArrayImages, load_strips
from isotrope.data.images.sets import load_images

from ..pictures import ramp

X = np.stack([ramp(8, 8, seed) for seed in range(6)])
Y = np.array([0, 1, 2, 0, 1, 2])


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def pictures(path: Path, **settings: Any) -> NDArray[np.uint8]:
    found = load_images(path, **settings)
    return found.train.images.read(range(len(found.train.images)))


class TestNpz:
    @pytest.mark.parametrize("key", ["images", "x", "x_train", "train_images"])
    def test_layouts(self, tmp_path: Path, key: str) -> None:
        expected = X.transpose(0, 3, 1, 2)
        for array in (X, expected, np.asfortranarray(X)):
            found = pictures(npz(tmp_path / "a.npz", **{key: array}))
            assert found.dtype == np.uint8
            assert np.array_equal(found, expected)

    def test_a_validation_part_is_a_test_part_with_its_own_labels(self, tmp_path: Path) -> None:
        both = {"x_train": X, "y_train": Y, "x_val": X[:2], "y_val": Y[1:3]}
        found = load_images(npz(tmp_path / "a.npz", **both)).test
        assert found is not None
        assert found.labels is not None
        assert found.labels.tolist() == [1, 2]
        unlabelled = load_images(npz(tmp_path / "b.npz", **both, x_test=X[:3])).test
        assert unlabelled is not None
        assert unlabelled.labels is None

    def test_grey(self, tmp_path: Path) -> None:
        grey = X[..., 0]
        for array in (grey, grey[..., None], grey[:, None]):
            found = pictures(npz(tmp_path / "a.npz", x=array))
            assert np.array_equal(found, np.repeat(grey[:, None], 3, axis=1))

    def test_transparent_pixels_are_white(self, tmp_path: Path) -> None:
        alpha = np.full((6, 8, 8, 1), 255, np.uint8)
        alpha[:, :4] = 0
        alpha[:, 4] = 51
        rgba = np.concatenate([X, alpha], axis=3)
        for array in (rgba, rgba.transpose(0, 3, 1, 2)):
            found = pictures(npz(tmp_path / "a.npz", x=array)).transpose(0, 2, 3, 1)
            assert (found[:, :4] == 255).all()
            assert np.abs(found[:, 4] - (255 - 0.2 * (255.0 - X[:, 4]))).max() <= 0.5
            assert np.array_equal(found[:, 5:], X[:, 5:])

    def test_channels_stand_last_where_both_are_possible(self, tmp_path: Path) -> None:
        array = np.random.default_rng(0).integers(0, 256, (5, 3, 9, 3)).astype(np.uint8)
        found = load_images(npz(tmp_path / "a.npz", x=array), side=4).train.images
        assert isinstance(found, ArrayImages)
        assert np.array_equal(found.array, array.transpose(0, 3, 1, 2))

    def test_labels_and_a_test_part(self, tmp_path: Path) -> None:
        path = npz(tmp_path / "pets.npz", x_train=X, y_train=Y[:, None], x_test=X[:2], y_test=Y[:2])
        found = load_images(path)
        assert (found.name, found.side, found.in_memory) == ("pets", 8, True)
        assert found.train.labels is not None
        assert found.test is not None
        assert found.test.labels is not None
        assert found.train.labels.dtype == found.test.labels.dtype == np.int64
        assert found.train.labels.tolist() == Y.tolist()
        assert found.test.labels.tolist() == [0, 1]
        assert len(found.test.images) == 2
        assert found.class_names is None

    def test_names_as_labels(self, tmp_path: Path) -> None:
        words = np.array(["dog", "cat", "emu"])[Y]
        arrays = {"x": X, "y": words, "x_test": X[:1], "y_test": np.array(["emu"])}
        found = load_images(npz(tmp_path / "a.npz", **arrays))
        assert found.class_names == ("cat", "dog", "emu")
        assert found.train.labels is not None
        assert found.test is not None
        assert found.train.labels.tolist() == [1, 0, 2, 1, 0, 2]
        assert found.test.labels == [2]
        names = np.array(["emu", "dog", "cat"])
        found = load_images(npz(tmp_path / "a.npz", **arrays, class_names=names))
        assert found.class_names == ("emu", "dog", "cat")
        assert found.test is not None
        assert found.test.labels == [0]

    def test_a_label_of_minus_one_is_none(self, tmp_path: Path) -> None:
        arrays = {"x": X, "y": Y - 1, "x_test": X[:2], "y_test": np.array([-1, -1])}
        for names in ({}, {"class_names": np.array(["a", "b"])}):
            found = load_images(npz(tmp_path / "a.npz", **arrays, **names))
            assert found.train.labels is not None
            assert found.train.labels.tolist() == [-1, 0, 1, -1, 0, 1]
            assert found.test is not None
            assert found.test.labels is None

    def test_numbers_and_their_names(self, tmp_path: Path) -> None:
        names = np.array(["a", "b", "c"])
        assert load_images(npz(tmp_path / "a.npz", x=X, y=Y, class_names=names)).class_names == (
            "a",
            "b",
            "c",
        )

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            (
                {"z": X},
                "call the array of pictures images or x or x_train or train_images; .*: z",
            ),
            ({}, "call the array of pictures images or .*; the arrays in the file are: none"),
            ({"x": X / 255}, r"save the array 'x' as uint8 from 0 to 255, not float64"),
            ({"x": X.astype(np.int64)}, "save the array 'x' as uint8 from 0 to 255, not int64"),
            ({"x": X[..., :2]}, r"give pictures as n x h x w .* 'x' has the shape \(6, 8, 8, 2\)"),
            ({"x": X[0, 0]}, r"has the shape \(8, 3\)"),
            ({"x": X[None]}, r"has the shape \(1, 6, 8, 8, 3\)"),
            ({"x": X[:0]}, r"add pictures to the empty array 'x' \(shape \(0, 8, 8, 3\)\)"),
            ({"x": X[:1]}, "give at least 2 pictures to train on, not 1"),
            (
                {"x": X, "y": Y[:5]},
                r"the 6 pictures in the array 'x'; the array 'y' has the shape \(5,\)",
            ),
            ({"x": X, "y": np.eye(6)}, r"give one label for each .* 'y' has the shape \(6, 6\)"),
            ({"x": X, "y": np.int64(3)}, r"give one label .* 'y' has the shape \(\)"),
            ({"x": X, "y": Y / 2}, "save 'y' as integers or names, not float64"),
            (
                {"x": X, "y": Y + 1, "class_names": np.array(["a", "b", "c"])},
                "from 0 to 2, .* from 1 to 3",
            ),
            (
                {"x": X, "y": Y - 2, "class_names": np.array(["a", "b", "c"])},
                "or -1 for pictures without a label; .* from -2 to 0",
            ),
            ({"x": X, "y": Y, "x_test": X, "y_test": Y[:2]}, r"'y_test' has the shape \(2,\)"),
            (
                {"x": X, "y": np.array(list("aabbcc")), "x_test": X[:1], "y_test": np.array(["d"])},
                "add 'd' to the array class_names, because a picture has this label",
            ),
        ],
    )
    def test_arrays_that_will_not_do(
        self, tmp_path: Path, arrays: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            load_images(npz(tmp_path / "a.npz", **arrays))

    def test_nothing_is_unpickled(self, tmp_path: Path) -> None:
        class Trap:
            def __reduce__(self) -> tuple[Any, ...]:
                return (Path.touch, (tmp_path / "executed",))

        trap = np.array([Trap()], dtype=object)
        for arrays in ({"x": trap}, {"x": X, "y": np.repeat(trap, 6)}):
            with pytest.raises(
                InputError, match=r"without Python objects; the array cannot be read"
            ):
                load_images(npz(tmp_path / "a.npz", **arrays))
        (tmp_path / "b.npz").write_bytes(pickle.dumps(Trap()))
        with pytest.raises(InputError, match=r"cannot read it as an \.npz file of pictures"):
            load_images(tmp_path / "b.npz")
        assert not (tmp_path / "executed").exists()

    def test_damaged_files(self, tmp_path: Path) -> None:
        path = npz(tmp_path / "a.npz", x=X)
        whole = path.read_bytes()
        for content in (b"", b"words", whole[:-30]):
            path.write_bytes(content)
            with pytest.raises(
                InputError, match=r"a\.npz: write the file .* as an \.npz file of pictures"
            ):
                load_images(path)
        path.write_bytes(whole[:300] + b"\xff" * 40 + whole[340:])
        with pytest.raises(InputError, match=r"cannot be read .\"Bad CRC-32"):
            load_images(path)
        with path.open("wb") as file:
            np.save(file, X)
        with pytest.raises(InputError, match="one array without a name"):
            load_images(path)


class TestFingerprint:
    def test_it_is_of_the_pixels_whatever_they_lie_in(self, tmp_path: Path) -> None:
        first = load_images(npz(tmp_path / "a.npz", x=X, y=Y)).fingerprint
        other = npz(tmp_path / "b.npz", images=X.transpose(0, 3, 1, 2), labels=Y.astype(np.uint8))
        assert load_images(other).fingerprint == first
        changed = X.copy()
        changed[3, 2, 1, 0] += 1
        different = [
            load_images(npz(tmp_path / "c.npz", x=changed, y=Y)).fingerprint,
            load_images(npz(tmp_path / "c.npz", x=X, y=Y[::-1])).fingerprint,
            load_images(npz(tmp_path / "c.npz", x=X)).fingerprint,
            load_images(npz(tmp_path / "c.npz", x=X, y=Y, x_test=X, y_test=Y)).fingerprint,
            load_images(npz(tmp_path / "c.npz", x=X, y=Y), side=16).fingerprint,
            load_images(npz(tmp_path / "c.npz", x=X, y=Y), limit=4).fingerprint,
        ]
        assert len({first, *different}) == 7


def strips(path: Path, shown: list[int], *, side: int = 4, each: int = 3, **more: Any) -> Path:
    """Write pictures of one value each (their number) as strips of ``each``."""
    webp, offsets = b"", [0]
    for start in range(0, len(shown), each):
        values = np.arange(start, min(start + each, len(shown)), dtype=np.uint8)
        strip = np.repeat(values, side)[:, None, None] * np.ones((1, side, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(strip).save(file, "WEBP", lossless=True)
        webp += file.getvalue()
        offsets.append(len(webp))
    arrays = {"webp": np.frombuffer(webp, np.uint8), "offsets": np.array(offsets)}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **(arrays | {"labels": np.array(shown, np.uint8)} | more))
    return path


class TestStrips:
    def test_files_one_after_another(self, tmp_path: Path) -> None:
        names = np.array(["a", "b"])
        strips(tmp_path / "train_0.npz", [0, 1, 0, 1, 0], class_names=names)
        strips(tmp_path / "train_1.npz", [1, 0, 1, 0], class_names=names)
        strips(tmp_path / "test.npz", [1, 0], class_names=names)
        found = load_images(tmp_path)
        values = found.train.images.read(range(9))[:, 0, 0, 0]
        assert values.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
        assert found.train.labels is not None
        assert found.train.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
        assert found.test is not None
        assert found.test.labels is not None
        assert found.test.labels.tolist() == [1, 0]
        assert found.class_names == ("a", "b")
        assert (found.side, found.in_memory) == (4, True)

    @pytest.mark.parametrize("limit", [2, 5, 6, 8, 100])
    @pytest.mark.parametrize("labels", [[0, 1, 0, 1, 0], [0, 0, 0, 0, 0]])
    def test_a_limit_is_the_same_whether_all_is_decoded(
        self, tmp_path: Path, limit: int, labels: list[int]
    ) -> None:
        strips(tmp_path / "train_0.npz", labels)
        strips(tmp_path / "train_1.npz", [1, 0, 1, 0])
        whole = load_images(tmp_path, limit=limit)
        strips(tmp_path / "test.npz", [1, 0])
        part = load_images(tmp_path, limit=limit)
        n = len(part.train.images)
        assert n == min(limit, 9)
        assert np.array_equal(whole.train.images.read(range(n)), part.train.images.read(range(n)))
        assert np.array_equal(whole.train.labels, part.train.labels)
        if labels[1]:  # the classes take turns: no more is decoded than is asked for
            assert len(load_strips(tmp_path, limit).train.images) == n

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"labels": np.zeros(4)},
                r"copy this .*; the numbers of pictures \(6\) and labels \(4\) differ",
            ),
            ({"labels": np.zeros(7)}, r"pictures \(6\) and labels \(7\) differ"),
            ({"offsets": np.array([0])}, "strip 0 in the file is damaged"),
            ({"offsets": np.array([0.0, 9.0])}, "strip 0 in the file is damaged"),
            ({"webp": np.zeros((3, 3))}, "strip 0 in the file is damaged"),
            ({"webp": np.zeros(99, np.uint8)}, "strip 0 in the file is damaged"),
        ],
    )
    def test_damaged(self, tmp_path: Path, change: dict[str, Any], message: str) -> None:
        strips(tmp_path / "train.npz", [0, 1, 0, 1, 0, 1], **change)
        with pytest.raises(InputError, match=message):
            load_images(tmp_path)

    def test_a_folder_of_other_arrays(self, tmp_path: Path) -> None:
        npz(tmp_path / "train.npz", x=X, labels=Y)
        for limit in (None, 4):
            with pytest.raises(InputError, match=r"put pictures .*, but the folder has only \.npz"):
                load_images(tmp_path, limit=limit)


def test_cifar10(shared_data: Path) -> None:
    found = load_images(shared_data / "cifar10", limit=5000)
    assert (found.name, found.side, found.in_memory) == ("cifar10", 32, True)
    assert found.train.labels is not None
    assert found.test is not None
    assert found.test.labels is not None
    assert np.bincount(found.train.labels).tolist() == [500] * 10
    assert np.bincount(found.test.labels).tolist() == [1000] * 10
    assert found.class_names is not None
    assert found.class_names[:2] == ("airplane", "automobile")
    pixels = found.train.images.read(range(5000)) / 255
    assert np.abs(pixels.mean((0, 2, 3)) - [0.4914, 0.4821, 0.4463]).max() < 0.003
    assert np.abs(pixels.std((0, 2, 3)) - [0.2470, 0.2435, 0.2616]).max() < 0.003


@pytest.mark.slow
def test_all_of_cifar10(shared_data: Path) -> None:
    found = load_images(shared_data / "cifar10")
    assert found.train.labels is not None
    assert np.bincount(found.train.labels).tolist() == [5000] * 10
    means = [
        found.train.images.read(range(start, start + 5000)).mean((0, 2, 3)) / 255
        for start in range(0, 50_000, 5000)
    ]
    # as everybody normalises by; MANIFEST.md has .4821 and .4463 for the last two
    assert np.mean(means, axis=0).round(4).tolist() == [0.4914, 0.4822, 0.4465]


class TestDigits:
    def test_they_are_scikit_learns(self) -> None:
        from sklearn.datasets import load_digits

        found = load_images("digits")
        assert found.test is not None
        assert found.test.labels is not None
        assert found.train.labels is not None
        assert (found.name, found.side) == ("digits", 8)
        assert found.class_names == tuple("0123456789")
        assert (len(found.train.images), len(found.test.images)) == (1438, 359)
        rows = [part.images.read(range(len(part.images))) for part in (found.train, found.test)]
        assert (rows[0][:, 0] == rows[0][:, 1]).all()
        labels = np.concatenate([found.train.labels, found.test.labels])
        bundled = load_digits()
        expected = (bundled.images * 255 / 16).round().astype(np.uint8)
        pairs = zip(np.concatenate(rows)[:, 0], labels, strict=True)
        assert sorted((x.tobytes(), int(y)) for x, y in pairs) == sorted(
            (x.tobytes(), int(y)) for x, y in zip(expected, bundled.target, strict=True)
        )

    def test_the_test_part_is_stratified_and_drawn_by_the_seed(self) -> None:
        found = [load_images("digits", holdout=0.1, seed=seed) for seed in (0, 0, 1)]
        for one in found:
            assert one.test is not None
            assert one.test.labels is not None
            assert set(np.bincount(one.test.labels)) == {17, 18}
        assert found[0].fingerprint == found[1].fingerprint != found[2].fingerprint
