"""Signs the settings of a run with a key that only this user has.

A run folder may come from others. The plugins, models and data that its settings name are opened
without confirmation only if this user's isotrope signed them on this machine.
"""

import functools
import hmac
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path


@functools.cache
def key() -> bytes:
    """Return the user's key, or one for this process if none can be stored."""
    key = secrets.token_bytes(32)
    with suppress(OSError, RuntimeError, AttributeError):  # no home, a read-only one, no getuid
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        if home.is_absolute():
            path = home / "isotrope" / "key"
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent) as new, suppress(FileExistsError):
                Path(new.name).write_bytes(key)
                os.link(new.name, path)  # whole, and never over one that is there
            about, kept = path.stat(), path.read_bytes()
            others = about.st_mode & 0o077 or about.st_uid != os.getuid()
            return key if others or len(kept) != len(key) else kept
    return key


def signature(settings: str) -> str:
    """Return the signature of settings by the user's key."""
    return hmac.new(key(), settings.encode(), "sha256").hexdigest()
