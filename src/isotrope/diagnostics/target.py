"""Diagnoses a run or a model by its name, and saves a run's diagnosis."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace
from isotrope.diagnostics import doctor
from isotrope.diagnostics.evidence import datasets_of, is_run
from isotrope.diagnostics.examine import examine
from isotrope.diagnostics.findings import Diagnosis, together
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

__all__ = ["diagnose"]


def diagnose(
    target: str | os.PathLike[str],
    *,
    data: str | Path | None = None,
    columns: Sequence[str] | None = None,
    objective: str | Objective | None = None,
    objective_settings: Mapping[str, float | str] | None = None,
    plugins: Sequence[str | Path] = (),
) -> Diagnosis:
    """Return the diagnosis of a run or a model; see :func:`isotrope.verbs.diagnose`."""
    for plugin in plugins:
        registry.load_plugin(Path(plugin))
    if isinstance(objective, str):
        objective = registry.build(objective, objective_settings)
    elif objective_settings:
        raise InputError("objective_settings are those of an objective that is given by its name")
    name = os.fspath(target)
    run = is_run(Path(name))
    source = None if data is None else str(data)
    parts = {
        dataset: doctor.diagnose(
            examine(name, data=source, columns=columns, objective=objective, dataset=dataset)
        )
        for dataset in (datasets_of(Path(name)) if run else []) or [""]
    }
    diagnosis = parts[""] if "" in parts else together(parts)
    if run:
        _keep(diagnosis, Path(name) / "diagnosis.json")
    return diagnosis


def _keep(diagnosis: Diagnosis, path: Path) -> None:
    """Write the diagnosis beside the run; a folder that cannot be written is not a obstacle."""
    try:
        with atomic_replace(path) as temporary:
            temporary.write_text(diagnosis.to_json(), encoding="utf-8")
    except (InputError, OSError) as error:
        print(f"isotrope: warning: the diagnosis is not kept: {error}", file=sys.stderr)
