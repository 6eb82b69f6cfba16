"""What goes wrong in a trial: its calls that change files are numbered, and one is interfered with.

Calls that Python makes known (opening for writing, renaming, linking, removing, folders) are seen
by an audit hook; what is written to a file that Python opened, and fsync, by functions put in
place of Python's. What libraries write natively is reached by the limit of a file's size.
"""

import builtins
import errno
import io
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Call = tuple[str, str]
"""What was done, and to which path."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.rename",
    "os.link",
    "os.symlink",
    "os.mkdir",
    "os.remove",
    "os.rmdir",
    "os.truncate",
}
NEED_NO_SPACE = {"os.rename", "os.remove", "os.rmdir"}
"""Calls that a full disk does not hinder."""


@dataclass(frozen=True)
class Fault:
    """What happens at which call.

    Attributes:
        at: number of the call, from 1; 0: nothing ever happens, the calls are only told.
        do: ``kill`` ends the process as kill -9 does, in a write after half of it; ``fail`` makes
            the call fail, in a write after half of it; ``limit`` lets no file grow beyond ``size``
            from then on; ``die`` too, and the process is killed in the write that would.
        error: number of the error of ``fail``.
        stays: whether the calls that follow fail as well, as on a full disk or one that has
            become read-only; files no longer grow then.
        size: in bytes, of ``limit`` and ``die``.
    """

    at: int = 0
    do: Literal["kill", "fail", "limit", "die"] = "kill"
    error: int = 0
    stays: bool = False
    size: int = 0


class Calls:
    """The calls of this process from now on; cannot be taken back."""

    def __init__(self, fault: Fault) -> None:
        import sys

        self.fault = fault
        self.found: list[Call] = []
        self._failing = False
        self._opens, self._syncs = io.open, os.fsync
        if fault.do == "die":  # Python ignores it; from the start: Lightning puts back what it met
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.addaudithook(self._seen)
        builtins.open = io.open = self._open
        os.fsync = self._fsync  # type: ignore[assignment]

    def note(self, what: str, path: str, half: Callable[[], object] | None = None) -> None:
        """Number a call that is about to be made, and do what is asked for.

        Args:
            what: kind of call.
            path: it is about.
            half: does half of it.

        Raises:
            OSError: the call shall fail.
        """
        if path.startswith(("/dev/", "/proc/")):
            return
        self.found.append((what, path))
        fault = self.fault
        if len(self.found) == fault.at:
            if fault.do in ("limit", "die"):
                _limit(fault.size)
                return
            if half is not None:
                half()
            if fault.do == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            self._failing = fault.stays
            if fault.stays:
                _limit(0)
        elif not self._failing or (fault.error == errno.ENOSPC and what in NEED_NO_SPACE):
            return
        raise OSError(fault.error, os.strerror(fault.error), path)

    def _seen(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = given
            if flags & _WRITING and isinstance(path, (str, bytes, os.PathLike)):
                self.note("open", os.fsdecode(path))
        elif event in _CHANGES:
            self.note(event, os.fsdecode(given[0]))

    def _fsync(self, file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        self.note("os.fsync", str(Path(f"/proc/self/fd/{number}").readlink()))
        self._syncs(file)

    def _open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """``open``, but what is written to the file is seen."""
        if not set("wax+") & set(mode):
            return self._opens(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _Seen(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        raw.calls = self
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw, size)
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text


def _limit(size: int) -> None:
    """Let no file of this process grow beyond ``size`` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class _Seen(io.FileIO):
    calls: Calls

    def write(self, data: Any) -> int:
        whole = memoryview(data).cast("B")
        if isinstance(self.name, (str, bytes, os.PathLike)):
            half = whole[: len(whole) // 2]
            self.calls.note("write", os.fsdecode(self.name), lambda: super(_Seen, self).write(half))
        return super().write(whole)
