"""Finds the folder of the doctor's record inside the output folder of a training."""

from pathlib import Path

__all__ = ["NAME", "recorded"]

NAME = "isotrope"
"""Of the folder within a trainer's ``output_dir``."""


def recorded(target: Path) -> Path | None:
    """Return the folder with metrics.csv in ``target``, or itself; None if there is none.

    A run of ours, which has a config.yaml, is none either.
    """
    if (target / "config.yaml").is_file():
        return None
    places = (target / NAME, target)
    return next((folder for folder in places if (folder / "metrics.csv").is_file()), None)
