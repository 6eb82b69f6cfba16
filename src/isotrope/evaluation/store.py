"""Stores the scores of finished tasks on disk, so that no task is scored twice.

Each task is one JSON file, written at once when the task is finished, so a killed run loses only
the current task. The file's name has a fingerprint of everything that decides the scores: model,
data, settings and version of the protocol. The items for resampling are in a file of arrays beside
it. This file is written first and named by its content, so two runs may finish the same task at the
same time.
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


def store_folder(model: object) -> Path:
    """Return the default folder for the finished tasks of a model.

    Args:
        model: Name given by the user. A run has ``evaluations`` in its folder. Other models, and
            read-only runs, use ``isotrope/evaluations`` in the cache (XDG_CACHE_HOME, ~/.cache).
    """
    if isinstance(model, (str, Path)):
        run = Path(model).expanduser()
        # the same two marks by which a model is found in a run
        files = RunFolder(run)
        if files.model.is_dir() and (files.result.exists() or files.config.exists()):
            in_run = files.evaluations
            if os.access(in_run if in_run.exists() else run, os.W_OK | os.X_OK):
                return in_run
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "isotrope" / "evaluations"


class Store:
    """The finished tasks of a folder, which is created if it is missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        # hours later would be too late to hear of it
        with os_errors_as_input_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "permission denied")

    def find(self, key: Mapping[str, Any]) -> Result | None:
        """Return the Result stored under ``key``; None if there is no readable one."""
        try:
            path = self._path(key)
            result = Result.load(path)
            if not isinstance(result.provenance, dict) or result.provenance.get("key") != dict(key):
                return None
            items: dict[str, np.ndarray] = {}
            if name := result.provenance.get("items"):
                with open_arrays(self.folder / name) as arrays:
                    items = {item: arrays[item] for item in arrays.files}
                if name != _archive(path, items):  # the names in an archive have no checksum
                    return None
        # cut short, edited, or its arrays gone: as if it had not been finished
        except (InputError, OSError, TypeError, ValueError, EOFError):
            return None
        # the last is how a damaged archive looks like one that is encrypted
        except (BadZipFile, zlib.error, RuntimeError):
            return None
        return replace(result, items=items)

    def keep(self, key: Mapping[str, Any], result: Result) -> None:
        """Write a finished task."""
        path = self._path(key)
        name = None
        if result.items:
            name = _archive(path, result.items)
            arrays: dict[str, Any] = dict(result.items)
            with atomic_replace(self.folder / name) as temporary, temporary.open("wb") as handle:
                np.savez_compressed(handle, **arrays)
        provenance = {**result.provenance, "key": dict(key), "items": name}
        replace(result, provenance=provenance).save(path)

    def _path(self, key: Mapping[str, Any]) -> Path:
        task = "".join(c if c.isalnum() or c in "-." else "-" for c in str(key.get("task", "task")))
        return self.folder / f"{task[:60]}-{fingerprint(key)}.json"


def _archive(path: Path, items: Mapping[str, np.ndarray]) -> str:
    """Return the name of the file of arrays beside the record ``path``."""
    return f"{path.stem}-{fingerprint(items)}.npz"
