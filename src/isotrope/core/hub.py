"""Looks up names of models and data sets on the Hugging Face hub, within a few seconds."""

import threading
from collections.abc import Sequence
from typing import Literal

from isotrope.core.errors import first_line
from isotrope.core.trust import why_closed

ONLINE_WITHIN = 5.0
"""Seconds after which the hub counts as unreachable."""


def known_to_hub(
    candidates: Sequence[str], kind: Literal["model", "dataset"]
) -> tuple[str | None, str]:
    """Return the first candidate that exists on the hub, or the reason why none was found."""
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
