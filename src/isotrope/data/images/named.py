"""Reads local copies of known image sets (CIFAR, STL-10, ...) and recognises them by their files.

- CIFAR-10 and CIFAR-100, python version (``data_batch_1`` ..., or ``train``, ``test``, ``meta``).
  The files are pickles; only texts and numbers are read from them, and nothing is executed.
- STL-10, binary version: the 5,000 labelled training and 8,000 test pictures. The unlabelled
  pictures are not read.
- Tiny-ImageNet: ``train/`` with 200 classes; the test part is ``val/`` (``val_annotations.txt``).
- Flowers102: ``jpg/``, ``imagelabels.mat``, ``setid.mat``; its validation part is trained on too.

The path is the folder of the set, or the folder into which its archive was unpacked.
"""

import pickletools
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isotrope.core.documents import check_file
from isotrope.core.errors import InputError, needs_extra, place
from isotrope.data.images.arrays import ArrayImages
from isotrope.data.images.folder import load_folder, readable_pictures
from isotrope.data.images.records import ImagePart, ImageSet
from isotrope.data.lines import lines, quoted

_CIFAR_SIDE, _STL_SIDE = 32, 96
_CIFAR_BYTES = 3 * _CIFAR_SIDE**2
_CONSTANT = re.compile(r"(INT|LONG|STRING|BYTES|UNICODE)\d?$")  # instructions of a pickle
_FLOWERS = "image_{:05d}.jpg"
_LARGEST_MATLAB = 1 << 20  # bytes; the real files of Flowers102 have about 15,000


def find_named(folder: Path) -> Callable[[], ImageSet] | None:
    """Return the loader of a folder, or None if it is not a copy of a known set."""
    layouts: tuple[tuple[str, Sequence[str], Callable[[Path], ImageSet]], ...] = (
        ("cifar-10-batches-py", ("data_batch_1", "test_batch"), _cifar10),
        ("cifar-100-python", ("train", "test", "meta"), _cifar100),
        ("stl10_binary", ("train_X.bin", "test_X.bin"), _stl10),
        ("tiny-imagenet-200", ("wnids.txt", "val/val_annotations.txt"), _tiny),
        ("flowers-102", ("setid.mat", "imagelabels.mat"), _flowers102),
    )
    for inside in (False, True):
        loaders = [
            partial(load, where)
            for folder_name, files, load in layouts
            if all(
                ((where := folder / folder_name if inside else folder) / n).is_file() for n in files
            )
        ]
        if len(loaders) > 1:
            raise InputError(
                f"{place(folder)}: give one of its folders "
                f"{', '.join(load.args[0].name for load in loaders)}; each is a set of pictures"
            )
        if loaders:
            return loaders[0]
    return None


def _values(path: Path) -> list[Any]:
    """Return the texts and numbers of a pickle in their order; no object is built or run.

    A None follows the items of a list, and each entry or group of entries of a dictionary.
    """
    check_file(path)
    values: list[Any] = []
    try:
        for code, value, _ in pickletools.genops(path.read_bytes()):
            if code.name in ("NEWTRUE", "NEWFALSE"):
                values.append(code.name == "NEWTRUE")
            elif _CONSTANT.search(code.name):
                values.append(value.encode("latin1") if isinstance(value, str) else value)
            elif code.name in ("APPENDS", "SETITEM", "SETITEMS"):
                values.append(None)
    except Exception as error:  # pickletools raises many kinds of errors on damaged bytes
        raise InputError(
            f"{place(path)}: copy it again; it is not a pickle of CIFAR ({quoted(str(error), 80)})"
        ) from error
    return values


def _after(values: list[Any], key: str) -> list[Any]:
    """Return the values after a key, without the "latin1" that Python 3 writes with bytes."""
    place = values.index(key.encode()) + 1 if key.encode() in values else len(values)
    return [value for value in values[place:] if value != b"latin1"]


def _cifar10(folder: Path) -> ImageSet:
    files = [path for i in range(1, 6) if (path := folder / f"data_batch_{i}").is_file()]
    return _cifar("cifar10", files, folder / "test_batch", folder / "batches.meta", "label")


def _cifar100(folder: Path) -> ImageSet:
    return _cifar("cifar100", [folder / "train"], folder / "test", folder / "meta", "fine_label")


def _cifar(name: str, files: list[Path], test: Path, meta: Path, key: str) -> ImageSet:
    names = None
    if meta.is_file():
        listed = takewhile(lambda v: type(v) is bytes, _after(_values(meta), f"{key}_names"))
        names = tuple(text.decode(errors="replace") for text in listed)
        if not names:
            raise InputError(f"{place(meta)}: copy it again; not a pickle of CIFAR: no {key}_names")
    train, tested = _cifar_part(files, f"{key}s"), _cifar_part([test], f"{key}s")
    return ImageSet(name, train, tested, names)


def _cifar_part(files: list[Path], key: str) -> ImagePart:
    arrays, labels = [], []
    for path in files:
        values = _values(path)
        listed = takewhile(lambda v: v is None or type(v) is int, _after(values, key))
        numbers = [number for number in listed if number is not None]
        # a pickled array: its shape, its type, whether it is stored column by column, its bytes
        *form, by_column, pixels = _upto(_after(values, "data"), _CIFAR_BYTES)
        if not (
            {_CIFAR_BYTES, b"u1"} <= {*form}
            and len(pixels) == _CIFAR_BYTES * len(numbers)
            and all(0 <= number < 100 for number in numbers)
        ):
            raise InputError(
                f"{place(path)}: copy it again; it is not a pickle of CIFAR, which has pictures of "
                f"3,072 bytes under 'data' and a number below 100 for each under {key!r}"
            )
        rows = np.frombuffer(pixels, np.uint8)
        rows = rows.reshape((-1, _CIFAR_BYTES), order="F" if by_column is True else "C")
        arrays.append(rows.reshape(-1, 3, _CIFAR_SIDE, _CIFAR_SIDE))
        labels.append(np.array(numbers, np.int64))
    return ImagePart(ArrayImages(np.concatenate(arrays)), np.concatenate(labels))


def _upto(values: list[Any], size: int) -> list[Any]:
    """Return the values up to the first with ``size`` or more bytes; [None, b""] without one."""
    sizes = (i for i, value in enumerate(values) if type(value) is bytes and len(value) >= size)
    end = next(sizes, None)
    return [None, b""] if not end else values[: end + 1]


def _stl10(folder: Path) -> ImageSet:
    listed = folder / "class_names.txt"
    names = tuple(text.strip() for _, text in lines(listed)) if listed.is_file() else None
    return ImageSet("stl10", _stl_part(folder, "train"), _stl_part(folder, "test"), names)


def _stl_part(folder: Path, split: str) -> ImagePart:
    """Return a split. In the files, pictures are stored by columns and labels count from 1."""
    pictures, numbers = folder / f"{split}_X.bin", folder / f"{split}_y.bin"
    check_file(pictures)
    check_file(numbers)
    length = 3 * _STL_SIDE**2
    n, rest = divmod(pictures.stat().st_size, length)
    labels = np.fromfile(numbers, np.uint8).astype(np.int64) - 1
    if rest or not n or len(labels) != n or labels.min() < 0:
        raise InputError(
            f"{place(pictures)}: copy it and {numbers.name} again; {n * length + rest} bytes do "
            f"not match {len(labels)} labels (from 1), one for each picture of {length} bytes"
        )
    rows = np.memmap(pictures, np.uint8, "r", shape=(n, 3, _STL_SIDE, _STL_SIDE))
    return ImagePart(ArrayImages(np.ascontiguousarray(rows.transpose(0, 1, 3, 2))), labels)


def _tiny(folder: Path) -> ImageSet:
    """Return Tiny-ImageNet, whose training part is a folder of classes."""
    train = load_folder(folder / "train")
    number = {name: i for i, name in enumerate(train.class_names or ())}
    listed = folder / "val" / "val_annotations.txt"
    names, labels = [], []
    for line, text in lines(listed):
        if not text.strip():
            continue
        file, *rest = text.split("\t")
        label = number.get(rest[0]) if rest else None
        if label is None:
            raise InputError(
                f"{place(listed, line)}: copy it again; {quoted(text)} names no class of train/"
            )
        if Path(file).name != file:
            raise InputError(
                f"{place(listed, line)}: copy it again; {quoted(file)} leads out of the folder"
            )
        names.append(f"val/images/{file}")
        labels.append(label)
    test, skipped = readable_pictures(names, folder.joinpath, np.array(labels, np.int64), folder)
    left = (*(f"train/{name}" for name in train.skipped), *skipped)
    return ImageSet("tiny-imagenet", train.train, test, train.class_names, left)


def _flowers102(folder: Path) -> ImageSet:
    labels = _matlab(folder / "imagelabels.mat", "labels") - 1
    ids = {key: _matlab(folder / "setid.mat", key) - 1 for key in ("trnid", "valid", "tstid")}
    used = np.concatenate(list(ids.values()))
    if not all(map(len, ids.values())) or used.min() < 0 or used.max() >= len(labels):
        raise InputError(
            f"{place(folder)}: copy setid.mat and imagelabels.mat again; they do not belong "
            f"together ({len(labels)} labels, pictures up to {max(used, default=-1) + 1})"
        )
    train, test = np.concatenate([ids["trnid"], ids["valid"]]), ids["tstid"]
    parts = [_flowers(folder, places, labels) for places in (np.sort(train), np.sort(test))]
    names = tuple(str(i) for i in range(1, int(labels.max()) + 2))
    skipped = tuple(name for _, left in parts for name in left)
    return ImageSet("flowers102", parts[0][0], parts[1][0], names, skipped)


def _flowers(
    folder: Path, places: NDArray[np.int64], labels: NDArray[np.int64]
) -> tuple[ImagePart, tuple[str, ...]]:
    names = ["jpg/" + _FLOWERS.format(i + 1) for i in places.tolist()]
    return readable_pictures(names, folder.joinpath, labels[places], folder)


def _matlab(path: Path, name: str) -> NDArray[np.int64]:
    """Return the numbers that a MATLAB file has under a name, as one row."""
    with needs_extra("image", "scipy"):
        from scipy.io import loadmat
    try:
        if path.stat().st_size > _LARGEST_MATLAB:  # it may unpack to a thousand times its size
            raise ValueError("it is too large")
        return np.asarray(loadmat(path)[name], np.int64).ravel()
    except Exception as error:  # scipy raises many kinds of errors on damaged bytes
        raise InputError(
            f"{place(path)}: copy it again; it is not a MATLAB file with numbers called {name!r} "
            f"({quoted(str(error), 80)})"
        ) from error
