"""Stores the scores of finished tasks on disk, so that no task is scored twice.

Each task is one JSON file. It is written as soon as the task is finished, so a killed run loses
only the current task. The name of the file has a fingerprint of everything that determines the
scores: model, data, settings and version of the protocol. The items (scores of single examples) are
in a file of arrays beside it. This file is written first and named by its content, so two runs may
finish the same task at the same time.
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
        model: Name given by the user. For a run, the folder is its ``evaluations``. For others, and
            for read-only runs, it is ``isotrope/evaluations`` in XDG_CACHE_HOME or ~/.cache.
    """
    if isinstance(model, (str, Path)):
        run = Path(model).expanduser()
        # these files show that the folder is a run, as in isotrope.encoders.names
        files = RunFolder(run)
        if files.model.is_dir() and (files.result.exists() or files.config.exists()):
            in_run = files.evaluations
            if os.access(in_run if in_run.exists() else run, os.W_OK | os.X_OK):
                return in_run
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "isotrope" / "evaluations"


class Store:
    """The finished tasks in a folder. The folder is created if it is missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        # check now that the folder is writable, before hours of scoring
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
                if name != _archive(path, items):  # an archive has no checksum of its names
                    return None
        # a file that is incomplete, edited or without its arrays counts as not finished
        except (InputError, OSError, TypeError, ValueError, EOFError):
            return None
        # RuntimeError: a damaged archive may look encrypted
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
    """Return the name of the file of arrays that belongs to the task file ``path``."""
    return f"{path.stem}-{fingerprint(items)}.npz"
