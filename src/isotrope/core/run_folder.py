"""The files of a run folder, and of the folder in which the Doctor records a training.

A run folder may come from others. Therefore isotrope signs the settings that it writes, with a key
that only this user has. The plugins, models and data that settings name are opened without
confirmation only if this user signed the settings on this machine.
"""

import functools
import hmac
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from isotrope.core.documents import LARGEST_SETTINGS, read_text, read_yaml
from isotrope.core.errors import InputError
from isotrope.core.files import write_text

RECORDING = "isotrope"
"""Name of the Doctor's folder within a trainer's ``output_dir``."""

LOCK = ".lock"  # locks a folder while a process writes to it; removed at the end
IN_MEMORY = "data-from-python"  # prefix of files with data from Python, written before the run
MANIFEST = "manifest.json"  # in a token store
COMPLETE = "complete.json"  # in a complete checkpoint: its step and the digests of its other files
WEIGHTS = "model.pt"  # in a checkpoint
STATES = "run.pt"  # in a checkpoint: unwritten log rows, dev scores, training time
_SEAL = "# made here: "  # begins the last line of settings that this user wrote on this machine


class RunFolder:
    """The paths of a run's files, whether they exist or not."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"  # the settings, as flags spell them
        self.metrics = self.path / "metrics.csv"  # one row per logged step
        self.dev = self.path / "dev.npz"  # dev scores of each example, for the final decision
        self.result = self.path / "result.json"  # written last: the run is finished
        self.diverged = self.path / "diverged.txt"  # why a run of a sweep has no result
        self.diagnosis = self.path / "diagnosis.json"
        self.provenance = self.path / "provenance.json"  # an entry for each start of the run
        self.model = self.path / "model"
        self.rejected = self.path / "rejected"  # the last step's model, if the original is kept
        self.refit = self.path / "refit"  # the run folder of a second training, on all records
        self.checkpoints = self.path / "checkpoints"
        self.tokens = self.path / "tokens"  # the token store; removed at the end
        self.plan = self.path / "plan.json"  # of --minutes, for a resumed run; removed at the end
        self.evaluations = self.path / "evaluations"
        self.tensorboard = self.path / "tensorboard"
        self.watched = self.path / RECORDING

    @property
    def is_begun(self) -> bool:
        """Whether isotrope began a training in this folder: it has a result or settings."""
        with suppress(InputError):  # a config.yaml of Hydra, for example, may be anything
            return self.result.exists() or _SEAL in read_text(self.config, LARGEST_SETTINGS)
        return False

    @property
    def is_run(self) -> bool:
        """Whether isotrope trained in this folder: it has settings and a log."""
        return self.config.is_file() and self.metrics.is_file() and self.is_begun

    @property
    def is_own(self) -> bool:
        """Whether this user wrote the settings with isotrope on this machine."""
        settings, found, seal = read_text(self.config, LARGEST_SETTINGS).rpartition(_SEAL)
        own = f"{_signature(settings)}\n"
        return bool(found) and hmac.compare_digest(seal.encode(), own.encode())

    def write_settings(self, settings: str) -> None:
        """Write the settings (YAML), and sign them as written by this user on this machine."""
        write_text(self.config, f"{settings}{_SEAL}{_signature(settings)}\n")

    def check(self) -> None:
        """Raise an error if a path of the run is a link, or is not of its kind (file or folder)."""
        for name, path in vars(self).items():
            if name == "path":
                continue
            folder = not path.suffix
            if path.is_symlink():
                raise InputError(
                    f"remove {path} or choose another folder: it is a link, and isotrope does not "
                    "read or write runs through links"
                )
            if path.exists() and path.is_dir() != folder:
                kinds = ("file", "folder") if folder else ("folder", "file")
                raise InputError(
                    f"{path} is a {kinds[0]}, not a {kinds[1]}; remove it or choose another folder"
                )

    def settings(self) -> dict[str, Any]:
        """Call :meth:`check`, and return the settings of the run as a dict."""
        self.check()
        return read_yaml(self.config)

    def recording(self) -> "RunFolder | None":
        """Return the subfolder with the Doctor's log, or else this folder if it has the log.

        The result is None without such a log, and if isotrope itself trained in this folder.
        """
        if self.is_run:
            return None
        self.check()
        places = (RunFolder(self.watched), self)
        found = next((folder for folder in places if folder.metrics.is_file()), None)
        if found is not None:
            found.check()
        return found


@functools.cache
def _key() -> bytes:
    """Return the user's key, or a key for this process if no key can be stored or read."""
    new = secrets.token_bytes(32)
    with suppress(OSError, RuntimeError, AttributeError):  # no home, a read-only one, no getuid
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        if home.is_absolute():
            path = home / "isotrope" / "key"
            with suppress(OSError):  # an earlier key may be readable all the same
                _store(new, path)
            about, stored = path.stat(), path.read_bytes()
            others = about.st_mode & 0o077 or about.st_uid != os.getuid()
            return new if others or len(stored) != len(new) else stored
    return new


def _store(key: bytes, path: Path) -> None:
    """Write the key whole, and never over one that is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent) as file:
        Path(file.name).write_bytes(key)
        os.link(file.name, path)


def _signature(settings: str) -> str:
    return hmac.new(_key(), settings.encode(), "sha256").hexdigest()
