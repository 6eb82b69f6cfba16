"""Decides which models and data may be opened, and looks names up on the Hugging Face hub.

In a block of :func:`named_by`, names of models and data come from a folder that may be untrusted.
They are opened only if this user made the folder on this machine, and the network is not used.
"""

import os
import shlex
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from isotrope.core.errors import InputError, first_line, place
from isotrope.core.run_folder import RunFolder

USER = None  # the source of names that the user gave
_source: ContextVar[tuple[Path | None, str]] = ContextVar("_source", default=(USER, ""))

ONLINE_WITHIN = 5.0
"""Seconds after which the hub counts as unreachable."""


@contextmanager
def named_by(folder: Path | None, command: str = "") -> Iterator[None]:
    """In the block, names of models and data come from ``folder``, and no network is used.

    If ``folder`` is None, the names come from the user, and the network may be used.
    """
    from huggingface_hub import constants

    token, offline = _source.set((folder, command)), constants.HF_HUB_OFFLINE
    # other libraries read this constant
    own = os.environ.get("HF_HUB_OFFLINE", "").upper() in constants.ENV_VARS_TRUE_VALUES
    constants.HF_HUB_OFFLINE = own or folder is not None
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        _source.reset(token)


def check_named(name: Path | str, *, model: bool = False) -> None:
    """Raise an error if an untrusted folder, and not the user, names this model or these data.

    Args:
        name: Path or name of the model or the data.
        model: Whether ``name`` is a model. The model may be the untrusted folder itself.
    """
    folder, command = _source.get()
    if folder is None or (model and Path(name) == folder) or RunFolder(folder).is_own:
        return
    how = "give this name to `isotrope diagnose`"
    remedy = how if model else f"use `{command}{shlex.quote(str(name))}`"
    raise InputError(
        f"to open {place(name)}, {remedy}; it is not opened, because only {place(folder)} names "
        "it, and you did not make that folder on this machine"
    )


def why_closed() -> str | None:
    """Return the reason if the hub must not be queried, else None."""
    folder, _ = _source.get()
    return None if folder is None else f"names that {folder} contains are not looked up on the hub"


def known_to_hub(
    candidates: Sequence[str], kind: Literal["model", "dataset"]
) -> tuple[str | None, str]:
    """Return a pair: the first candidate on the hub, or None; and the reason if it is None."""
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
                what = "the hub did not provide it" if answered else "the hub cannot be reached"
                failures.append(f"{what}: {first_line(error)}")
            else:
                known.append(candidate)
                return

    # in another thread, because looking up a host name has no timeout
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ONLINE_WITHIN)
    return next(iter(known), None), failures[-1]
