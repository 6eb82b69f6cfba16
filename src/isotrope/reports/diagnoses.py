"""Reads the diagnoses of ``isotrope diagnose RUN`` from run folders, and words them."""

import json
import math
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isotrope.core.documents import read_text
from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder
from isotrope.reports.comparison import number

__all__ = [
    "StoredDiagnosis",
    "StoredFinding",
    "command",
    "pill",
    "read_diagnosis",
    "summary",
]

_HEALTHY = "healthy"
_MOST_NAMED = 3  # runs whose causes stand in the first sentence


@dataclass(frozen=True)
class StoredFinding:
    """One cause of trouble.

    Attributes:
        title: its name.
        detail: what happened and why the change helps.
        evidence: rows of name, number found and what it was compared with (or an empty text).
        source: where the threshold comes from.
        change: what to change.
    """

    title: str
    detail: str
    evidence: tuple[tuple[str, str, str], ...]
    source: str
    change: str


@dataclass(frozen=True)
class StoredDiagnosis:
    """The verdict on a run (``healthy`` first, or the causes, the first one first) and why.

    ``numbers`` are the key numbers of a healthy run, as evidence of a finding.
    """

    verdict: tuple[str, ...]
    findings: tuple[StoredFinding, ...]
    numbers: tuple[tuple[str, str, str], ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return self.verdict[:1] == (_HEALTHY,)

    @property
    def words(self) -> str:
        """The verdict in words: ``collapsed, losing pull``."""
        return ", ".join(cause.replace("-", " ") for cause in self.verdict)


def pill(diagnosis: StoredDiagnosis, outcome: str) -> tuple[str, str]:
    """Return the words of the pill and its class: green only where nothing speaks against it.

    Args:
        diagnosis: of the run.
        outcome: whether training helped, in the words of the judgement.
    """
    words = diagnosis.words if outcome == "not known" else f"{diagnosis.words}; {outcome}"
    if not diagnosis.healthy or outcome == "worse":
        return words, "faulty"
    return words, "even" if outcome == "within noise" else "healthy"


def command(folder: Path) -> str:
    """Return the command that diagnoses a run."""
    return shlex.join(["isotrope", "diagnose", str(folder)])


def summary(
    diagnoses: Sequence[tuple[str, StoredDiagnosis | None]], worse: Collection[str] = ()
) -> str:
    """Return one sentence on the health of the runs; empty if none has a diagnosis.

    Args:
        diagnoses: name and diagnosis of each run.
        worse: names of the runs that training made worse.
    """
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


def read_diagnosis(folder: Path) -> StoredDiagnosis | None:
    """Read the diagnosis of a run folder; None if there is none.

    Raises:
        InputError: the file is damaged.
    """
    path = RunFolder(folder).diagnosis
    if not os.path.lexists(path):
        return None
    text = read_text(path)
    try:
        record = json.loads(text)
        verdict = tuple(str(word) for word in record["verdict"])
        findings = tuple(_finding(finding) for finding in record["findings"])
        # an older version wrote none
        numbers = tuple(_evidence(row) for row in record.get("numbers", ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} is not a diagnosis ({type(error).__name__}: {error}); "
            f"run `{command(folder)}` again"
        ) from error
    return StoredDiagnosis(verdict, findings, numbers)


def _finding(record: Mapping[str, Any]) -> StoredFinding:
    return StoredFinding(
        str(record["verdict"]).replace("-", " ").capitalize(),
        str(record["detail"]),
        tuple(_evidence(row) for row in record["evidence"]),
        str(record["source"]),
        str(record["change"]),
    )


def _evidence(row: Mapping[str, Any]) -> tuple[str, str, str]:
    unit = f" {row['unit']}" if row.get("unit") else ""
    against = ""
    if row.get("threshold") is not None:
        against = f"{row.get('side', '')} {_number(row['threshold'])}".strip()
    label = str(row.get("label") or row["name"].replace("_", " "))
    return label, f"{_number(row['number'])}{unit}", against


def _number(value: float | None) -> str:
    """Return a number in four significant digits."""
    if value is None or not math.isfinite(value):
        return "not finite"
    without_decimals = value == round(value) or abs(value) >= 1000
    if without_decimals:
        return number(value, 0)
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}")
