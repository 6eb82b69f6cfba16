"""Reads pictures from a folder, which may have one subfolder for each class.

A subfolder ``train/`` or ``training/`` (in upper or lower case) is the training part. The test part
is ``test/``, ``testing/``, ``validation/``, ``valid/`` or ``val/``: the first that has a subfolder
for each class, or else the first that has pictures. Pictures at any depth below the subfolder of a
class belong to this class. Hidden files are ignored. Links are followed, except a link to a folder
that contains the link. If all pictures are below one folder, this folder is read in place of the
folder around it.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from isotrope.core.errors import InputError, nearest, place, unreadable
from isotrope.core.pictures import PHOTOS, SUFFIXES
from isotrope.data.images.encoded import readable_pictures
from isotrope.data.images.records import ImagePart, ImageSet
from isotrope.data.lines import is_folder, quoted

_TRAIN = ("train", "training")
_TEST = ("test", "testing", "validation", "valid", "val")


def load_folder(folder: Path, classes: Sequence[str] | None = None) -> ImageSet:
    """Open a folder of pictures.

    Args:
        folder: Folder that contains pictures, a folder for each class, or ``train/`` and ``test/``.
        classes: Names of the classes to use; None for all. Words after each name are ignored.
    """
    root = _inner(folder)
    train_folder = next(_called(root, _TRAIN), root)
    train = _FolderSplit(train_folder)
    if not train.names:
        raise InputError(
            f"{place(train_folder)}: put pictures into this folder; {_endings(train_folder)}. For "
            "a known set, such as CIFAR-10, download the parquet files from the Hugging Face hub"
        )
    splits = [train]
    if train_folder != root:
        tests = [split for path in _called(root, _TEST) if (split := _FolderSplit(path)).names]
        if not tests:
            _check_alone(root, train_folder)
        splits += sorted(tests, key=lambda split: not split.class_names)[:1]  # with classes, if any
    if classes is not None:
        known = set(train.class_names)
        names = [line if line in known else (line.split() or [line])[0] for line in classes]
        for split in splits:
            split.only(names)
    class_names = tuple(sorted({name for split in splits for name in split.class_names}))
    parts = [split.measured(root, class_names) for split in splits]
    skipped = tuple(name for _, left in parts for name in left)
    test = parts[1][0] if len(parts) > 1 else None
    return ImageSet(folder.resolve().name, parts[0][0], test, class_names or None, skipped)


def _inner(folder: Path) -> Path:
    """Go down while all pictures are in one subfolder; return the first folder with more."""
    seen: set[str] = set()
    while (real := os.path.realpath(folder)) not in seen:  # a link may lead back
        seen.add(real)
        entries = list(islice(filter(_has_picture, _entries(folder)), 2))
        if len(entries) != 1 or _is_picture(entries[0]) or entries[0].name.lower() in _TRAIN:
            break
        folder = Path(entries[0].path)
    return folder


def _called(root: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield the folders with these names, in upper or lower case, in the order of ``names``."""
    for name in names:
        yield from (
            Path(entry.path)
            for entry in sorted(_entries(root), key=lambda entry: entry.name != name)
            if entry.name.lower() == name and is_folder(entry)
        )


def _check_alone(root: Path, train: Path) -> None:
    """Refuse a training part without a test part if there are other folders with pictures."""
    for entry in sorted(_entries(root), key=lambda entry: entry.name):
        path = Path(entry.path)
        if path != train and is_folder(entry) and next(below(path), None):
            raise InputError(
                f"{place(root)}: if {entry.name}/ is the test part, rename it to {_TEST[0]}/; if "
                f"{train.name}/ is a class, rename it, because this name means the training part; "
                f"to train on {train.name}/ only, give {quoted(str(train))}"
            )


class _FolderSplit:
    """The names of the pictures of one split, and the names of their classes (folders)."""

    def __init__(self, folder: Path) -> None:
        self.folder = _inner(folder)
        self.names = sorted(below(self.folder))
        tops = [_top(name) for name in self.names]
        self.class_names = sorted(set(tops))
        if len(self.class_names) > 1 and self.class_names[0] == "":
            raise InputError(
                f"{place(folder)}: put every picture into the folder of its class, or all into one "
                f"folder; this folder has {len(self.class_names) - 1} subfolder(s) with pictures, "
                f"and {tops.count('')} picture(s) outside them"
            )
        if len(self.class_names) == 1:  # one folder is not a label
            self.class_names = []

    def only(self, classes: Sequence[str]) -> None:
        """Keep only the pictures of these classes."""
        missing = [name for name in classes if name not in self.class_names]
        if missing:
            raise InputError(
                f"{place(self.folder)}: correct the class "
                f"{missing[0]!r}{nearest(missing[0], self.class_names)}, or add its folder; "
                f"no folder exists for {len(missing)} of the {len(classes)} requested classes"
            )
        wanted = set(classes)
        self.class_names = sorted(wanted)
        self.names = [name for name in self.names if _top(name) in wanted]

    def measured(self, root: Path, class_names: Iterable[str]) -> tuple[ImagePart, tuple[str, ...]]:
        """Return the pictures and the skipped files; their names are paths from ``root``."""
        start = self.folder.relative_to(root).as_posix()
        paths = tuple(name if start == "." else f"{start}/{name}" for name in self.names)
        labels = None
        if self.class_names:
            number = {name: i for i, name in enumerate(class_names)}
            labels = np.array([number[_top(name)] for name in self.names], np.int64)
        return readable_pictures(paths, root.joinpath, labels, self.folder)


def _top(name: str) -> str:
    """Return the first folder of a path; an empty text if it has none."""
    return name.rpartition("/")[0].partition("/")[0]


def _endings(folder: Path) -> str:
    """Return a phrase on the files that are needed, and the endings of the files in a folder."""
    endings = {path.suffix.lower() or path.name for path in folder.rglob("*") if path.is_file()}
    listed = ", ".join(sorted(endings)[:5])
    found = f"the folder has only {listed}" if listed else "the folder has no files"
    return f"their names must end in {', '.join(SUFFIXES)}, but {found}"


def below(folder: Path, prefix: str = "", above: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the paths of all pictures below a folder, relative to that folder, with ``/``."""
    real = os.path.realpath(folder)
    if real in above:  # a link back into a folder that contains it
        return
    for entry in _entries(folder):
        if is_folder(entry):
            yield from below(Path(entry.path), f"{prefix}{entry.name}/", above | {real})
        elif _is_picture(entry):
            yield prefix + entry.name


def _entries(folder: Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise unreadable(folder, error) from error


def _has_picture(entry: "os.DirEntry[str]") -> bool:
    """Return whether an entry of a folder is a picture, or a folder with pictures below it."""
    return any(below(Path(entry.path))) if is_folder(entry) else _is_picture(entry)


def _is_picture(entry: "os.DirEntry[str]") -> bool:
    return entry.name.lower().endswith(PHOTOS) and not is_folder(entry)
