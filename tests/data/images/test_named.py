"""The usual copies of known image sets, made small in their own formats."""

import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isotrope.core.errors import InputError, MissingExtra
from isotrope.data.images.sets import load_images

from ..pictures import ramp, save

RANDOM = np.random.default_rng(0)


def rows(n: int) -> np.ndarray:
    return RANDOM.integers(0, 256, (n, 3072)).astype(np.uint8)


def python2(data: np.ndarray, labels: list[int], key: bytes) -> bytes:
    """What Python 2 wrote: byte strings, and numpy by its old names."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    array = b"".join(
        [
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\nt",
            text(b"b") + b"tR(I1\n(",
            *(f"I{n}\n".encode() for n in data.shape),
            b"tcnumpy\ndtype\n(" + text(b"u1") + b"I0\nI1\ntR(I3\n" + text(b"|"),
            b"NNNI-1\nI-1\nI0\ntbI00\n",
            b"T" + struct.pack("<i", data.nbytes) + data.tobytes() + b"tb",
        ]
    )
    numbers = b"(l" + b"".join(f"I{n}\na".encode() for n in labels)
    return b"\x80\x02}(" + text(b"data") + array + text(key) + numbers + b"u."


def python3(data: np.ndarray, labels: list[int], key: bytes) -> bytes:
    return pickle.dumps({b"data": data, key: labels}, protocol=2)


@pytest.fixture(params=[python2, python3])
def dumped(request: pytest.FixtureRequest) -> Callable[[np.ndarray, list[int], bytes], bytes]:
    return request.param


class TestCifar:
    def test_ten(self, tmp_path: Path, dumped: Callable[..., bytes]) -> None:
        folder = tmp_path / "cifar-10-batches-py"
        folder.mkdir()
        data = [rows(4) for _ in range(6)]
        names = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"]
        for name, x in zip([*names, "test_batch"], data, strict=True):
            (folder / name).write_bytes(dumped(x, [3, 1, 0, 2], b"labels"))
        (folder / "batches.meta").write_bytes(
            b"(dp1\nS'num_cases_per_batch'\np2\nL10000L\nsS'label_names'\np3\n(lp4\n"
            b"S'airplane'\np5\naS'automobile'\np6\naS'bird'\np7\naS'cat'\np8\n"
            b"asS'num_vis'\np9\nL3072L\ns."
        )
        for path in (folder, tmp_path):
            found = load_images(path)
            assert (found.name, found.side, found.in_memory) == ("cifar10", 32, True)
            expected = np.concatenate(data[:5]).reshape(-1, 3, 32, 32)
            assert np.array_equal(found.train.images.read(range(20)), expected)
            assert found.train.labels is not None
            assert found.train.labels.tolist() == [3, 1, 0, 2] * 5
            assert found.test is not None
            assert np.array_equal(found.test.images.read([2])[0], data[5][2].reshape(3, 32, 32))
            assert found.class_names == ("airplane", "automobile", "bird", "cat")

    def test_hundred(self, tmp_path: Path, dumped: Callable[..., bytes]) -> None:
        folder = tmp_path / "cifar-100-python"
        folder.mkdir()
        (folder / "train").write_bytes(dumped(rows(3), [0, 99, 7], b"fine_labels"))
        (folder / "test").write_bytes(dumped(rows(2), [7, 1], b"fine_labels"))
        meta = {"fine_label_names": ["apple"] * 100, "coarse_label_names": ["fruit"] * 20}
        meta = {key: [f"{name} {i}" for i, name in enumerate(meta[key])] for key in meta}
        (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))
        found = load_images(folder)
        assert found.name == "cifar100"
        assert found.train.labels is not None
        assert found.train.labels.tolist() == [0, 99, 7]
        assert found.class_names is not None
        assert len(found.class_names) == 100

    @staticmethod
    def written(folder: Path, batch: bytes) -> Path:
        (folder / "data_batch_1").write_bytes(batch)
        (folder / "test_batch").write_bytes(python3(rows(2), [0, 1], b"labels"))
        return folder

    @pytest.mark.parametrize(
        ("module", "name"),
        [
            ("os", "system"),
            ("builtins", "eval"),
            ("builtins", "getattr"),
            ("numpy", "load"),
            ("numpy.core.multiarray", "scalar"),
            ("numpy", "fromfile"),
            ("isotrope.data.images.named", "_values"),
        ],
    )
    def test_nothing_is_executed(self, tmp_path: Path, module: str, name: str) -> None:
        trap = f"c{module}\n{name}\n(U\x08touch /xtR.".encode()
        with pytest.raises(InputError, match="not a pickle of CIFAR"):
            load_images(self.written(tmp_path, trap))

    def test_a_trap_as_pickle_writes_it(self, tmp_path: Path) -> None:
        class Trap:
            def __reduce__(self) -> tuple[Any, ...]:
                return (os.mkdir, (str(tmp_path / "executed"),))

        for protocol in range(6):
            batch = pickle.dumps({"data": Trap()}, protocol=protocol)
            with pytest.raises(InputError, match="not a pickle of CIFAR, which has pictures"):
                load_images(self.written(tmp_path, batch))
        assert not (tmp_path / "executed").exists()

    def test_bytes_are_never_taken_for_pointers(self, tmp_path: Path) -> None:
        """An array of objects over eight bytes: NumPy would follow them where they point."""

        class Trap:
            def __reduce__(self) -> tuple[Any, ...]:
                return np.ndarray, ((1,), np.dtype("O"), bytes(8))

        batch = pickle.dumps({"data": Trap(), "labels": [1]}, protocol=2)
        with pytest.raises(InputError, match="not a pickle of CIFAR"):
            load_images(self.written(tmp_path, batch))

    def test_an_array_column_by_column(self, tmp_path: Path) -> None:
        data = np.asfortranarray(rows(2))
        found = load_images(self.written(tmp_path, python3(data, [1, 2], b"labels")))
        expected = data.reshape(-1, 3, 32, 32)
        assert np.array_equal(found.train.images.read([0, 1]), expected)

    @pytest.mark.parametrize(
        ("batch", "message"),
        [
            (b"", "not a pickle of CIFAR"),
            (b"words", "not a pickle of CIFAR"),
            (pickle.dumps([1, 2]), "not a pickle of CIFAR, which has pictures"),
            (python3(rows(3), [1, 2], b"labels"), "for each under 'labels'"),
            (python3(rows(3), [1, 2, 3], b"fine_labels"), "for each under 'labels'"),
            (python3(rows(2), [1, -2], b"labels"), "a number below 100 for each under 'labels'"),
            (
                python3(rows(2), [1, 10**30], b"labels"),
                "a number below 100 for each under 'labels'",
            ),
            (python3(rows(2), [1, "2"], b"labels"), "a number below 100 for each under 'labels'"),
            (python3(rows(2)[:, 1:], [1, 2], b"labels"), "which has pictures of 3,072 bytes"),
            (python3(rows(2) / 2, [1, 2], b"labels"), "which has pictures of 3,072 bytes"),
            (python2(rows(2), [1, 2], b"labels")[:-900], "not a pickle of CIFAR"),
        ],
    )
    def test_damaged(self, tmp_path: Path, batch: bytes, message: str) -> None:
        with pytest.raises(InputError, match=message):
            load_images(self.written(tmp_path, batch))

    def test_several_sets_in_one_folder(self, tmp_path: Path) -> None:
        (tmp_path / "cifar-10-batches-py").mkdir()
        self.written(tmp_path / "cifar-10-batches-py", python3(rows(2), [0, 1], b"labels"))
        stl(tmp_path / "stl10_binary")
        with pytest.raises(
            InputError, match=r"give one of its folders cifar-10-batches-py, stl10_binary"
        ):
            load_images(tmp_path)


def stl(folder: Path, train: int = 3, test: int = 2) -> np.ndarray:
    """Write STL-10 in small, and return the training pictures, n x h x w x 3."""
    folder.mkdir()
    pictures = RANDOM.integers(0, 256, (train, 96, 96, 3)).astype(np.uint8)
    for name, x in (("train", pictures), ("test", pictures[:test]), ("unlabeled", pictures)):
        x.transpose(0, 3, 2, 1).tofile(folder / f"{name}_X.bin")  # column by column
    np.array([10, 1, 3][:train], np.uint8).tofile(folder / "train_y.bin")
    np.array([2, 9][:test], np.uint8).tofile(folder / "test_y.bin")
    (folder / "class_names.txt").write_text("airplane\nbird\ncar\n")
    return pictures


class TestStl:
    def test_columns_and_labels(self, tmp_path: Path) -> None:
        pictures = stl(tmp_path / "stl10_binary")
        found = load_images(tmp_path)
        assert (found.name, found.side, found.in_memory) == ("stl10", 96, True)
        read = found.train.images.read(range(len(found.train.images)))
        assert np.array_equal(read, pictures.transpose(0, 3, 1, 2))
        assert found.train.labels is not None
        assert found.train.labels.tolist() == [9, 0, 2]
        assert found.test is not None
        assert found.test.labels is not None
        assert found.test.labels.tolist() == [1, 8]
        assert found.class_names == ("airplane", "bird", "car")

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("train_X.bin", bytes(27_649), "27649 bytes do not match 3 labels .* of 27648 bytes"),
            ("train_X.bin", b"", "0 bytes do not match 3 labels"),
            ("test_y.bin", b"\1", "55296 bytes do not match 1 labels"),
            ("train_y.bin", b"\0\1\2", "82944 bytes do not match 3 labels .from 1."),
            ("test_y.bin", None, "test_y.bin: no such file"),
        ],
    )
    def test_damaged(self, tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
        stl(tmp_path / "stl10_binary")
        path = tmp_path / "stl10_binary" / name
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            load_images(tmp_path)


class TestTinyImagenet:
    @staticmethod
    def written(folder: Path, listed: str) -> Path:
        for name in ("n02", "n01"):
            for i in range(2):
                save(folder / "train" / name / "images" / f"{name}_{i}.JPEG", ramp(64, 64))
            (folder / "train" / name / f"{name}_boxes.txt").write_text("0 0 62 62\n")
        for i in range(3):
            save(folder / "val" / "images" / f"val_{i}.JPEG", ramp(64, 64))
        save(folder / "test" / "images" / "test_0.JPEG", ramp(64, 64))
        (folder / "wnids.txt").write_text("n02\nn01\n")
        (folder / "val" / "val_annotations.txt").write_text(listed)
        return folder

    def test_the_list_labels_the_test_part(self, tmp_path: Path) -> None:
        listed = "val_2.JPEG\tn02\t0\t0\t62\t62\nval_0.JPEG\tn01\t0\t0\t1\t1\ngone.JPEG\tn01\t0\n\n"
        self.written(tmp_path / "tiny-imagenet-200", listed)
        (tmp_path / "tiny-imagenet-200" / "train" / "n01" / "images" / "x.jpg").touch()
        found = load_images(tmp_path)
        assert (found.name, found.side) == ("tiny-imagenet", 64)
        assert found.class_names == ("n01", "n02")
        assert found.train.labels is not None
        assert found.train.labels.tolist() == [0, 0, 1, 1]
        assert found.test is not None
        assert found.test.labels is not None
        assert found.test.labels.tolist() == [1, 0]
        assert found.test.images.read([0, 1]).shape == (2, 3, 64, 64)
        assert found.skipped == ("train/n01/images/x.jpg", "val/images/gone.JPEG")

    @pytest.mark.parametrize("listed", ["val_0.JPEG\tn03\t0\n", "val_0.JPEG\n", "\tn1\n"])
    def test_a_list_of_something_else(self, tmp_path: Path, listed: str) -> None:
        with pytest.raises(
            InputError, match=r"val_annotations\.txt, line 1: copy it again; '.*' names no class"
        ):
            load_images(self.written(tmp_path, listed))

    def test_sorted_into_folders_it_is_any_folder(self, tmp_path: Path) -> None:
        self.written(tmp_path, "x\n")
        (tmp_path / "val" / "val_annotations.txt").unlink()
        for i, name in enumerate(("n01", "n02")):
            target = tmp_path / "val" / name
            target.mkdir()
            (tmp_path / "val" / "images" / f"val_{i}.JPEG").rename(target / f"{i}.JPEG")
        (tmp_path / "val" / "images" / "val_2.JPEG").unlink()
        found = load_images(tmp_path)
        assert found.test is not None
        assert found.test.labels is not None
        assert found.test.labels.tolist() == [0, 1]
        assert found.class_names == ("n01", "n02")


def flowers(folder: Path, **changed: np.ndarray) -> Path:
    """Write 30 pictures of 3 classes: 2 each to train and to validate on, 4, 6 and 8 to test."""
    from scipy.io import savemat

    labels = np.repeat([1, 2, 3], [8, 10, 12])
    starts = np.array([0, 8, 18])
    ids = {
        "trnid": np.concatenate([starts + 1, starts + 2]),
        "valid": np.concatenate([starts + 3, starts + 4]),
    }
    rest = np.setdiff1d(np.arange(1, 31), np.concatenate(list(ids.values())))
    ids["tstid"] = np.random.default_rng(1).permutation(rest)
    folder.mkdir()
    savemat(folder / "imagelabels.mat", {"labels": labels.astype(np.uint8)})
    savemat(folder / "setid.mat", {k: v.astype(np.uint16) for k, v in (ids | changed).items()})
    for i in range(1, 31):
        save(folder / "jpg" / f"image_{i:05}.jpg", np.full((12, 16, 3), 8 * i, np.uint8))
    return folder


def shown(part: Any) -> list[int]:
    """Return the numbers of the pictures of a part, which are their brightness."""
    values = part.images.read(range(len(part.images)))[:, 0].mean((1, 2))
    return (values / 8).round().astype(int).tolist()


class TestFlowers:
    def test_the_official_parts(self, tmp_path: Path) -> None:
        flowers(tmp_path / "flowers-102")
        found = load_images(tmp_path)
        assert (found.name, found.class_names) == ("flowers102", ("1", "2", "3"))
        assert shown(found.train) == [1, 2, 3, 4, 9, 10, 11, 12, 19, 20, 21, 22]
        assert found.train.labels is not None
        assert found.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
        assert found.test is not None
        assert found.test.labels is not None
        assert shown(found.test) == [5, 6, 7, 8, *range(13, 19), *range(23, 31)]
        assert found.test.labels.tolist() == [0] * 4 + [1] * 6 + [2] * 8

    def test_a_missing_picture_is_counted(self, tmp_path: Path) -> None:
        folder = flowers(tmp_path / "flowers-102")
        (folder / "jpg" / "image_00005.jpg").unlink()
        assert load_images(folder).skipped == ("jpg/image_00005.jpg",)

    @pytest.mark.parametrize("wrong", [[31], [0], []])
    def test_numbers_that_do_not_belong_together(self, tmp_path: Path, wrong: list[int]) -> None:
        folder = flowers(tmp_path / "flowers-102", valid=np.array(wrong))
        with pytest.raises(InputError, match=r"do not belong together \(30 labels, pictures up"):
            load_images(folder)

    def test_no_numbers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = flowers(tmp_path / "flowers-102")
        with monkeypatch.context() as patch:
            patch.setitem(__import__("sys").modules, "scipy.io", None)
            with pytest.raises(MissingExtra, match="scipy"):
                load_images(folder)
        (folder / "setid.mat").write_bytes(b"words")
        with pytest.raises(
            InputError, match=r"setid\.mat: copy it again; .* numbers called 'trnid'"
        ):
            load_images(folder)
