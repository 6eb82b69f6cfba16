"""Stores the Results of finished tasks on disk, so that no task is scored twice.

Each task has a JSON file, which is written as soon as the task is finished, so a killed process
loses only the current task. The file's name contains a fingerprint of everything that determines
the scores: model, data, settings and version of the protocol. The scores of single examples are in
an .npz file beside the JSON file. The .npz file is written first, and its name contains a
fingerprint of its content. Therefore two processes may finish the same task at the same time.
"""

import os
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from isotrope.core.documents import open_arrays
from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace, os_errors_as_input_errors
from isotrope.core.fingerprint import fingerprint
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder

DAMAGED = (OSError, TypeError, ValueError, EOFError, BadZipFile, zlib.error, RuntimeError)
"""Errors from a stored file that is incomplete, edited or damaged, even as if encrypted."""


def store_folder(model: object) -> Path:
    """Return the default folder for the finished tasks of a model.

    For a run whose folder is writable, this is ``evaluations`` in the run folder. For any other
    model, it is ``isotrope/evaluations`` in the folder XDG_CACHE_HOME, by default ~/.cache.
    """
    if isinstance(model, (str, Path)):
        run = Path(model).expanduser()
        files = RunFolder(run)
        if files.model.is_dir() and files.is_begun:
            in_run = files.evaluations
            if os.access(in_run if in_run.exists() else run, os.W_OK | os.X_OK):
                return in_run
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "isotrope" / "evaluations"


class Store:
    """Results of finished tasks, stored in a folder under ``Task.key``.

    A missing folder is created. A folder that cannot be written is an InputError.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        # check now that the folder is writable, before hours of scoring
        with os_errors_as_input_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "permission denied")

    def find(self, key: Mapping[str, Any]) -> Result | None:
        """Return the Result stored under ``key``; None if it is missing or cannot be read."""
        try:
            result = load_stored(stored_file(self.folder, key))
        except DAMAGED:  # it counts as not finished
            return None
        return result if result.provenance.get("key") == dict(key) else None

    def keep(self, key: Mapping[str, Any], result: Result) -> None:
        """Write the Result of a finished task under ``key``."""
        path = stored_file(self.folder, key)
        archive = _archive_name(path, result.items) if result.items else None
        if archive is not None:
            arrays: dict[str, Any] = dict(result.items)
            with atomic_replace(self.folder / archive) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, **arrays)
        provenance = {**result.provenance, "key": dict(key), "items": archive}
        replace(result, provenance=provenance).save(path)


def stored_file(folder: Path, key: Mapping[str, Any]) -> Path:
    """Return the file in which :class:`Store` keeps the Result of a task under ``key``."""
    task = "".join(c if c.isalnum() or c in "-." else "-" for c in str(key.get("task", "task")))
    return folder / f"{task[:60]}-{fingerprint(key)}.json"


def load_stored(path: Path) -> Result:
    """Read the Result in the file ``path`` of a :class:`Store`; raise an error of ``DAMAGED``."""
    result, items = Result.load(path), {}
    if archive := result.provenance.get("items"):
        with open_arrays(path.parent / archive) as arrays:
            items = {name: arrays[name] for name in arrays.files}
        if archive != _archive_name(path, items):  # the zip has no checksum of its names
            raise InputError(f"{path}: score this task again; {archive} has other examples")
    return replace(result, items=items)


def _archive_name(path: Path, items: Mapping[str, np.ndarray]) -> str:
    """Return the name of the .npz file with the arrays of the JSON file ``path``."""
    return f"{path.stem}-{fingerprint(items)}.npz"
