"""Writes files and folders atomically: a reader sees the old content or the new, never a part."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from isotrope.core.errors import InputError

__all__ = [
    "atomic_replace",
    "from_home",
    "os_errors_as_input_errors",
    "remove",
    "stale_temporary_folders",
    "tidy",
    "write_all",
]

_ROOM = re.compile(r"\.(.+)\.[a-z0-9_]{8}")  # as tempfile names it


def _sync(path: Path) -> None:
    """Flush a file, or every file below a folder, to the disk."""
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())


def from_home(path: str) -> str:
    """Put the home folder for a leading ``~``, which a shell leaves in ``--output=~/runs``."""
    with suppress(RuntimeError):  # of ~NAME, where nobody has that name
        return str(Path(path).expanduser()) if path.startswith("~") else path
    return path


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists and can be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _swap(new: Path, path: Path, aside: Path) -> None:
    """Rename ``new`` to ``path``; an existing folder is moved aside, and back on failure."""
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
def os_errors_as_input_errors(path: Path) -> Iterator[None]:
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
def atomic_replace(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is synced and renamed over it.

    The caller creates a file or a folder at the temporary path. A folder that exists at ``path``
    is replaced as a whole. If the body raises, the temporary path is removed and ``path`` is
    left as it was.

    Raises:
        InputError: the disk is full, or the place cannot be written.
    """
    path = Path(path)
    with os_errors_as_input_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    temporary = room / path.name
    try:
        with os_errors_as_input_errors(path):
            yield temporary
            there = path.exists() and not path.is_symlink() and temporary.exists()
            if there and path.is_dir() != temporary.is_dir():
                kinds = ("folder", "file") if path.is_dir() else ("file", "folder")
                raise InputError(f"{path} is a {kinds[0]}, not a {kinds[1]}; choose another name")
            _sync(temporary)
            _swap(temporary, path, room / "previous")
    finally:
        remove(room)


def write_all(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write files into a folder, all or none; return their paths.

    Raises:
        InputError: one of them is a folder, or cannot be written.
    """
    files = [folder / name for name in contents]
    for path in files:
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a file; remove it or choose another folder")
    with ExitStack() as stack:
        for path, content in zip(files, contents.values(), strict=True):
            stack.enter_context(atomic_replace(path)).write_bytes(content)
    return files


def stale_temporary_folders(folder: Path) -> list[Path]:
    """Return temporary folders of :func:`atomic_replace` whose process is at work or was killed."""
    stale = []
    for path in folder.iterdir():
        if (name := _ROOM.fullmatch(path.name)) and path.is_dir():
            with suppress(FileNotFoundError):  # it has just been removed
                if {inside.name for inside in path.iterdir()} <= {name[1], "previous"}:
                    stale.append(path)
    return sorted(stale)


def tidy(folder: Path) -> None:
    """Remove the temporary files of killed processes from a folder that no other process uses.

    A folder that was being exchanged when its process was killed, and so is missing, is put back.
    """
    if not folder.is_dir():
        return
    for room in stale_temporary_folders(folder):
        name = room.name[1:-9]
        if (room / "previous").exists() and not (folder / name).exists():
            # the new one is whole: it is synced before the old one goes aside
            (room / name if (room / name).exists() else room / "previous").rename(folder / name)
        remove(room)
