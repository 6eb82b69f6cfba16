"""Modules that all other packages use: records, errors, file writes and file locks."""

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


class Room(ModuleType):
    """Module type of a package that imports a public name only when the name is first used."""

    __all__: list[str]
    _files: dict[str, str]  # module of each public name

    def __getattr__(self, name: str) -> object:
        if name not in self._files:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        file = self._files[name]
        if file == self.__name__:
            return importlib.import_module(f"{file}.{name}")
        value = getattr(importlib.import_module(file), name, self)
        if value is self:  # the package has no attribute of this name, so it is a module
            value = importlib.import_module(f"{file}.{name}")
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # importing a module sets its name here, even if a function of that name is exported
        if isinstance(value, ModuleType) and self._files.get(name) == value.__name__:
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return list(self.__all__)


def public(name: str) -> None:
    """Make the names public that the package ``name`` imports in ``if TYPE_CHECKING``."""
    room = sys.modules[name]
    files: dict[str, str] = {}
    for node in ast.walk(ast.parse(Path(str(room.__file__)).read_text(encoding="utf-8"))):
        for guarded in node.body if isinstance(node, ast.If) else ():
            if isinstance(guarded, ast.ImportFrom):
                files |= {alias.name: str(guarded.module) for alias in guarded.names}
    version = vars(room).keys() & {"__version__"}
    vars(room).update(_files=files, __all__=sorted({*files, *version}))
    room.__class__ = Room


public(__name__)
