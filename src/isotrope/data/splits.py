"""Recognises the split of a file by the words in its name, as the Hugging Face hub does."""

import re
from pathlib import Path

__all__ = ["TRAIN", "named_split"]

TRAIN = "train"
# as datasets has it
_WORDS = {
    TRAIN: ("train", "training"),
    "test": ("test", "testing", "eval", "evaluation"),
    "validation": ("validation", "valid", "dev", "val"),
}


def named_split(path: Path, folder: Path) -> str | None:
    """Return ``train``, ``test`` or ``validation``; None if no word says it.

    Args:
        path: the path of a file below the folder, in folders or with a name of several words.
        folder: the folder, whose own name is not considered.
    """
    words = set(re.split(r"[\W\d_]+", path.relative_to(folder).as_posix().lower()))
    return next((split for split, names in _WORDS.items() if words & set(names)), None)
