"""Finds objectives by name, builds them from settings, and loads a user's own file."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from isotrope.core.errors import InputError, NoTerms
from isotrope.core.fingerprint import fingerprint
from isotrope.core.hyper import Hyper, hypers, is_number, value_of
from isotrope.core.spelling import brief
from isotrope.paradigm.declared import FORMS, PARTS, unknown_objective, unknown_setting
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Component

_PLAIN = (
    'class MyLoss(Objective, paper=Paper("", "", "")): '
    "batch_level, takes_negatives, pairwise, formula = True, False, False, "
    "lambda self, pairs: my_loss(pairs.views.anchors, pairs.views.positives)"
)

_plugin_files: dict[Path, bytes] = {}  # files passed to load_plugin, and their contents


def names() -> list[str]:
    """Return the registered names, sorted."""
    importlib.import_module("isotrope.objectives")  # registers its classes; one layer above
    return sorted(Objective.registered)


def find(name: str) -> type[Objective]:
    """Return the class that is registered under ``name``; upper and lower case are the same.

    Raises:
        InputError: there is no such objective; the message suggests similar names.
    """
    objectives = names()
    if name.lower() not in objectives:
        raise unknown_objective(name, objectives)
    return Objective.registered[name.lower()]


def build(name: str, settings: Mapping[str, Any] | None = None) -> Objective:
    """Return the objective ``name`` with the given settings.

    Args:
        name: Registered name.
        settings: Hyperparameters by field name. ``dissipation``, ``weight`` and ``ratio`` replace a
            component (see :meth:`Objective.modify`). But if the class has a hyperparameter of this
            name, a number sets the hyperparameter. ``preset`` names an encoder with tuned values,
            ``symmetric`` averages both directions, and ``part`` keeps only the ``attraction`` or
            ``repulsion``.

    Raises:
        InputError: a setting is unknown, or a value is out of its bounds.
    """
    cls = find(name)
    fields = hypers(cls)
    hyperparameters, parts, forms = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for key, value in (settings or {}).items():
        if key in PARTS and (key not in fields or not is_number(value)):
            parts[key] = value
        elif key in fields:
            hyperparameters[key] = _setting(name, key, fields[key], value)
        elif key == "preset" and not isinstance(value, str):
            raise InputError(f"objective {name}: give preset as a name; found {brief(value)}")
        elif key in FORMS:
            forms[key] = _setting(name, key, FORMS[key], value) if key != "preset" else value
        else:
            raise unknown_setting(name, key, {*fields, *PARTS, *FORMS})
    from isotrope.paradigm.compose import pushes  # compose defines an Objective itself

    try:
        # __init_subclass__ adds the preset to the constructor, which no type checker sees
        constructor: Callable[..., Objective] = cls
        objective = constructor(**hyperparameters, preset=forms.get("preset"))
        objective = objective.modify(**parts) if parts else objective
        objective = objective.symmetric() if forms.get("symmetric") else objective
        part = forms.get("part", "both")
        if part == "repulsion" and objective.has_terms and not pushes(objective):
            raise ValueError("set part to attraction: this objective pushes nothing away")
        return objective if part == "both" else getattr(objective.parts, part)
    except (ValueError, NoTerms) as error:
        raise InputError(f"objective {name}: {error}") from error


def as_settings(objective: Objective) -> tuple[str, dict[str, float | str]]:
    """Return a tuple of the name and the settings with which :func:`build` makes this objective.

    Args:
        objective: Instance of a registered class, after any calls of ``modify``, ``symmetric`` and
            ``parts`` in this order.

    Raises:
        InputError: no settings describe the objective.
    """
    from isotrope.paradigm.compose import Paradigm  # compose defines Objectives itself
    from isotrope.paradigm.forms import Part, Symmetric  # forms does too

    base, settings = objective, dict[str, float | str]()
    if isinstance(base, Part):
        settings["part"], base = base.side, base.objective
    if isinstance(base, Symmetric):
        settings["symmetric"], base = "true", base.objective
    if isinstance(base, Paradigm):
        parts: dict[str, Component | None] = {name: getattr(base, name) for name in PARTS}
        settings |= {name: part.short(exact=True) for name, part in parts.items() if part}
        base = base if base.parent is None else base.parent
    for field in hypers(type(base)):
        if field not in settings:
            settings[field] = _plain(getattr(base, field))
    name = getattr(type(base), "name", "")
    if Objective.registered.get(name) is type(base) and build(name, settings) == objective:
        return name, settings
    raise InputError(
        "call modify first, then symmetric, then parts, or write a class MyLoss(Objective, "
        f"paper=...): no settings describe the objective {brief(objective)}"
    )


def _plain(value: float | str | Tensor) -> float | str:
    """Return a hyperparameter as a number or a word; a learnt temperature as its current value."""
    value = value.detach() if isinstance(value, Tensor) else value
    return str(value).lower() if isinstance(value, (bool, str)) else float(value)


def _setting(name: str, key: str, hyper: Hyper, value: object) -> object:
    try:
        return value_of(hyper, value)
    except ValueError as error:
        raise InputError(f"objective {name}: {key} must be {error}") from None


class _Uncached(SourceFileLoader):
    def set_data(self, path: str, data: object, *, _mode: int = 0o666) -> None:
        """Write no bytecode: the folder is the user's."""


def run_file(path: Path) -> ModuleType:
    """Run a Python file and return its module; its objectives replace those of an earlier run."""
    if not path.is_file():
        raise InputError(f"give a Python file with an Objective in it: plugin {path} is not a file")
    if path.suffix != ".py":
        raise InputError(f"give a Python file: the name of plugin {path} must end in .py")
    name = f"isotrope_plugin_{path.stem}_{fingerprint(str(path.resolve()))}"
    loader = _Uncached(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module, earlier = importlib.util.module_from_spec(spec), sys.modules.get(name)
    own = {objective: Objective.registered.pop(objective) for objective in _defined_in(path)}
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        for objective in _defined_in(path):
            del Objective.registered[objective]
        Objective.registered.update(own)
        del sys.modules[name]
        if earlier is not None:
            sys.modules[name] = earlier
        raise InputError(f"plugin {path} failed: {type(error).__name__}: {error}") from error
    return module


def _defined_in(path: Path) -> list[str]:
    """Return the names of the objectives that a file registered, as a plugin or when imported."""
    return sorted(
        name
        for name, objective in Objective.registered.items()
        if (home := getattr(sys.modules.get(objective.__module__), "__file__", None))
        and Path(home).resolve() == path.resolve()
    )


def load_plugin(path: str | Path) -> list[str]:
    """Return the names of the objectives that a Python file defines.

    The file is run, unless it was run before (as a plugin or by an import) and has not changed.

    Raises:
        InputError: the file is missing, fails, or defines no objective.
    """
    path = Path(path)
    file, text = path.resolve(), path.read_bytes() if path.is_file() else b""
    if not _defined_in(path) or _plugin_files.get(file, text) != text:
        run_file(path)
    if not (names_of_file := _defined_in(path)):
        raise InputError(
            f"add a subclass of Objective: plugin {path} defines no new objective. For a function "
            "my_loss(anchors, positives), import Objective and Paper from isotrope, and add: "
            f"{_PLAIN}"
        )
    _plugin_files[file] = text
    return names_of_file


def load_plugins(files: Iterable[str | Path]) -> None:
    """Load every plugin; see :func:`load_plugin`."""
    for file in files:
        load_plugin(file)


def check_plugins(plugins: object, folder: Path) -> None:
    """Raise an error if ``folder`` names a plugin that the user has not loaded (``--plugin``)."""
    for plugin in plugins if isinstance(plugins, list | tuple) else [plugins] if plugins else []:
        path, loaded = Path(str(plugin)), {file.name for file in _plugin_files}
        if path.resolve() not in _plugin_files and path.name not in loaded:
            raise InputError(
                f"add `--plugin {path}` if you trust the code in this file: {folder} needs this "
                "file, and isotrope does not run code that only a folder names"
            )
