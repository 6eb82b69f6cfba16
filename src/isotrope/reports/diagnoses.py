"""Reads the diagnoses that ``isotrope diagnose`` wrote into run folders, and writes sentences."""

import math
import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from isotrope.core.documents import read_text
from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder
from isotrope.diagnostics.findings import Diagnosis, Evidence
from isotrope.reports.comparison import number

_MOST_NAMED = 3  # runs whose faults are named in the summary


def pill(diagnosis: Diagnosis, outcome: str) -> tuple[str, str]:
    """Return text and CSS class of the coloured label, which is green if nothing is wrong."""
    words = diagnosis.words if outcome == "not known" else f"{diagnosis.words}; {outcome}"
    if not diagnosis.healthy or outcome == "worse":
        return words, "faulty"
    return words, "even" if outcome == "within noise" else "healthy"


def command(folder: Path) -> str:
    """Return the command that diagnoses a run."""
    return shlex.join(["isotrope", "diagnose", str(folder)])


def summary(diagnoses: Sequence[tuple[str, Diagnosis | None]], worse: Collection[str] = ()) -> str:
    """Return a summary: which runs are healthy; empty if no run has a diagnosis."""
    diagnosed = [(name, diagnosis) for name, diagnosis in diagnoses if diagnosis is not None]
    unhealthy = [(name, diagnosis) for name, diagnosis in diagnosed if not diagnosis.healthy]
    if not diagnosed:
        return ""
    if len(diagnoses) == 1:
        but = (
            ", but training made the model worse"
            if diagnosed[0][0] in worse and not unhealthy
            else ""
        )
        return f"{diagnosed[0][1].words.capitalize()}{but}."
    fell = [name for name, diagnosis in diagnosed if diagnosis.healthy and name in worse]
    but = f", but training made worse: {', '.join(fell)}" if fell else ""
    if not unhealthy and len(diagnosed) == len(diagnoses):
        return f"All {len(diagnosed)} runs are healthy{but}."
    fine, unknown = len(diagnosed) - len(unhealthy), len(diagnoses) - len(diagnosed)
    causes = "".join(f"{name}: {diagnosis.words}. " for name, diagnosis in unhealthy[:_MOST_NAMED])
    if len(unhealthy) > _MOST_NAMED:
        causes += f"{len(unhealthy) - _MOST_NAMED} more are not healthy. "
    rest = f", {unknown} not diagnosed" if unknown else ""
    are = "is" if fine == 1 else "are"
    return f"{causes}{fine} of {len(diagnoses)} runs {are} healthy{rest}{but}."


def read_diagnosis(folder: Path) -> Diagnosis | None:
    """Read the diagnosis of a run folder; None if there is none."""
    path = RunFolder(folder).diagnosis
    if not os.path.lexists(path):
        return None
    text = read_text(path)
    try:
        return Diagnosis.from_json(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"run `{command(folder)}` again: {path} is not a diagnosis "
            f"({type(error).__name__}: {error})"
        ) from error


def table_row(evidence: Evidence) -> tuple[str, str, str]:
    """Return a measured number as a row: name, value, and threshold (or an empty text)."""
    unit = f" {evidence.unit}" if evidence.unit else ""
    limit = evidence.threshold
    against = "" if limit is None else f"{evidence.side} {_number(limit)}".strip()
    return evidence.words, f"{_number(evidence.number)}{unit}", against


def _number(value: float) -> str:
    """Return a number with four significant digits."""
    if not math.isfinite(value):
        return "not finite"
    without_decimals = value == round(value) or abs(value) >= 1000
    if without_decimals:
        return number(value, 0)
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}")
