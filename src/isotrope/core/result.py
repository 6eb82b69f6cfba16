"""Defines :class:`Result`: measured numbers and their provenance, stored in one JSON file."""

import functools
import json
import math
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from isotrope.core.documents import parse_json, read_text
from isotrope.core.errors import InputError
from isotrope.core.files import write_text

_PACKAGES = (
    *("isotrope", "torch", "numpy", "scipy"),
    *("transformers", "tokenizers", "sentence-transformers", "accelerate"),
)
_SHOWN = 6  # metrics in a repr


@dataclass(frozen=True, repr=False)
class Result:
    """Measured numbers and where they come from.

    Attributes:
        kind: The kind of work: ``"train"``, ``"sts"``, ``"retrieval"``, ...
        name: The name of the run or model.
        metrics: Numbers (or short texts) by name; None if a number cannot be computed.
        details: Other values in nested dicts and lists: tables, parameters, values of subsets.
        provenance: Versions, machine, seed, fingerprint of the data, command (:func:`provenance`).
        items: Arrays by name, with one value for each scored item, such as the reciprocal rank of
            each query; comparisons resample them. The JSON file does not contain the arrays.
    """

    kind: str
    name: str
    metrics: dict[str, float | int | str | None]
    details: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    items: dict[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        known = {k: v for k, v in self.metrics.items() if v is not None}
        some = [f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in known.items()]
        more = [f"and {len(some) - _SHOWN} more"] if len(some) > _SHOWN else []
        return f"Result({self.kind} of {self.name}: {', '.join(some[:_SHOWN] + more)})"

    def to_json(self) -> str:
        """Return the record as JSON; NaN and infinities become null."""
        record = asdict(replace(self, items={}))
        del record["items"]
        return json_text(record)

    def save(self, path: Path) -> None:
        """Write the record to ``path``, completely or not at all."""
        write_text(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> "Result":
        """Read a result that :meth:`save` wrote; raise an :class:`InputError` for other files."""
        text = read_text(path)
        try:
            result = cls(**parse_json(text))
            if not isinstance(result.kind, str) or not isinstance(result.name, str):
                raise TypeError("kind and name must be texts")
            for name in ("metrics", "details", "provenance"):
                if not isinstance(getattr(result, name), dict):
                    raise TypeError(f"{name} must be an object")
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{path} is not a result of isotrope ({error}); restore it, or give another file"
            ) from error
        return result


def json_text(value: object) -> str:
    """Return indented JSON; NaN and infinities become null."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


@functools.cache  # each call would parse the package's metadata
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# git then writes nothing and starts no monitor; filters of the repository's files may still run
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")


def _git_state() -> dict[str, Any] | None:
    """Return the commit of the current repository and whether it is modified, or None."""
    try:
        state = _git_state_of(str(Path.cwd()))
    except FileNotFoundError:  # the working directory is gone
        return None
    return None if state is None else dict(state)


@functools.cache  # a process that writes many results starts git once
def _git_state_of(folder: str) -> dict[str, Any] | None:
    arguments = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")
    try:
        done = subprocess.run(
            [*_GIT, *arguments], capture_output=True, timeout=5, check=True, cwd=folder
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    commit = next(x.split()[2] for x in lines if x.startswith("# branch.oid "))
    if commit == "(initial)":  # nothing has been committed yet
        return None
    return {"commit": commit, "modified": any(not x.startswith("#") for x in lines)}


def provenance(
    *, seed: int | None = None, data: str | None = None, command: list[str] | None = None
) -> dict[str, Any]:
    """Return a dict with what repeats a result: versions, machine, seed, data, command, commit.

    Args:
        seed: The seed of the run.
        data: The fingerprint of the data.
        command: The words of the command; by default ``sys.argv``.
    """
    return {
        "versions": {p: v for p in _PACKAGES if (v := _version(p)) is not None},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "seed": seed,
        "data": data,
        "command": list(sys.argv if command is None else command),
        "git": _git_state(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
