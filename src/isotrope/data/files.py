"""Finds the files that a user names, also those in folders; recognises splits by file names."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from isotrope.core.errors import InputError, place
from isotrope.core.trust import check_named
from isotrope.data.lines import is_folder
from isotrope.data.table import SUFFIXES, check_kind, is_hub_name, is_saved, plain_suffix

TRAIN = "train"
# the same words as in the library datasets of Hugging Face
_WORDS = {
    TRAIN: ("train", "training"),
    "test": ("test", "testing", "eval", "evaluation"),
    "validation": ("validation", "valid", "dev", "val"),
}


def named_split(path: Path, folder: Path) -> str | None:
    """Return the split that a path names: ``train``, ``test``, ``validation``; otherwise None."""
    words = set(re.split(r"[\W\d_]+", path.relative_to(folder).as_posix().lower()))
    return next((split for split, names in _WORDS.items() if words & set(names)), None)


def files_of(paths: Iterable[Path | str]) -> tuple[list[Path], list[Path]]:
    """Return the files to read, and the skipped files of folders.

    Folders are searched to any depth, also through symbolic links, each folder once. Their files
    are sorted. Hidden and empty files are ignored. A ``save_to_disk`` folder counts as one file.
    """
    files: list[Path] = []
    others: list[Path] = []
    for path in map(Path, paths):
        check_named(path)
        if is_hub_name(path) or is_saved(path):
            files.append(path)
        elif is_folder(path):
            read, left = _folder_files(path)
            files += read
            others += left
        else:
            check_kind(path)
            files.append(path)
    return files, others


def _folder_files(folder: Path) -> tuple[list[Path], list[Path]]:
    visited: set[tuple[int, int]] = set()
    files: list[Path] = []
    others: list[Path] = []
    for root, folders, names in os.walk(folder, followlinks=True, onerror=_unreadable):
        status = Path(root).stat()
        if (status.st_dev, status.st_ino) in visited:  # a loop of symbolic links
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(root, name) for name in names if not name.startswith(".")):
            # a broken link is kept: reading it raises an error that names it
            if plain_suffix(path) not in SUFFIXES:
                others.append(path)
            elif not (path.is_file() and not path.stat().st_size):
                files.append(path)
    if not files:
        raise InputError(
            f"{place(folder)}: no file with text in this folder; put in a file that ends in "
            f"{', '.join(SUFFIXES)}"
        )
    read = _to_train_on(files, folder)
    others += [path for path in files if path not in read]
    return sorted(read, key=lambda path: path.parts), others


def _to_train_on(files: Sequence[Path], folder: Path) -> list[Path]:
    """Leave out test and validation files if there is a file for training."""
    splits = {path: named_split(path, folder) for path in files}
    if TRAIN not in splits.values():
        return list(files)
    return [path for path in files if splits[path] in (None, TRAIN)]


def _unreadable(error: OSError) -> None:
    raise InputError(f"{place(Path(error.filename))}: cannot be read ({error.strerror})") from error
