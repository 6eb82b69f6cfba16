"""Reads a run folder: its settings, log and result into a :class:`Run`, and its diagnosis."""

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isotrope.core.documents import read_json, read_text, read_yaml
from isotrope.core.errors import InputError
from isotrope.core.legible import legible
from isotrope.core.metrics_log import read_lines, read_log
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.diagnostics.findings import Diagnosis
from isotrope.measures.judgement import Judgement, judgement_of

HELD_OUT_BY = ("files", "columns", "groups", "views", "streaming", "holdout")
"""Settings that, with the seed, determine the data of ``--dev auto``."""

Series = NDArray[np.float64]

_LARGEST = 1e100  # larger numbers, which cannot come from float32, would overflow the axes

IMAGES = "train-images"
"""Kind of the result of a training on images; for text it is ``train``."""


@dataclass(frozen=True)
class Run:
    """One training run, as read from its folder.

    Attributes:
        name: The folder's name, with the name of a data set or loss if the folder has several.
        folder: Folder from which the run was read.
        settings: Settings in config.yaml that had an effect. If another trainer wrote the log:
            trainer, loss and temperature, as far as the Doctor recorded them.
        steps: Numbers of the t logged steps, in ascending order.
        series: A dict from column of metrics.csv to t values, NaN at steps without a measurement.
        result: Contents of result.json; None if the run is in progress or was stopped.
        judgement: Whether training helped; None if no scores were stored.
        first: Whether this is the first run of its folder, with which the diagnosis is shown.
        whole: The folder's name, if it has several runs.
    """

    name: str
    folder: Path
    settings: Mapping[str, Any]
    steps: Series
    series: Mapping[str, Series]
    result: Result | None
    judgement: Judgement | None = None
    first: bool = True
    whole: str = ""

    @property
    def outcome(self) -> str:
        """Outcome of the judgement, such as ``"improved"``; ``"not known"`` without a judgement."""
        return "not known" if self.judgement is None else self.judgement.outcome

    @property
    def weights(self) -> str | None:
        """The fingerprint of the saved weights; None if it is not known."""
        model = self.result.details.get("model") if self.result else None
        fingerprint = model.get("fingerprint") if isinstance(model, Mapping) else None
        return None if fingerprint is None else str(fingerprint)

    @property
    def finished(self) -> bool:
        """Whether the run has written its result."""
        return self.result is not None

    @property
    def foreign(self) -> bool:
        """Whether another trainer wrote the log, so that isotrope's settings are not known."""
        return self.result is None and ("trainer" in self.settings or not self.settings)

    @property
    def of_images(self) -> bool:
        """Whether the run is a training on images."""
        if self.result is not None:
            return self.result.kind == IMAGES
        return "data" in self.settings and "files" not in self.settings

    @property
    def method(self) -> str:
        """The training method of a run on images, and the value of ``--cut`` if it is not 1."""
        details = self.result.details if self.result else {}
        recorded = details.get("method", self.settings.get("method", ""))
        name = str(recorded.get("name", "?") if isinstance(recorded, Mapping) else recorded)
        cut = details.get("cut", self.settings.get("cut"))
        c = cut.get("c") if isinstance(cut, Mapping) else cut
        cut_text = f"cut {c:g}" if isinstance(c, (int, float)) and c != 1 else ""
        return ", ".join(part for part in (name, cut_text) if part)

    @property
    def objective(self) -> str:
        """Registered name of the objective; ``"?"`` if it is not known."""
        return str(self._objective().get("name", "?"))

    @property
    def parameters(self) -> dict[str, Any]:
        """Hyperparameters of the objective."""
        parameters = self._objective().get("parameters")
        return dict(parameters) if isinstance(parameters, Mapping) else {}

    @property
    def score_name(self) -> str:
        """The name of the kind of score that a run on text or images measures."""
        return "kNN accuracy" if self.of_images else "dev score"

    @property
    def dev_name(self) -> str:
        """The name of the dev score, e.g. ``"dev STS Spearman (dev.tsv)"``; ``""`` if unknown."""
        if self.of_images:
            return "kNN accuracy"
        return self._dev("name")

    @property
    def dev_data(self) -> str:
        """Fingerprint of the dev data. Dev scores with equal fingerprints are comparable."""
        if self.of_images:
            return str(self.result.provenance.get("data")) if self.result else ""
        return self._dev("data")

    @property
    def scores(self) -> Series:
        """The dev score (for images, the kNN accuracy) at each step; NaN if none was measured."""
        return self.series.get("knn" if self.of_images else "dev", np.full_like(self.steps, np.nan))

    @property
    def dev_settings(self) -> str:
        """The settings that determine the dev data, as text, to compare runs without a result."""
        names = ("data",) if self.settings.get("dev") != "auto" else (*HELD_OUT_BY, "seed")
        return str([self.settings.get(name) for name in ("dev", *names)])

    @property
    def saved(self) -> str:
        """Name of the saved model's score: ``dev_best`` or, for images, ``dev_final``.

        For images, the last step is saved, because the test part must not be used to choose a step.
        """
        return "dev_final" if self.of_images else "dev_best"

    @property
    def saved_step(self) -> float | None:
        """The step of the saved model; None if no step was scored."""
        if not self.of_images:
            return self.metric("dev_best_step")
        measured = self.steps[np.isfinite(self.scores)]
        return float(measured[-1]) if len(measured) else None

    def metric(self, name: str) -> float | None:
        """Return a number of result.json or, during a run, of the log; None if it is missing.

        For a run on images, ``dev_best`` and similar names stand for ``knn_best`` and so on.
        """
        if self.result is not None:
            column = name.replace("dev_", "knn_", 1) if self.of_images else name
            value = self.result.metrics.get(column)
            return value if isinstance(value, (int, float)) and math.isfinite(value) else None
        return self._so_far().get(name) if name.startswith("dev_") else self.last(name)

    def last(self, column: str) -> float | None:
        """Return the last finite value of a column of metrics.csv; None if no value is finite."""
        values = self.series.get(column, np.empty(0))
        values = values[np.isfinite(values)]
        return float(values[-1]) if len(values) else None

    def _dev(self, key: str) -> str:
        dev = self.result.details.get("dev") if self.result else None
        return str(dev.get(key) or "") if isinstance(dev, Mapping) else ""

    def _so_far(self) -> dict[str, float]:
        """Return the dev numbers of a run that has not written its result."""
        dev = self.scores
        measured = np.flatnonzero(np.isfinite(dev))
        if not len(measured):
            return {}
        best = measured[np.argmax(dev[measured])]
        numbers = {
            "dev_best": dev[best],
            "dev_best_step": self.steps[best],
            "dev_final": dev[measured[-1]],
        }
        if self.steps[measured[0]] == 0:
            numbers["dev_start"] = dev[measured[0]]
        return {name: float(value) for name, value in numbers.items()}

    def _objective(self) -> dict[str, Any]:
        """Return name and parameters from the result or, without a result, from the settings."""
        recorded = self.result.details.get("objective") if self.result else None
        if isinstance(recorded, Mapping):
            return dict(recorded)
        prefix = "objective."
        dotted = {
            str(key).removeprefix(prefix): value
            for key, value in self.settings.items()
            if str(key).startswith(prefix)
        }
        return {"name": self.settings.get("objective") or "?", "parameters": dotted}


def dev_digits(runs: Sequence[Run]) -> int:
    """Return the number of decimals of dev scores: two for percentages, four for fractions."""
    scores = [value for run in runs if (value := run.metric("dev_best")) is not None]
    return 2 if max((abs(score) for score in scores), default=0.0) > 1 else 4


def read_run(folder: Path) -> Run:
    """Read a run folder."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            f"give the `--output` folder of `isotrope train`; {folder} is not a folder"
        )
    RunFolder(folder).check()
    result_file = RunFolder(folder).result
    result = Result.load(result_file) if os.path.lexists(result_file) else None
    if result is not None and result.kind not in ("train", IMAGES):
        raise InputError(
            f"give the `--output` folder of `isotrope train`; {result_file} is the result of "
            f"another command ({result.kind})"
        )
    name = legible(folder.resolve().name)
    watched = RunFolder(folder).recording() if result is None else None
    if watched is not None:  # the output folder of another trainer
        folder = watched.path
    log = read_log(RunFolder(folder).metrics, complete=result is not None)
    (steps, series), run = _arrays(*log), RunFolder(folder)
    settings = _in_effect(read_yaml(run.config), result) if run.is_begun else _recorded(folder)
    judgement = judgement_of(folder, result.details if result is not None else None)
    return Run(name, folder, settings, steps, series, result, judgement)


def _in_effect(settings: Mapping[str, Any], result: Result | None) -> dict[str, Any]:
    """Return the settings that had an effect; ``refit`` is whether a second training was made."""
    unused = {"epochs": settings.get("max-steps"), "holdout": not settings.get("holdout")}
    if result is not None and settings.get("refit"):
        second = result.details.get("refit", False)
        settings = {**settings, "refit": "no time" if second is None else bool(second)}
    return {name: value for name, value in settings.items() if not unused.get(name)}


def read_runs(folder: Path) -> list[Run]:
    """Read a run folder: one run, or one for each data set or loss that the Doctor measured."""
    run = read_run(folder)
    names = run.settings.get("series") if run.foreign else None
    if not isinstance(names, list) or len(names) < 2:
        return [run]
    lines = read_lines(RunFolder(run.folder).metrics, complete=False)[1]
    runs = []
    for place, name in enumerate(map(str, names)):
        rows: dict[float, dict[str, float]] = {}
        for step, row in lines:
            own = row.get("series", 0) == place
            rows.setdefault(step, {}).update({k: v for k, v in row.items() if own or k == "dev"})
        rows = {step: row for step, row in rows.items() if row}
        steps, series = _arrays(list(run.series), rows)
        named = f"{run.name}: {name.removeprefix('of ')}"
        part = replace(run, name=named, steps=steps, series=series)
        settings = _recorded(run.folder, name)
        runs.append(replace(part, whole=run.name, first=not place, settings=settings))
    return runs


def _recorded(folder: Path, series: str | None = None) -> dict[str, Any]:
    """Return trainer, loss and temperature (of a data set) that the Doctor recorded, if it did."""
    with suppress(InputError, LookupError, TypeError, ValueError, AttributeError):
        record = read_json(RunFolder(folder).diagnosis)
        losses = record["loss"] if isinstance(record["loss"], list) else [record["loss"]]
        loss, *_ = [x for x in losses if series is None or x.get("series") == series] or [{}]
        heat = loss.get("temperature")  # read from the gradient, so the last digits vary
        rounded = None if heat is None else float(f"{heat:.3g}")
        own = {"objective": loss.get("name"), "objective.temperature": rounded}
        known = {name: record["settings"].get(name) for name in ("trainer", "series")} | own
        return {name: value for name, value in known.items() if value is not None}
    return {}


def read_diagnosis(folder: Path) -> Diagnosis | None:
    """Read the diagnosis of a run folder, or return None if the run was not diagnosed."""
    path = RunFolder(folder).diagnosis
    if not os.path.lexists(path):
        return None
    text = read_text(path)
    try:
        return Diagnosis.from_json(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"run `{diagnose_command(folder)}` again: {path} is not a diagnosis "
            f"({type(error).__name__}: {error})"
        ) from error


def diagnose_command(folder: Path) -> str:
    """Return the command that diagnoses a run."""
    return shlex.join(["isotrope", "diagnose", str(folder)])


def _arrays(
    names: Sequence[str], rows: Mapping[float, Mapping[str, float]]
) -> tuple[Series, dict[str, Series]]:
    series = {
        name: np.array([row.get(name, math.nan) for row in rows.values()], dtype=np.float64)
        for name in names
    }
    for values in series.values():
        values[np.abs(values) > _LARGEST] = np.nan
    return np.array(list(rows), dtype=np.float64), series
