"""isotrope: train, evaluate and explain embedding models by the gradients of their objectives.

Importing the package imports nothing heavy; a name loads its room when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Anatomy": "isotrope.diagnostics.anatomy",
    "decompose": "isotrope.paradigm.decompose",
    "evaluate": "isotrope.evaluation",
    "fit": "isotrope.methods",
    "fit_images": "isotrope.methods",
    "load": "isotrope.encoders",
    "Paradigm": "isotrope.objectives",
    "objectives": None,
}

__all__ = [
    "Anatomy",
    "Paradigm",
    "__version__",
    "decompose",
    "evaluate",
    "fit",
    "fit_images",
    "load",
    "objectives",
]

if TYPE_CHECKING:
    from isotrope import objectives as objectives
    from isotrope.diagnostics.anatomy import Anatomy as Anatomy
    from isotrope.encoders import load as load
    from isotrope.evaluation import evaluate as evaluate
    from isotrope.methods import fit as fit
    from isotrope.methods import fit_images as fit_images
    from isotrope.paradigm.compose import Paradigm as Paradigm
    from isotrope.paradigm.decompose import decompose as decompose


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module or any of its names
    if name not in _HOME:
        raise AttributeError(f"module 'isotrope' has no attribute {name!r}")
    home = _HOME[name]
    if home is None:
        return importlib.import_module(f"isotrope.{name}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
