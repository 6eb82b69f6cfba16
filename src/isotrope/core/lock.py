"""Locks a folder against other processes, at most until the process that locked it ends.

The lock is a POSIX record lock on the file ``.lock`` in the folder. A record lock belongs to one
process, so workers that outlive a killed process do not keep it. With ``--devices``, one half of
the lock belongs to the process that starts the training processes, and the other half to the
training process that writes. The folder is locked until both processes end.
"""

import errno
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal

from isotrope.core.errors import InputError
from isotrope.core.files import open_own, os_errors_as_input_errors, remove, stale_temporary_folders
from isotrope.core.run_folder import IN_MEMORY, LOCK

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None  # type: ignore[assignment]

Role = Literal["only", "starter", "started"]

# first byte and length
_HALVES: dict[Role, tuple[int, int]] = {"only": (0, 2), "starter": (0, 2), "started": (1, 1)}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}

# A process can take its own record locks twice, and loses them when it closes any handle of the
# file. Folders that this process has locked are therefore listed here, and their file is not opened
# again. A forked process has locked nothing, so the process number is part of the key.
_held: dict[tuple[int, Path], IO[str]] = {}
_looking = threading.Lock()


@contextmanager
def exclusive_lock(
    folder: Path, doing: str, hint: str = "", *, role: Role = "only"
) -> Iterator[None]:
    """Keep other processes out of ``folder`` while the block runs.

    If the file system has no locks, a warning is printed and the folder is not locked.

    Args:
        folder: The folder to lock. A missing folder is created, and removed at the end if empty.
        doing: Work in the folder, such as ``"training in DIR"``; the error contains this text.
        hint: Text at the end of this error.
        role: If ``"starter"``, one process with the role ``"started"`` can lock the folder too.
    """
    folder = _absolute(folder)
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        with _looking:
            handle = _held[os.getpid(), folder] = _acquire(folder, role)
        try:
            yield
        finally:
            with _looking, handle:
                del _held[os.getpid(), folder]
                ours = role != "started" and _is_ours(folder, handle)
                if fcntl is None:  # Windows removes no open file; elsewhere the lock must last
                    handle.close()
                if ours:
                    (folder / LOCK).unlink(missing_ok=True)
    except _Busy as who:
        raise InputError(
            f"{who.args[0]} is {doing}{who.args[1]}; wait for it, stop it, or choose another "
            f"`--output`{hint}"
        ) from None
    finally:
        with suppress(OSError):  # raised by the first folder that is not empty
            for place in made:
                place.rmdir()


def _absolute(folder: Path) -> Path:
    """Return the absolute path without resolving links, whose target may not exist yet."""
    return Path(os.path.abspath(folder))  # noqa: PTH100


def ensure_not_replaced(folder: Path) -> None:
    """Raise an error if a folder that this process has locked was removed or replaced."""
    folder = _absolute(folder)
    handle = _held.get((os.getpid(), folder))
    if handle is not None and not _is_ours(folder, handle):
        raise InputError(f"start again: the folder {folder} was removed or replaced during the run")


def is_effectively_empty(folder: Path) -> bool:
    """Return True if a folder is missing, or has only what an interrupted first write left.

    Files with data that a caller passed in memory do not count: they are written before the run.
    """
    if not folder.exists():
        return True
    names = {path.name for path in folder.iterdir() if not path.name.startswith(IN_MEMORY)}
    return names <= {LOCK, *(path.name for path in stale_temporary_folders(folder))}


def clear(folder: Path) -> None:
    """Remove the content of a folder, except the lock, as far as possible; raise no error."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name != LOCK:
                remove(path)


def _is_ours(folder: Path, handle: IO[str]) -> bool:
    try:
        return os.path.samestat((folder / LOCK).stat(), os.fstat(handle.fileno()))
    except OSError:
        return False


class _Busy(Exception):
    """Another process has locked the folder."""


def _acquire(folder: Path, role: Role) -> IO[str]:
    """Return the open file, locked."""
    handles = [handle for (pid, _), handle in _held.items() if pid == os.getpid()]
    if any(_is_ours(folder, handle) for handle in handles):
        raise _Busy("an earlier call of this process", "")
    gone: OSError = FileNotFoundError(errno.ENOENT, "another process keeps removing it")
    with os_errors_as_input_errors(folder / LOCK):
        for _ in range(100):  # its last owner may be removing file and folder just now
            try:
                folder.mkdir(parents=True, exist_ok=True)
                handle = open_own(folder / LOCK, "a+", encoding="utf-8")
            except (FileNotFoundError, FileExistsError) as error:  # mkdir can raise either
                gone = error
                continue
            try:
                _lock(handle, folder, role)
                if _is_ours(folder, handle):
                    return handle
            except BaseException:
                handle.close()
                raise
            handle.close()
        raise gone


def _lock(handle: IO[str], folder: Path, role: Role) -> None:
    start, length = _HALVES[role]
    try:
        if fcntl is None:
            raise OSError(errno.ENOSYS, "this system has no file locks")
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        if role == "starter":
            fcntl.lockf(handle, fcntl.LOCK_UN, 1, 1)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            handle.seek(0)
            who = ", ".join(handle.read(300).splitlines())
            raise _Busy("another process", f" ({who or 'its number is not known'})") from None
        if error.errno not in _NO_LOCKS:
            raise
        if role != "started":
            print(
                f"isotrope: warning: {folder}: make sure that no other process writes into this "
                f"folder, because it cannot be locked ({error.strerror})",
                file=sys.stderr,
            )
    if role != "started":
        handle.truncate(0)
    handle.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    handle.flush()
