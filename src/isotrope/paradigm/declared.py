"""Reads the names and settings of the objectives from their source, without importing torch.

Importing the objectives takes seconds, too long to wait for after a mistyped name. A test compares
these names and settings with those of the registry.
"""

import ast
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from isotrope.core.errors import InputError, nearest, unknown
from isotrope.core.hyper import Hyper

# the parts, each with an example value
PARTS = {"dissipation": "margin:0.3", "weight": "softmax:0.05", "ratio": "1.5"}

FORMS = {
    "preset": Hyper(
        "", "encoder for which a paper tuned the values; values that you set override these"
    ),
    "symmetric": Hyper("", "mean of the losses of both directions", choices=(False, True)),
    "part": Hyper("", "part of the loss to train", choices=("both", "attraction", "repulsion")),
}
"""Settings that every objective has in addition to its own hyperparameters and the parts."""


@cache
def declared() -> Mapping[str, tuple[str, ...]]:
    """Return a dict from each built-in objective's name to the names of its settings."""
    package = Path(__file__).resolve().parent.parent
    files = [*(package / "objectives").glob("*.py"), package / "paradigm" / "compose.py"]
    classes: dict[str, ast.ClassDef] = {}
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        classes |= {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return {
        _name(node): tuple(sorted(_fields(node, classes)))
        for node in classes.values()
        if any(keyword.arg == "paper" for keyword in node.keywords)
    }


def objective_settings() -> list[str]:
    """Return the names of the settings of all objectives, such as ``objective.temperature``."""
    names = {name for settings in declared().values() for name in settings}
    return [f"objective.{name}" for name in sorted({*names, *PARTS, *FORMS})]


def _name(node: ast.ClassDef) -> str:
    name = next((word.value for word in node.keywords if word.arg == "name"), None)
    return str(name.value if isinstance(name, ast.Constant) else node.name).lower()


def _fields(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """Return the hyperparameters of a class and of its bases."""
    fields: set[str] = set()
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            fields |= _fields(classes[base.id], classes)
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            kind = ast.unparse(line.annotation)
            # an objective or a part inside another is not a hyperparameter
            if not kind.startswith("ClassVar") and kind != "Any" and "|" not in kind:
                fields.add(line.target.id)
    return fields


def objectives_by_dataset(
    objective: str, settings: Mapping[str, float | str], datasets: Collection[str]
) -> dict[str, tuple[str, dict[str, float | str]]]:
    """Return a dict from data sets to tuples: the objective's name, and a dict of its settings.

    >>> objectives_by_dataset("qa=infonce,nli=met", {"nli.margin": 0.3}, ["qa", "nli"])
    {'qa': ('infonce', {}), 'nli': ('met', {'margin': 0.3})}

    Args:
        objective: One name for all data sets, or ``"qa=infonce,nli=met"``.
        settings: Dict of settings; the name ``nli.margin`` sets ``margin`` for the data set nli.
        datasets: Names of the data sets.
    """
    chosen, several = dict.fromkeys(datasets, objective), "=" in objective
    if several:
        parts = (part.partition("=") for part in objective.split(","))
        chosen = {name.strip(): own.strip() for name, _, own in parts}
    prefixes = {key.partition(".")[0] for key in settings if "." in key}
    if unknown := sorted((set(chosen) ^ set(datasets)) | (prefixes - set(datasets))):
        names = ", ".join(name for name in datasets if name)
        raise InputError(
            f"`--objective {objective}`: give one objective for all data sets, or one for each by "
            "its name (qa=pairs.tsv nli=nli.tsv `--objective qa=infonce,nli=met`). "
            f"{unknown[0] or 'A data set without a name'} is not a data set with an objective; the "
            f"data sets are {names or 'one without a name'}"
        )
    own: dict[str, dict[str, float | str]] = {name: {} for name in datasets}
    # settings of a single data set come last and override the others
    for key, value in sorted(settings.items(), key=lambda item: "." in item[0]):
        name, dot, rest = key.partition(".")
        if several and not dot:
            raise InputError(
                f"`--objective.{key}`: name the data set too, such as "
                f"`--objective.{next(iter(datasets))}.{key}`: each data set has its own objective"
            )
        for dataset in [name] if dot else datasets:
            own[dataset][rest if dot else key] = value
    return {name: (chosen[name], own[name]) for name in datasets}


def check_declared(name: str, settings: Mapping[str, object]) -> None:
    """Raise an error if the objective is unknown or does not have one of the settings."""
    objectives = declared()
    if name.lower() not in objectives:
        raise unknown_objective(name, objectives)
    allowed = {*objectives[name.lower()], *PARTS, *FORMS}
    for key in settings:
        if key not in allowed:
            raise unknown_setting(name, key, allowed)


def unknown_objective(name: str, objectives: Collection[str]) -> InputError:
    """Return the error for an objective that does not exist."""
    return InputError(
        f"unknown objective {name!r}{nearest(name.lower(), objectives, alike=0.6)}; if a file of "
        f"yours defines it, add `--plugin FILE`; known: {', '.join(sorted(objectives))}"
    )


def unknown_setting(name: str, key: str, allowed: Collection[str]) -> InputError:
    """Return the error for a setting that an objective does not have."""
    return InputError(unknown(f"objective {name} has no setting", key, sorted(allowed)))
