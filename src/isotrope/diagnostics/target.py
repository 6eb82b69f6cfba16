"""Diagnoses a run or a model, given by its name or folder, and saves the diagnosis of a run."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from isotrope.core.errors import InputError
from isotrope.core.files import write_text
from isotrope.core.run_folder import RunFolder
from isotrope.diagnostics import doctor
from isotrope.diagnostics.audit.rows import read_rows
from isotrope.diagnostics.evidence import datasets_of
from isotrope.diagnostics.examine import examine
from isotrope.diagnostics.findings import Diagnosis
from isotrope.encoders.sentence import SentenceEncoder, saved_prompts
from isotrope.evaluation.uncover import Uncovered, uncover_records
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective


def diagnose(
    target: str | os.PathLike[str],
    *,
    data: str | Path | None = None,
    columns: Sequence[str] | None = None,
    objective: str | Objective | None = None,
    objective_settings: Mapping[str, float | str] | None = None,
    plugins: Sequence[str | Path] = (),
    progress: bool = False,
) -> Diagnosis:
    """Diagnose a run or a model: return its faults, root cause first, and propose changes.

    For a run, the log, the dev scores, the settings and the saved model are examined, and the file
    ``diagnosis.json`` is written for ``isotrope.report``. For a model, some data are embedded. For
    a text model with ``data``, the attribute ``model`` of the result also has statistics of the
    embeddings (Li et al., 2024) and the gain from whitening.

    Args:
        target: Run folder, outcome of ``isotrope.fit``, model folder, or name of a model.
        data: Texts, pairs or images to embed instead of a run's own data. By default, a text model
            embeds pairs from the docstrings of Python's standard library.
        columns: Columns to read if ``data`` is a table.
        objective: Objective whose gradient is measured; by default, the objective of the run.
        objective_settings: Settings of the objective, if it is given by name.
        plugins: Python files that define objectives. No other plugin of the run is executed.
        progress: Whether to print a line on stderr before the reading and embedding begin.

    Raises:
        InputError: ``target`` is neither a run nor a model, or the data cannot be read.
    """
    registry.load_plugins(plugins)
    if isinstance(objective, str):
        objective = registry.build(objective, objective_settings)
    elif objective_settings:
        raise InputError("give the objective by its name, or leave out objective_settings")
    name = os.fspath(target)
    run = RunFolder(name).is_run
    if progress:
        print(f"reading {name}, and embedding some of the data", file=sys.stderr)
    source = None if data is None else str(data)
    parts = {
        dataset: doctor.diagnose(
            examine(name, data=source, columns=columns, objective=objective, dataset=dataset)
        )
        for dataset in (datasets_of(Path(name)) if run else []) or [""]
    }
    diagnosis = parts[""] if "" in parts else doctor.together(parts)
    if run:
        _keep(diagnosis, RunFolder(name).diagnosis)
    if not diagnosis.model or data is None:
        return diagnosis
    found = _uncovered(name, Path(data), columns)
    return replace(diagnosis, model={**diagnosis.model, "uncovered": asdict(found)})


def _uncovered(model: str, data: Path, columns: Sequence[str] | None) -> Uncovered:
    """Return what whitening the model's embeddings of some data gains."""
    rows = read_rows(data, columns=columns, views="auto")
    encoder = SentenceEncoder.load(model)
    prompts = saved_prompts(encoder.model) if rows.views == "pairs" else ("", "")
    encoder.check_prompts(*prompts)
    return uncover_records(encoder, rows.texts, rows.views, prompts=prompts)


def _keep(diagnosis: Diagnosis, path: Path) -> None:
    """Write the diagnosis to the run's folder; warn if that is impossible."""
    try:
        write_text(path, diagnosis.to_json())
    except (InputError, OSError) as error:
        print(f"isotrope: warning: the diagnosis is not saved: {error}", file=sys.stderr)
