"""Differences between trainings, in words."""

from collections.abc import Mapping

from isotrope.experiments.reproduce.artifact import Spread

__all__ = ["signed", "told"]


def signed(change: Spread | None, digits: int = 2) -> str | None:
    """Return ``+1.20 ± 0.31``, or None."""
    if change is None:
        return None
    text = change.shown(digits)
    return text if text.startswith("-") else f"+{text}"


def told(changes: Mapping[str, Spread | None], digits: int = 2) -> str:
    """Return those that were measured in one line, each with its name."""
    return ", ".join(f"{name} {signed(one, digits)}" for name, one in changes.items() if one)
