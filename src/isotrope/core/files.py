"""Writing files and folders whole: a reader sees the old content or the new, never half of it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isotrope.core.errors import InputError

__all__ = ["remove", "replacing", "writable"]


def _sync(path: Path) -> None:
    """Flush a file, or every file below a folder, to the disk."""
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there and can be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _swap(new: Path, path: Path, aside: Path) -> None:
    """Rename ``new`` to ``path``; a folder that stands there goes aside, and back on failure."""
    if not path.is_dir() or path.is_symlink():
        new.replace(path)
        return
    path.rename(aside)
    try:
        new.replace(path)
    except BaseException:
        aside.rename(path)
        raise


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn an operating-system error while writing ``path`` into an :class:`InputError`.

    Raises:
        InputError: the disk is full, the folder is read-only, missing or not a folder.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {_reason(error)}; free some space or choose another place"
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is synced and renamed over it.

    The caller creates a file or a folder at the temporary path. A folder that stands at ``path``
    is replaced as a whole. If the body raises, the temporary path is removed and ``path`` is
    left as it was.

    Raises:
        InputError: the disk is full, or the place cannot be written.
    """
    path = Path(path)
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    temporary = room / path.name
    try:
        with writable(path):
            yield temporary
            there = path.exists() and not path.is_symlink() and temporary.exists()
            if there and path.is_dir() != temporary.is_dir():
                kinds = ("folder", "file") if path.is_dir() else ("file", "folder")
                raise InputError(f"{path} is a {kinds[0]}, not a {kinds[1]}; choose another name")
            _sync(temporary)
            _swap(temporary, path, room / "previous")
    finally:
        remove(room)
