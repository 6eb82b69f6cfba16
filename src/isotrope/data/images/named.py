"""Reads local copies of known image sets (CIFAR, STL-10, ...), recognised by their files.

- CIFAR-10 and CIFAR-100, python version (``data_batch_1`` ..., or ``train``, ``test``, ``meta``):
  pickles, from which only arrays, texts, numbers, lists and dicts are read, so nothing is executed;
- STL-10, binary version: the 5,000 labelled training and 8,000 test pictures, not the unlabelled;
- Tiny-ImageNet: ``train/`` with 200 classes; ``val/`` with ``val_annotations.txt`` is the test
  part;
- Flowers102: ``jpg/``, ``imagelabels.mat``, ``setid.mat``; its train and validation parts are the
  training part.

The folder itself may be named, or the one that it was unpacked into.
"""

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from isotrope.core.documents import check_file
from isotrope.core.errors import InputError, MissingExtra, place
from isotrope.data.images.arrays import ArrayImages
from isotrope.data.images.folder import FolderFiles, load_folder, readable_pictures
from isotrope.data.images.records import RecognisedPart, RecognisedSet
from isotrope.data.lines import lines, quoted

_CIFAR_SIDE, _STL_SIDE = 32, 96
_FLOWERS = "image_{:05d}.jpg"
_LARGEST_MATLAB = 1 << 20  # bytes of a list of numbers of Flowers102; the real ones have 15,000


def find_named(folder: Path) -> Callable[[], RecognisedSet] | None:
    """Return the loader of a folder, or None if it is not a copy of a known set."""
    layouts: tuple[tuple[str, Sequence[str], Callable[[Path], RecognisedSet]], ...] = (
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
                f"{place(folder)}: holds several known sets of pictures "
                f"({', '.join(load.args[0].name for load in loaders)}); give one of these folders"
            )
        if loaders:
            return loaders[0]
    return None


_InPython: Any = pickle._Unpickler


class _Plain(_InPython):  # type: ignore[misc]
    """Reads arrays of bytes and plain values; every other name in a pickle is refused.

    The unpickler in Python, not the one in C: that one makes room for as many entries as a pickle
    says it has. These pickles have few.

    NumPy's own classes are not handed out: with ``ndarray`` a pickle can lay an array of objects
    over bytes of its choice, which are then taken for pointers.
    """

    dispatch: ClassVar[dict[int, Any]] = {
        code: load
        for code, load in _InPython.dispatch.items()
        if bytes([code]) not in (pickle.EMPTY_SET, pickle.FROZENSET, pickle.ADDITEMS)
    }

    def load_setitems(self, first: int = 0, code: bytes = pickle.SETITEMS) -> None:
        """Fill a dict with text keys; nested keys could take forever to hash."""
        if not all(isinstance(key, str | bytes | int) for key in self.stack[first::2]):
            raise pickle.UnpicklingError("a key that is not text")
        _InPython.dispatch[code[0]](self)

    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.SETITEM[0]] = partial(load_setitems, first=-2, code=pickle.SETITEM)
    dispatch[pickle.DICT[0]] = partial(load_setitems, code=pickle.DICT)

    def find_class(self, module: str, name: str) -> object:
        """Return a safe substitute for one of the four names that a pickled array needs."""
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return {"ndarray": _Bytes, "dtype": _Kind}[name]
        if module in {"numpy.core.multiarray", "numpy._core.multiarray"} and (
            name == "_reconstruct"
        ):
            return _empty
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes for Python 2
            return _latin
        raise pickle.UnpicklingError(f"asks for {module}.{name}")


class _Kind:
    """A pickled dtype: its code."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass


class _Bytes:
    """A pickled array; one that does not hold bytes stays None."""

    array: NDArray[np.uint8] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        if kind.code == "u1":
            content = raw.encode("latin1") if isinstance(raw, str) else raw
            values = np.frombuffer(content, np.uint8)
            self.array = values.reshape(shape, order="F" if fortran else "C")


def _empty(kind: type, shape: Sequence[int], code: object) -> _Bytes:
    """Return what the state of a pickled array is put into."""
    return _Bytes()


def _latin(text: str, encoding: str) -> bytes:
    return text.encode("latin1")


def _unpickled(path: Path) -> dict[str, Any]:
    check_file(path)
    try:
        with path.open("rb") as handle:
            content = _load(handle)
    except Exception as error:  # damaged bytes make an unpickler fail in any way
        raise InputError(
            f"{place(path)}: not a pickle of CIFAR ({quoted(str(error), 80)}); nothing else is "
            "read from a pickle than arrays, texts and numbers"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{place(path)}: not a pickle of CIFAR (a {type(content).__name__})")
    return {
        _text(key): value.array if isinstance(value, _Bytes) else value
        for key, value in content.items()
        if isinstance(key, bytes | str)
    }


def _load(handle: IO[bytes]) -> object:
    return _Plain(handle, encoding="latin1").load()  # texts and arrays of Python 2


def _cifar10(folder: Path) -> RecognisedSet:
    files = [path for i in range(1, 6) if (path := folder / f"data_batch_{i}").is_file()]
    return _cifar("cifar10", files, folder / "test_batch", folder / "batches.meta", "label")


def _cifar100(folder: Path) -> RecognisedSet:
    return _cifar("cifar100", [folder / "train"], folder / "test", folder / "meta", "fine_label")


def _cifar(name: str, files: list[Path], test: Path, meta: Path, key: str) -> RecognisedSet:
    names = _unpickled(meta).get(f"{key}_names") if meta.is_file() else None
    return RecognisedSet(
        name,
        _cifar_part(files, f"{key}s"),
        _cifar_part([test], f"{key}s"),
        tuple(map(_text, names)) if isinstance(names, list) else None,
    )


def _text(name: object) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _cifar_part(files: list[Path], key: str) -> RecognisedPart:
    arrays, labels = [], []
    for path in files:
        batch = _unpickled(path)
        data, numbers = batch.get("data"), batch.get(key)
        if not (
            isinstance(data, np.ndarray)
            and data.dtype == np.uint8
            and data.shape[1:] == (3 * _CIFAR_SIDE**2,)
            and isinstance(numbers, list)
            and len(numbers) == len(data)
            and all(isinstance(number, int) and 0 <= number < 100 for number in numbers)
        ):
            raise InputError(
                f"{place(path)}: no pictures of 3,072 bytes under 'data' with as many {key!r}, "
                "numbers below 100"
            )
        arrays.append(data.reshape(-1, 3, _CIFAR_SIDE, _CIFAR_SIDE))
        labels.append(np.array(numbers, np.int64))
    return RecognisedPart(ArrayImages(np.concatenate(arrays)), np.concatenate(labels))


def _stl10(folder: Path) -> RecognisedSet:
    listed = folder / "class_names.txt"
    names = tuple(text.strip() for _, text in lines(listed)) if listed.is_file() else None
    return RecognisedSet("stl10", _stl_part(folder, "train"), _stl_part(folder, "test"), names)


def _stl_part(folder: Path, split: str) -> RecognisedPart:
    """Return a split: pictures column by column, labels from 1."""
    pictures, numbers = folder / f"{split}_X.bin", folder / f"{split}_y.bin"
    check_file(pictures)
    check_file(numbers)
    length = 3 * _STL_SIDE**2
    n, rest = divmod(pictures.stat().st_size, length)
    labels = np.fromfile(numbers, np.uint8).astype(np.int64) - 1
    if rest or not n or len(labels) != n or labels.min() < 0:
        raise InputError(
            f"{place(pictures)}: {n * length + rest} bytes and {len(labels)} labels; each picture "
            f"has {length} bytes and a label from 1"
        )
    rows = np.memmap(pictures, np.uint8, "r", shape=(n, 3, _STL_SIDE, _STL_SIDE))
    return RecognisedPart(ArrayImages(np.ascontiguousarray(rows.transpose(0, 1, 3, 2))), labels)


def _tiny(folder: Path) -> RecognisedSet:
    """Return Tiny-ImageNet: the training part is a folder of classes."""
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
                f"{place(listed, line)}: {quoted(text)} names no class of train/; copy it again"
            )
        if Path(file).name != file:
            raise InputError(
                f"{place(listed, line)}: {quoted(file)} leads out of the folder; copy it again"
            )
        names.append(f"val/images/{file}")
        labels.append(label)
    test, skipped = readable_pictures(
        FolderFiles(folder, tuple(names)), np.array(labels, np.int64), folder
    )
    left = (*(f"train/{name}" for name in train.skipped), *skipped)
    return RecognisedSet("tiny-imagenet", train.train, test, train.class_names, left)


def _flowers102(folder: Path) -> RecognisedSet:
    labels = _matlab(folder / "imagelabels.mat", "labels") - 1
    ids = {key: _matlab(folder / "setid.mat", key) - 1 for key in ("trnid", "valid", "tstid")}
    used = np.concatenate(list(ids.values()))
    if not all(map(len, ids.values())) or used.min() < 0 or used.max() >= len(labels):
        raise InputError(
            f"{place(folder)}: setid.mat and imagelabels.mat do not belong together "
            f"({len(labels)} labels, pictures up to {max(used, default=-1) + 1}); copy both again"
        )
    train, test = np.concatenate([ids["trnid"], ids["valid"]]), ids["tstid"]
    parts = [_flowers(folder, places, labels) for places in (np.sort(train), np.sort(test))]
    names = tuple(str(i) for i in range(1, int(labels.max()) + 2))
    skipped = tuple(name for _, left in parts for name in left)
    return RecognisedSet("flowers102", parts[0][0], parts[1][0], names, skipped)


def _flowers(
    folder: Path, places: NDArray[np.int64], labels: NDArray[np.int64]
) -> tuple[RecognisedPart, tuple[str, ...]]:
    names = tuple("jpg/" + _FLOWERS.format(i + 1) for i in places.tolist())
    return readable_pictures(FolderFiles(folder, names), labels[places], folder)


def _matlab(path: Path, name: str) -> NDArray[np.int64]:
    """Return one row of numbers of a MATLAB file."""
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise MissingExtra("scipy", extra="image") from error
    try:
        if path.stat().st_size > _LARGEST_MATLAB:  # it may be compressed a thousandfold
            raise ValueError("it is too large")
        return np.asarray(loadmat(path)[name], np.int64).ravel()
    except Exception as error:  # damaged bytes make a reader fail in any way
        raise InputError(
            f"{place(path)}: no numbers called {name!r} in a MATLAB file "
            f"({quoted(str(error), 80)}); copy it again"
        ) from error
