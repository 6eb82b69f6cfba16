"""Asks the Hugging Face hub, within seconds, whether it has a model or a data set.

Only what the user named is asked for: within :func:`named_by` names come from a folder, which may
be a stranger's, and the network is not used for them.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

ONLINE_WITHIN = 5.0
"""Seconds in which the hub must answer before it counts as out of reach."""


_folder: ContextVar[Path | None] = ContextVar("_folder", default=None)


@contextmanager
def named_by(folder: Path | None) -> Iterator[None]:
    """Keep to this machine: names are those that a folder gives (None: those of the user)."""
    from huggingface_hub import constants

    token, offline = _folder.set(folder), constants.HF_HUB_OFFLINE
    # for libraries that ask by themselves
    own = os.environ.get("HF_HUB_OFFLINE", "").upper() in constants.ENV_VARS_TRUE_VALUES
    constants.HF_HUB_OFFLINE = own or folder is not None
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        _folder.reset(token)


def why_closed() -> str | None:
    """Return why the hub is not asked; None where it is."""
    folder = _folder.get()
    return None if folder is None else f"the hub is not asked for names that {folder} gives"


def known_to_hub(
    candidates: Sequence[str], kind: Literal["model", "dataset"]
) -> tuple[str | None, str]:
    """Return the first candidate that the hub knows, and why there is none if there is none."""
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
