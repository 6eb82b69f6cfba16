"""Writes files and folders completely or not at all, and only in the requested place.

A reader sees the old or the new content, never a mixture (:func:`atomic_replace`). All files that a
command writes appear together (:func:`replace_together`). A file to which lines are added is never
opened through a link (:func:`open_own`).
"""

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from isotrope.core.errors import InputError

_NAMED = 60  # leading characters of a file's name that the name of its temporary folder contains
_ROOM = re.compile(r"\.(.+)\.[a-z0-9_]{8}")  # name of a temporary folder, as tempfile makes it
_LINK = "is a link or a device; remove it, because isotrope writes only into regular files"


def file_digest(path: Path, size: int = 8) -> str:
    """Return the BLAKE2b digest of a file (``size`` bytes) as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=size)).hexdigest()


def sync(path: Path) -> None:
    """Flush a file, or every file below a folder, to the disk."""
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            # Windows flushes no file that is opened only for reading
            with file.open("r+b" if os.access(file, os.W_OK) else "rb") as handle:
                os.fsync(handle.fileno())


def from_home(path: str) -> str:
    """Replace a leading ``~`` by the home folder; a shell does not do it in ``--output=~/runs``."""
    with suppress(RuntimeError):  # raised for ~NAME if no user has that name
        return str(Path(path).expanduser()) if path.startswith("~") else path
    return path


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists and can be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _swap(new: Path, path: Path, aside: Path) -> None:
    """Rename ``new`` to ``path``; move an existing folder aside, and back if this fails."""
    if not path.is_dir() or (path.is_symlink() and not new.is_dir()):
        new.replace(path)
        return
    path.rename(aside)
    try:
        new.replace(path)
    except BaseException:
        aside.rename(path)
        raise


@contextmanager
def os_errors_as_input_errors(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` of the block into an :class:`InputError` that names ``path``."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = f"{'free some space or ' if full else ''}choose another place"
        raise InputError(f"cannot write {path}: {why}; {remedy}") from error


@contextmanager
def _room(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; the caller moves the complete content there."""
    with os_errors_as_input_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(prefix=f".{path.name[:_NAMED]}.", dir=path.parent))
    try:
        with os_errors_as_input_errors(path):
            yield room
    finally:
        remove(room)


@contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """Yield a temporary path, whose content replaces ``path`` at the end of the block.

    The caller creates a file or a folder at the temporary path. A folder that exists at ``path`` is
    replaced as a whole. If the block raises, the temporary path is removed and ``path`` is kept.
    """
    path = Path(path)
    with _room(path) as room:
        _check_regular(path)
        yield (temporary := room / path.name)
        there = path.exists() and not path.is_symlink() and temporary.exists()
        if there and path.is_dir() != temporary.is_dir():
            kinds = ("folder", "file") if path.is_dir() else ("file", "folder")
            raise InputError(f"{path} is a {kinds[0]}, not a {kinds[1]}; choose another name")
        sync(temporary)
        _swap(temporary, path, room / "previous")


def _check_regular(path: Path) -> None:
    """Raise an error if a pipe or a device is at ``path``, which a file must not replace."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"choose another place: {path} is a pipe or a device, not a regular file")


def write_text(path: Path, text: str) -> None:
    """Write a file of UTF-8 text, completely or not at all."""
    with atomic_replace(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def open_own(path: Path, mode: str, **how: Any) -> IO[Any]:
    """Open a file for writing, as ``open`` does, but raise an error for links and devices."""

    def regular(name: str, flags: int) -> int:
        careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            handle = os.open(name, (flags & ~os.O_TRUNC) | careful, 0o666)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):
                raise
            raise InputError(f"{path} {_LINK}") from error
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            os.close(handle)
            raise InputError(f"{path} {_LINK}")
        if flags & os.O_TRUNC:
            os.ftruncate(handle, 0)
        return handle

    return open(path, mode, opener=regular, **how)


def check_outputs(folder: Path, names: Iterable[str], inputs: Iterable[object] = ()) -> None:
    """Raise an error if a file ``folder / name`` cannot be written, or is one of ``inputs``."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder")
    read = [Path(name).resolve() for name in inputs if isinstance(name, str | Path)]
    for path in (folder / name for name in names):
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a file; remove it or choose another place")
        _check_regular(path)
        if path.is_symlink():
            raise InputError(f"choose another place: {path} is a link, which is never replaced")
        if path.exists() and any(path.resolve().is_relative_to(place) for place in read):
            raise InputError(f"{path} is an input and would be overwritten; choose another output")


@contextmanager
def replace_together(
    folder: Path, names: Sequence[str], instead_of: Iterable[str] = ()
) -> Iterator[Path]:
    """Yield an empty folder; at the end of the block, move its files ``names`` into ``folder``.

    Before the move, files of ``folder`` with these names, or with names in ``instead_of``, are
    removed, so files of two commands are never mixed. If the block raises, nothing changes.
    """
    check_outputs(folder, names)
    with _room(folder / names[0]) as room:
        (new := room / names[0]).mkdir()
        (before := room / "before").mkdir()
        yield new
        sync(new)
        try:
            for name in {*names, *instead_of}:
                if os.path.lexists(folder / name) and not (folder / name).is_dir():
                    (folder / name).rename(before / name)
            for name in names:
                (new / name).rename(folder / name)
        except BaseException:
            for name in names:
                if not (new / name).exists():
                    remove(folder / name)
            for path in before.iterdir():
                path.replace(folder / path.name)
            raise


def write_all(
    folder: Path, contents: Mapping[str, bytes], instead_of: Iterable[str] = ()
) -> list[Path]:
    """Write ``contents`` (bytes by file name) into a folder, all or none; return the paths."""
    with replace_together(folder, list(contents), instead_of) as new:
        for name, content in contents.items():
            (new / name).write_bytes(content)
    return [folder / name for name in contents]


def stale_temporary_folders(folder: Path) -> list[Path]:
    """Return the temporary folders of :func:`atomic_replace`: in use, or left after a crash."""
    stale = []
    for path in folder.iterdir():
        if (name := _ROOM.fullmatch(path.name)) and path.is_dir():
            with suppress(FileNotFoundError):  # it has just been removed
                if all(inside[:_NAMED] == name[1] for inside in _own(path)):
                    stale.append(path)
    return sorted(stale)


def _own(room: Path) -> list[str]:
    """Return the names of new content in a temporary folder."""
    return [path.name for path in room.iterdir() if path.name not in ("previous", "before")]


def tidy(folder: Path) -> None:
    """Remove the temporary files of killed processes from a folder that no other process uses.

    If a process was killed while it replaced a folder, the old folder is restored.
    """
    if not folder.is_dir():
        return
    for room in stale_temporary_folders(folder):
        name = next(iter(_own(room)), room.name[1:-9])
        if (room / "previous").exists() and not (folder / name).exists():
            # if the new folder exists it is complete: it was synced before the old one was moved
            (room / name if (room / name).exists() else room / "previous").rename(folder / name)
        remove(room)
