"""Decides which named models and data may be opened, and whether the hub is queried for them.

Within :func:`named_by`, names come from a folder that may be untrusted. Then the network is not
used, and the models and data are opened only if this user made the run on this machine.
"""

import os
import shlex
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from isotrope.core.errors import InputError, place
from isotrope.core.run_folder import RunFolder

ONLINE_WITHIN = 5.0
"""Seconds after which the hub counts as unreachable."""


_given: ContextVar[tuple[Path | None, str]] = ContextVar("_given", default=(None, ""))


@contextmanager
def named_by(folder: Path | None, command: str = "") -> Iterator[None]:
    """Stay offline, because names come from a folder (None: from the user again)."""
    from huggingface_hub import constants

    token, offline = _given.set((folder, command)), constants.HF_HUB_OFFLINE
    # for libraries that ask by themselves
    own = os.environ.get("HF_HUB_OFFLINE", "").upper() in constants.ENV_VARS_TRUE_VALUES
    constants.HF_HUB_OFFLINE = own or folder is not None
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        _given.reset(token)


def check_named(name: Path | str, *, model: bool = False) -> None:
    """Refuse a name that does not come from the user, before anything looks for it.

    Args:
        name: Path or name to be opened.
        model: Whether it is a model; the folder's own model is allowed.
    """
    folder, command = _given.get()
    if folder is None or (model and Path(name) == folder) or RunFolder(folder).is_own:
        return
    remedy = "diagnose it by its name" if model else f"use `{command}{shlex.quote(str(name))}`"
    raise InputError(
        f"{place(name)} is not opened, because only {place(folder)} names it, which you did not "
        f"make here; to open it, {remedy}"
    )


def why_closed() -> str | None:
    """Return why the hub is not queried; None if it is."""
    folder, _ = _given.get()
    return None if folder is None else f"names from {folder} are not looked up on the hub"


def known_to_hub(
    candidates: Sequence[str], kind: Literal["model", "dataset"]
) -> tuple[str | None, str]:
    """Return the first candidate that the hub knows, or the reason if there is none."""
    if (closed := why_closed()) is not None:
        return None, closed
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    known: list[str] = []
    failures: list[str] = [f"the hub cannot be reached: no answer within {ONLINE_WITHIN:g} s"]

    def ask() -> None:
        for candidate in candidates:
            try:
                HfApi().repo_info(candidate, repo_type=kind, timeout=ONLINE_WITHIN)
            except Exception as error:
                answered = isinstance(error, HfHubHTTPError)
                what = "the hub does not give it" if answered else "the hub cannot be reached"
                failures.append(f"{what}: {first_line(error)}")
            else:
                known.append(candidate)
                return

    # in a thread of its own: looking up a host name takes no timeout
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ONLINE_WITHIN)
    return next(iter(known), None), failures[-1]


def first_line(error: Exception) -> str:
    """Return the message of a library's error on one line of bounded length."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
