"""isotrope: fine-tune text and image embedding models, and see what a loss does to them.

Importing the package imports nothing heavy; a name loads its package when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    # what a user calls
    "Doctor": "isotrope.adapters.doctor",
    "audit": "isotrope.verbs",
    "audit_images": "isotrope.verbs",
    "compare": "isotrope.evaluation.compare",
    "decompose": "isotrope.paradigm.decompose",
    "diagnose": "isotrope.diagnostics.target",
    "evaluate": "isotrope.evaluation",
    "fit": "isotrope.training",
    "fit_images": "isotrope.training",
    "load": "isotrope.encoders",
    "report": "isotrope.verbs",
    "search": "isotrope.evaluation",
    "sweep": "isotrope.sweeps.from_python",
    # what the author of an objective needs
    "Hyper": "isotrope.core.hyper",
    "Objective": "isotrope.paradigm.objective",
    "Pairs": "isotrope.kernels.pairs",
    "Paper": "isotrope.paradigm.objective",
    "Paradigm": "isotrope.objectives",
    "Preset": "isotrope.paradigm.objective",
    "Temperature": "isotrope.core.hyper",
    "Terms": "isotrope.core.terms",
    "Views": "isotrope.core.views",
    "softplus": "isotrope.core.softplus",
}

_MODULES = {"objectives": "isotrope.objectives", "parts": "isotrope.paradigm.parts"}

__all__ = [
    "Doctor",
    "Hyper",
    "Objective",
    "Pairs",
    "Paper",
    "Paradigm",
    "Preset",
    "Temperature",
    "Terms",
    "Views",
    "__version__",
    "audit",
    "audit_images",
    "compare",
    "decompose",
    "diagnose",
    "evaluate",
    "fit",
    "fit_images",
    "load",
    "objectives",
    "parts",
    "report",
    "search",
    "softplus",
    "sweep",
]

if TYPE_CHECKING:
    from isotrope import objectives as objectives
    from isotrope.adapters.doctor import Doctor as Doctor
    from isotrope.core.hyper import Hyper as Hyper
    from isotrope.core.hyper import Temperature as Temperature
    from isotrope.core.softplus import softplus as softplus
    from isotrope.core.terms import Terms as Terms
    from isotrope.core.views import Views as Views
    from isotrope.diagnostics.target import diagnose as diagnose
    from isotrope.encoders import load as load
    from isotrope.evaluation import evaluate as evaluate
    from isotrope.evaluation import search as search
    from isotrope.evaluation.compare import compare as compare
    from isotrope.kernels.pairs import Pairs as Pairs
    from isotrope.paradigm import parts as parts
    from isotrope.paradigm.compose import Paradigm as Paradigm
    from isotrope.paradigm.decompose import decompose as decompose
    from isotrope.paradigm.objective import Objective as Objective
    from isotrope.paradigm.objective import Paper as Paper
    from isotrope.paradigm.objective import Preset as Preset
    from isotrope.sweeps.from_python import sweep as sweep
    from isotrope.training import fit as fit
    from isotrope.training import fit_images as fit_images
    from isotrope.verbs import audit as audit
    from isotrope.verbs import audit_images as audit_images
    from isotrope.verbs import report as report


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOME:
        raise AttributeError(f"module 'isotrope' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
