"""Scores an encoder on benchmark data: STS, transfer, retrieval, kNN and a linear probe.

The functions ``sts``, ``transfer``, ``retrieval``, ``knn``, ``linear_probe``, ``corpus`` and
``compare`` are in the files of the same names. Each returns a Result.
"""

import importlib
from typing import TYPE_CHECKING

__all__ = ["Encoder", "evaluate", "holdout_set", "retrieval_dev", "search", "stored", "sts_dev"]

if TYPE_CHECKING:
    from isotrope.evaluation.dispatch import evaluate as evaluate
    from isotrope.evaluation.embed import Encoder as Encoder
    from isotrope.evaluation.embed import stored as stored
    from isotrope.evaluation.files import search as search
    from isotrope.evaluation.holdout import holdout_set as holdout_set
    from isotrope.evaluation.retrieval import retrieval_dev as retrieval_dev
    from isotrope.evaluation.sts import sts_dev as sts_dev

_HOME = {
    "Encoder": "embed",
    "evaluate": "dispatch",
    "holdout_set": "holdout",
    "retrieval_dev": "retrieval",
    "search": "files",
    "stored": "embed",
    "sts_dev": "sts",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'isotrope.evaluation' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isotrope.evaluation.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
