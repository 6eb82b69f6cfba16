"""Records, errors and files for all packages; :func:`public` imports their names when used."""

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isotrope.core.errors import Diverged as Diverged
    from isotrope.core.errors import InputError as InputError
    from isotrope.core.errors import LostProcess as LostProcess
    from isotrope.core.errors import MissingExtra as MissingExtra
    from isotrope.core.errors import nearest as nearest
    from isotrope.core.files import atomic_replace as atomic_replace
    from isotrope.core.files import write_text as write_text
    from isotrope.core.fingerprint import fingerprint as fingerprint
    from isotrope.core.lock import exclusive_lock as exclusive_lock
    from isotrope.core.progress import format_duration as format_duration
    from isotrope.core.result import Result as Result
    from isotrope.core.result import provenance as provenance
    from isotrope.core.run_folder import RunFolder as RunFolder
    from isotrope.core.table import table as table
    from isotrope.core.views import Views as Views
    from isotrope.core.views import unit as unit

_ABSENT = object()


class LazyPackage(ModuleType):
    """Module type of a package that imports a public name only when the name is first used."""

    __all__: list[str]
    _modules: dict[str, str]  # the module that each public name is imported from

    def __getattr__(self, name: str) -> object:
        if name not in self._modules:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module = self._modules[name]
        if module == self.__name__:  # the name is a module of this package
            return importlib.import_module(f"{module}.{name}")
        value = getattr(importlib.import_module(module), name, _ABSENT)
        if value is _ABSENT:  # the name is a module of another package, not yet imported
            value = importlib.import_module(f"{module}.{name}")
        setattr(self, name, value)  # from now on, the name is found without this function
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # importing a module sets its name here, even if a function of that name is exported
        if isinstance(value, ModuleType) and self._modules.get(name) == value.__name__:
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return list(self.__all__)


def public(name: str) -> None:
    """Make the names public that the package ``name`` imports in ``if TYPE_CHECKING``.

    Python runs such an import when the name is first used, so small commands do not load torch.
    """
    package = sys.modules[name]
    modules: dict[str, str] = {}
    for node in ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom):
                    modules |= {alias.name: str(line.module) for alias in line.names}
    version = vars(package).keys() & {"__version__"}
    vars(package).update(_modules=modules, __all__=sorted({*modules, *version}))
    package.__class__ = LazyPackage


public(__name__)
