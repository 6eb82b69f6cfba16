"""Writes the files of a command and returns their paths."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from isotrope.core.errors import InputError

__all__ = ["write_files"]


def write_files(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write files, all or none; return their paths."""
    from isotrope.core.files import atomic_replace

    files = [folder / name for name in contents]
    for path in files:
        if path.is_dir():
            raise InputError(
                f"{path} is a folder, not a file; remove it or choose another --output"
            )
    with contextlib.ExitStack() as stack:
        for path, content in zip(files, contents.values(), strict=True):
            stack.enter_context(atomic_replace(path)).write_bytes(content)
    return files
