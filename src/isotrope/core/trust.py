"""Decides which named models and data may be opened.

Within :func:`named_by`, names come from a folder that may be untrusted. The network is then not
used, and models and data are opened only if this user made the run on this machine.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from isotrope.core.errors import InputError, place
from isotrope.core.run_folder import RunFolder

USER = None  # the source of names that come from no folder
_source: ContextVar[tuple[Path | None, str]] = ContextVar("_source", default=(USER, ""))


@contextmanager
def named_by(folder: Path | None, command: str = "") -> Iterator[None]:
    """Stay offline, because names come from a folder, or go online again (:data:`USER`)."""
    from huggingface_hub import constants

    token, offline = _source.set((folder, command)), constants.HF_HUB_OFFLINE
    # for libraries that ask by themselves
    own = os.environ.get("HF_HUB_OFFLINE", "").upper() in constants.ENV_VARS_TRUE_VALUES
    constants.HF_HUB_OFFLINE = own or folder is not None
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        _source.reset(token)


def check_named(name: Path | str, *, model: bool = False) -> None:
    """Refuse a name that does not come from the user, before anything looks for it.

    Args:
        name: Path or name to be opened.
        model: Whether the name is that of a model. A folder's own model is allowed.
    """
    folder, command = _source.get()
    if folder is None or (model and Path(name) == folder) or RunFolder(folder).is_own:
        return
    remedy = "diagnose it by its name" if model else f"use `{command}{shlex.quote(str(name))}`"
    raise InputError(
        f"{place(name)} is not opened, because only {place(folder)} names it, which you did not "
        f"make here; to open it, {remedy}"
    )


def why_closed() -> str | None:
    """Return why the hub is not queried; None if it is."""
    folder, _ = _source.get()
    return None if folder is None else f"names from {folder} are not looked up on the hub"
