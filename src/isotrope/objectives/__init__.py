"""The objectives: each file holds losses with similar equations. A new loss is a new file.

Importing this package registers every objective. The classes are attributes of the package
(``isotrope.objectives.InfoNCE``). :class:`~isotrope.Terms` defines the parts of an objective's
gradient: dissipation GD, weight W and ratio R.
"""

import importlib
import pkgutil

from isotrope.paradigm import compose  # registers Paradigm
from isotrope.paradigm.objective import Objective

Paradigm = compose.Paradigm

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

globals().update({cls.__name__: cls for cls in Objective.registered.values()})

__all__ = sorted(["Objective", "Paradigm", *(c.__name__ for c in Objective.registered.values())])


def __dir__() -> list[str]:
    return __all__
