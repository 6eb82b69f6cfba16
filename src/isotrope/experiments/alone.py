"""Alone: one process at a time writes into a folder."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isotrope.core.errors import InputError
from isotrope.core.files import writable

__all__ = ["alone"]


@contextmanager
def alone(folder: Path, output: Path) -> Iterator[None]:
    """Keep others out of ``folder`` until the end; a process that dies lets them in.

    Args:
        folder: made if need be.
        output: what the message names.

    Raises:
        InputError: another process is in it, or it cannot be written.
    """
    path = folder / ".lock"
    with writable(path):
        folder.mkdir(parents=True, exist_ok=True)
        handle = path.open("a")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another process is measuring into {output}; wait for it, stop it, or choose "
                "another --output (--show looks at what there is)"
            ) from None
        yield
