"""A progress bar on stderr, or none."""

import sys
from typing import Any

__all__ = ["bar"]

DELAY = 1.0
"""Seconds before a bar shows: what is refused at once, or done at once, needs none."""


class _NoBar:
    """A progress bar that shows nothing."""

    def update(self, count: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def bar(total: int, unit: str, *, show: bool) -> Any:  # noqa: ANN401 - a tqdm bar or nothing like it
    """Return a bar that counts to ``total``, with ``update(count)`` and ``close()``."""
    if not show:
        return _NoBar()
    from tqdm import tqdm

    told = {"desc": "encode", "unit": f" {unit}", "dynamic_ncols": True, "delay": DELAY}
    return tqdm(total=total, file=sys.stderr, **told)
