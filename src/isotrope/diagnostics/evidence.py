"""The RunEvidence record: the rows, settings, scores and measurements behind a diagnosis.

The record is filled from a run folder (settings, metrics.csv, result.json) or from the rows that
``isotrope.Doctor`` measured in another trainer. :mod:`isotrope.diagnostics.probe` also measures the
saved encoder and the initial encoder on a sample of the data.
"""

import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from isotrope.core.errors import InputError
from isotrope.core.hyper import hypers
from isotrope.core.metrics_log import read_log
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.core.spelling import brief, with_folder
from isotrope.data.sources import dataset_files
from isotrope.diagnostics.findings import MISSED, unfinished
from isotrope.diagnostics.observe import loss_column
from isotrope.measures.judgement import Judgement, judgement_of
from isotrope.paradigm import registry
from isotrope.paradigm.declared import objectives_by_dataset
from isotrope.paradigm.objective import Objective

Row = Mapping[str, float | None]
Logged = dict[str, float | None]
Kind = Literal["text", "images", ""]

_WHOLE = 1.001  # a dissipation above this exceeds 1 by more than rounding
_LARGEST = 1e30  # a larger measurement of embeddings means an overflow


def sane(value: float) -> bool:
    """Return whether a number is a plausible measurement: between -1e30 and 1e30, not NaN."""
    return math.isfinite(value) and abs(value) <= _LARGEST


@dataclass(frozen=True)
class Words:
    """The names of settings in the user's trainer. A diagnosis proposes changes in these words.

    Attributes:
        inverse: Whether the trainer asks for 1/temperature instead of the temperature.
        cached: Advice on saving memory, printed if a contrastive loss should get larger batches.
        contrastive_name: Text that occurs in the name of each contrastive loss of the trainer.
        without_labels: Advice on a column of labels; follows the name of a contrastive loss.
    """

    temperature: str = "similarities divided by a temperature of {}"
    inverse: bool = False
    rate: str = "a learning rate of {}"
    batch: str = "a batch of {} rows"
    cached: str = ""
    negatives: str = "a column of hard negatives in the data"
    harder: str = "harder negatives"
    margin: str = "a margin of {}"
    contrastive: str = "a loss with in-batch negatives"
    contrastive_name: str = ""
    without_labels: str = ""
    copies: str = "batches without two copies of an input"
    views: str = "two different inputs in each row, or dropout switched on"
    related: str = "rows whose inputs belong together"
    shorter: str = "a last layer with tanh, which bounds the norm, or a lower learning rate"
    best: str = "fewer steps, or the checkpoint of the best score"

    def of_temperature(self, better: float, now: float | None) -> str:
        """Return words that propose a temperature; ``now`` is the present value, if known."""
        values = [None if x is None else 1 / x if self.inverse else x for x in (better, now)]
        return self.instead(self.temperature, *values)

    def instead(self, words: str, better: float | None, now: float | None) -> str:
        """Return ``words`` with the proposed value and, if it is known, the present value."""
        return words.format(f"{better:.3g}") + ("" if now is None else f" (now {now:.3g})")


@dataclass(frozen=True)
class RunEvidence:
    """The measurements and settings of a training or a model, which the rules of verdicts read.

    Attributes:
        kind: Kind of the inputs: ``text`` or ``images``; ``""`` if unknown.
        rows: Dicts from columns of metrics.csv to numbers, one for each logged step, in order.
        scores: Pairs (step, dev score or kNN accuracy), out of 100; larger is better.
        settings: Settings of the training, named as in config.yaml (hyphens).
        details: The field ``details`` of result.json; empty if there is no result.json.
        objective: Objective of the training; None if unknown.
        probe: Measurements of the saved encoder on a sample of the data: a dict with columns of
            metrics.csv, ``mean_cosine``, ``copies``, ``count`` and ``dimension``; or None.
        start: The same measurements of the encoder before training; None if not measured.
        judgement: Whether training helped; None if the run has no scores.
        losses: One dict for each loss of a training in another trainer. The possible keys are
            ``name``, ``family``, ``temperature``, ``misfit`` and ``negatives``.
        model: ``model_geometry`` and ``uncovered`` of a model on given data; otherwise empty.
        notes: Lines on what was examined and what could not be examined.
        resumable: Whether the run has no result.json, so that ``--resume`` continues it.
    """

    kind: Kind = ""
    rows: Sequence[Row] = ()
    scores: Sequence[tuple[int, float]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    objective: Objective | None = None
    probe: Row | None = None
    start: Row | None = None
    judgement: Judgement | None = None
    losses: tuple[Mapping[str, Any], ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    resumable: bool = False
    words: Words = Words()

    def series(self, column: str) -> list[float]:
        """Return the plausible values of a column, in the order of steps."""
        values = (row.get(column) for row in self.rows)
        return [value for value in values if value is not None and sane(value)]

    def first(self, column: str) -> float | None:
        """Return a column's first logged value. If no value is logged, return that of ``start``."""
        values = self.series(column)
        return values[0] if values else (self.start or {}).get(column)

    def early(self, column: str) -> float | None:
        """Return the median of a column in the first third of the steps, without the first step."""
        values = self.series(column)
        return statistics.median(values[1 : 1 + max(1, len(values) // 3)]) if values[1:] else None

    def end(self, column: str) -> float | None:
        """Return a column's median in the last third of the log; without one, ``probe``'s value."""
        values = self.series(column)
        last = values[-max(1, len(values) // 3) :]
        return statistics.median(last) if last else (self.probe or {}).get(column)

    @property
    def batch_size(self) -> int | None:
        """The batch size. If it is unknown: the number of embeddings measured for ``probe``."""
        size = self.details.get("batch_size", self.settings.get("batch-size"))
        size = (self.probe or {}).get("count") if size is None else size
        return None if size is None else int(size)


def without_unknown_units(rows: list[Logged]) -> list[Logged]:
    """Return rows without the numbers that contain an unknown factor or rest on unknown labels."""
    labelled = sum(bool(row["label_gap"] or row["graded_gap"]) for row in rows)
    fitting = sum(row["unexplained"] is not None for row in rows)
    if 10 * fitting < 9 * labelled or 3 * fitting < len(rows):
        chance: Logged = {"unexplained": None, "label_gap": None}  # as large as a squared error
        rows = [row if row["unexplained"] is None else row | chance for row in rows]
    above = [(row["dissipation"] or 0) > _WHOLE for row in rows]
    mostly = 2 * sum(above) > sum(row["dissipation"] is not None for row in rows)
    unknown: Logged = {"dissipation": None, "dead": None}
    return [row | unknown if mostly or x else row for row, x in zip(rows, above, strict=True)]


def of_run(folder: Path, dataset: str = "") -> RunEvidence:
    """Return the evidence in the files of a run folder; no encoder is measured."""
    folder, files = Path(folder), RunFolder(folder)
    settings = files.settings()
    finished = files.result.is_file()
    details = Result.load(files.result).details if finished else {}
    kind: Kind = "images" if "data" in settings and "files" not in settings else "text"
    log = read_log(files.metrics, complete=finished)[1]
    rows: list[Row] = [{"step": step, **row} for step, row in log.items()]
    column = "knn" if kind == "images" else "dev"
    scores = [(int(row["step"] or 0), v) for row in rows if (v := row.get(column)) is not None]
    measured = [row for row in rows if row.get(loss_column(dataset)) is not None]
    objective, objective_notes = _objective(settings, details, folder, dataset)
    of_dataset = f" of data set {dataset}" if dataset else ""
    notes = [f"{len(measured)} logged steps{of_dataset}"]
    notes.append(f"{len(scores)} scores" if scores else "no dev score")
    advice = with_folder(str(details.get("next") or ""), shlex.quote(str(folder)))
    if "train longer" in advice:
        notes.append(f"the training ended with this advice: {advice}")
    if not finished:
        notes.append(unfinished(max(log, default=0), settings.get("max-steps")))
    return RunEvidence(
        kind=kind,
        rows=measured,
        scores=scores,
        settings=settings,
        details=details,
        objective=objective,
        judgement=judgement_of(folder, details if finished else None),
        notes=(*notes, *objective_notes),
        resumable=not finished,
    )


def _objective(
    settings: Mapping[str, Any], details: Mapping[str, Any], folder: Path, dataset: str
) -> tuple[Objective | None, list[str]]:
    """Return the objective with its parameters, or None and a note on why it is missing."""
    if settings.get("loss"):
        return None, [f"the gradient components of the loss {settings['loss']} are not logged"]
    recorded = details.get("objective")
    recorded = recorded if isinstance(recorded, Mapping) else {}
    name = recorded.get("name") or settings.get("objective")
    if name is None:
        return None, ["the objective is not known"]
    if not isinstance(name, str):
        raise InputError(
            f"restore the name of the objective in result.json or config.yaml of {folder}: found "
            f"{brief(name)}"
        )
    requested = {k[10:]: v for k, v in settings.items() if k.startswith("objective.")}
    saved = {k: v for k, v in (recorded.get("parameters") or {}).items() if v is not None}
    try:
        registry.check_plugins(settings.get("plugin"), folder)
        if dataset:
            names = dataset_files(_files(settings))
            name, requested = objectives_by_dataset(name, requested, names)[dataset]
            start = f"{dataset}."
            saved = {k.removeprefix(start): v for k, v in saved.items() if k.startswith(start)}
        fields = hypers(registry.find(name))
        saved_parameters = {k: v for k, v in saved.items() if k in fields}
        return registry.build(name, {**saved_parameters, **requested}), []
    except (ValueError, TypeError) as error:
        why = " ".join(str(error).split())
        return None, [f"{MISSED}the objective {name} cannot be built: {why}"]


def datasets_of(folder: Path) -> list[str]:
    """Return the names of the data sets of a run on text; an empty list if they have no names."""
    names = dataset_files(_files(RunFolder(folder).settings()))
    return [name for name in names if name]


def _files(settings: Mapping[str, Any]) -> list[str]:
    files = settings.get("files", [])
    return [str(file) for file in files] if isinstance(files, list) else [str(files)]
