"""Embeds data into the page: the runs as JSON, the style sheet, and the one script."""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from isotrope.diagnostics.findings import Diagnosis
from isotrope.reports.panels import Scale
from isotrope.reports.plots import styles
from isotrope.reports.runs import Run


def source(name: str) -> Markup:
    """Return a file of this folder for the page."""
    text = files("isotrope.reports").joinpath(name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - our own file, without words of users


def permission(script: str) -> Markup:
    """Return the content security policy source that allows only this script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")  # noqa: S704 - letters, digits, +, / and =


def data(
    runs: Sequence[Run],
    diagnoses: Sequence[Diagnosis | None],
    scales: Mapping[str, Scale],
) -> Markup:
    """Return all shown data as JSON that cannot close its script element."""
    records = [
        {
            "name": run.name,
            "colour": style.colour,
            "method": run.method,
            "objective": run.objective,
            "parameters": run.parameters,
            "settings": run.settings,
            "steps": _short(run.steps),
            "series": {name: _short(values) for name, values in run.series.items()},
            "metrics": run.result.metrics if run.result else None,
            "details": run.result.details if run.result else None,
            "provenance": run.result.provenance if run.result else None,
            "diagnosis": None if diagnosis is None else json.loads(diagnosis.to_json()),
        }
        for run, style, diagnosis in zip(runs, styles(len(runs)), diagnoses, strict=True)
    ]
    page = {"runs": records, "scales": {key: asdict(scale) for key, scale in scales.items()}}
    text = json.dumps(page, ensure_ascii=False, separators=(",", ":"), default=str)
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Markup(safe)  # noqa: S704 - JSON without any "<"


def _short(values: NDArray[np.float64]) -> list[float | None]:
    """Return six significant digits of each value, None where nothing was measured."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
