"""The log of :class:`isotrope.Doctor`: one row for each measured batch, and the log's folder."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import asdict, replace
from itertools import combinations
from math import isfinite, prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor

from isotrope.core.autograd import places_of_large
from isotrope.core.distributed import local_norm, local_part
from isotrope.core.errors import InputError
from isotrope.core.files import write_text
from isotrope.core.legible import csv_text
from isotrope.core.metrics_log import read_lines
from isotrope.core.result import json_text
from isotrope.core.run_folder import RunFolder
from isotrope.diagnostics.evidence import RunEvidence, Words, without_unknown_units
from isotrope.diagnostics.findings import Diagnosis, unfinished
from isotrope.diagnostics.metrics import columns
from isotrope.diagnostics.seen import measure_compared, measure_known
from isotrope.diagnostics.seen_labels import measure_margin, measure_scored
from isotrope.paradigm import registry
from isotrope.paradigm.compared import Compared, SoftmaxEvidence
from isotrope.paradigm.graph_reading import BatchReadings, GraphReading
from isotrope.paradigm.objective import Objective

COLUMNS = (*columns("doctor"), "series")
"""The columns of a row: those of a training on text, those that only the Doctor measures, and the
place of the data set or loss in ``settings["series"]``, counted from 0 (the first has None)."""

_TARGETS = (
    "the loss only pulls embeddings towards targets that get no gradient, so the Doctor cannot see "
    "what keeps the embeddings from collapsing (for example, a predictor)"
)
_LEFT_OUT = 0.02  # share of the gradient; if other terms have more, the pairs are not judged
_AGAIN = 0.05  # share of a batch's texts; a larger share that came before ends the first epoch
_MOST_TEXTS = 1_000_000
_LIE = {"norm", "std", "uniformity", "effective_rank", "embedding_gradient", "radial"}

Row = dict[str, float | None]


class _WeightState(NamedTuple):
    norm: float
    version: int  # torch raises it when it writes into the weight


class _BeforeStep(NamedTuple):
    """Large values of a weight's gradient, and the weight's values at the same places."""

    weight: Tensor
    size: int
    places: Tensor
    values: Tensor
    gradient: Tensor


class Anatomy:
    """The rows of metrics.csv, measured on the pairs of embeddings that a loss compares.

    The gradient on an anchor has three components: a factor GD (gradient dissipation), the weights
    of the negatives, and the ratio of pull to push. Objectives of isotrope have formulas for the
    components. For another loss, components and temperature are computed from the gradients of the
    compared pairs; they are None if these pairs explain less than 98% of the gradient. The mean
    ratio is over the anchors with GD >= 0.01: if GD is smaller, rounding dominates the ratio.

    Args:
        every: Number of steps from one measured batch to the next, counted for each data set or
            loss. Step 0 is always measured.
        temperature: Temperature of the loss's softmax, used only if the gradients do not
            determine it. Without a temperature, GD would contain the unknown factor 1/temperature.

    Attributes:
        rows: A list with one dict for each measured batch, and for each other step that has a
            score or another noted number. The keys are ``COLUMNS``, described in
            :mod:`isotrope.diagnostics.metrics`. A value that was not measured is None.
        objective: The newest objective of isotrope that the loss contained; None for other losses.
        settings: Known settings of the training, named like the flags of ``isotrope train``.
        kind: Kind of the loss of the last batch. ``known``: an objective of isotrope; ``unseen``:
            the Doctor found no compared pairs; ``broken``: an embedding is NaN or infinite. Class
            :class:`isotrope.diagnostics.seen.SeenBatch` lists the other kinds.
        places: Pairs (number of an anchor, number of a negative that looks like a positive). Both
            numbers count the rows of the batch from 0.
        place: Place of the data set or loss in ``settings["series"]``.
        calls: Number of steps since the start of the training, including unmeasured steps.
        words: The names of settings in the user's trainer. Proposed changes use these names.
        names: Names of parameters by their ``id``, if the model is known.
        factor: Gradient of the last batch's loss, divided by the gradient of InfoNCE. GD does not
            include this factor. If it is unknown, ``factor`` and GD are None. Dead anchors are then
            counted by the similarities, if GD is a power of InfoNCE's.
        over_guess: InfoNCE of the last batch's pairs (see :class:`~.seen.SeenBatch`).
    """

    def __init__(self, *, every: int = 10, temperature: float | None = None) -> None:
        for name, value in (("every", every), ("temperature", temperature)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive; found {value}")
        self.every, self.temperature = every, temperature
        self.objective: Objective | None = None
        self.settings: dict[str, Any] = {}
        self.words, self.names = Words(), dict[int, str]()
        self.place = 0
        self.clear()

    def clear(self) -> None:
        """Delete all rows."""
        self.rows: list[Row] = []
        self.kind, self.reason = "unseen", ""
        self.calls = 0
        self.factor: float | None = 1.0
        self.over_guess = 0.0
        self._parts: dict[int, Anatomy] = {}
        self._looked: int | None = None
        self._passed, self._newest = 0, -1  # steps of earlier passes; number of the newest step
        self._most, self._taught = 0, False  # rows of the largest batch; whether by a teacher
        self._evidence, self._pool = SoftmaxEvidence(), list[Tensor]()
        self._own: list[tuple[Row, set[str]]] = []  # rows with supposed positives, their columns
        self._weights = dict[int, _WeightState]()  # at the first batch, by id
        self._before: list[_BeforeStep] | None = []  # None after the first step
        self._texts, self._epoch = set[int](), 0  # texts so far; the step at which they came again
        self.places: tuple[tuple[int, int], ...] = ()

    @property
    def measured(self) -> list[Row]:
        """The rows of measured batches, in the order of steps; a diagnosis counts only these."""
        rows = sorted(self.rows, key=lambda row: row["step"] or 0)
        return [row for row in rows if row["loss"] is not None]

    def due(self, step: int | None = None) -> bool:
        """Return whether to measure ``step``; None stands for the next step of the training."""
        at, sets = self.calls if step is None else step, self.settings.get("mixed", 1)
        if len(self.settings.get("series", ())) > 1:  # they may take turns of any length
            return self._looked is None or at - self._looked >= self.every
        return at % (self.every * sets) < sets and at != self._looked

    def of(self, name: str) -> "Anatomy":
        """Return the log of one data set or loss of the training, which shares the rows."""
        names = self.settings.setdefault("series", [])
        if name not in names:
            names.append(name)
        if (place := names.index(name)) == 0:
            return self
        if place not in self._parts:
            part = copy(self)
            part.clear()
            part.place, part.objective = place, None
            self._parts[place] = part
        part = self._parts[place]
        part.rows, part.settings, part.words = self.rows, self.settings, self.words
        return part

    def counted(self, step: int | None) -> int:
        """Count one more step and return its number; ``step``: its number in the user's loop.

        If the user's number falls, a new pass over the data has begun, and counting continues.
        """
        along = 0.0
        for weight, size, places, values, gradient in self._before or ():
            now = local_part(weight.detach()).flatten()
            if len(now) == size:  # FSDP frees some
                along += float(((now[places] - values).float() * gradient).sum())
        if along and isfinite(along):  # it stays 0 until a step is made
            self.settings["maximised"], self._before = along > 0, None
        at = self.calls if step is None else self._passed + step
        if step is not None and at < self._newest:
            at = self._newest + 1
            self._passed = at - step
        self.calls, self._newest = self.calls + 1, at
        return at

    def _of_known(self, batch: BatchReadings) -> Row:
        """Measure the objective of the loss: of nested prefixes, the longest."""
        objective, views = max(batch.known, key=lambda one: one[1].anchors.shape[1])
        if batch.unexplained <= _LEFT_OUT:
            self.objective = objective  # the newest, because its temperature may change
        numbers = measure_known(objective, views)
        self.kind = "broken" if numbers is None else "known"
        self.kind = "reversed" if batch.sign < 0 else self.kind
        return numbers or {}

    def _of_compared(self, batch: BatchReadings, factor: float) -> Row:
        """Measure the pairs that a loss compared, and store the kind of the loss."""
        earlier, tables = self._evidence, batch.compared
        seen = measure_compared(
            tables, self._pool, earlier=earlier, temperature=self.temperature, factor=factor
        )
        self.kind, self.factor, self.over_guess = seen.kind, seen.factor, seen.over_guess
        self.reason = _TARGETS if seen.kind == "targets" else self.reason
        self.places = seen.places or self.places
        self._evidence = earlier * 0.9 + seen.evidence
        self.settings["encoders"] = max(reading.encoders for reading in batch.paired)
        self.settings["summed"] = max((table.summed for table in tables), default=1.0)
        self.settings["queue"] = not any(table.is_two_sided for table in batch.tables)
        numbers: Row = {name: value for name, value in seen.numbers.items() if value is not None}
        if self.kind == "pairs":
            numbers |= measure_margin(batch.tables)
            numbers |= measure_scored(tables, batch.loss / factor, factor)
        return numbers

    def see(
        self,
        readings: Iterable[GraphReading],
        step: int,
        *,
        divisors: Iterable[float] = (),
        copies: float = 0.0,
    ) -> Row | None:
        """Measure the pairs that a loss compared in one batch, and return the row of the log.

        A batch with less than half the rows of the largest batch so far is not measured, and None
        is returned. The last batch of an epoch may be that small.

        Args:
            readings: One reading for each backward pass. A loss that embeds a batch in parts
                (GradCache) has several.
            step: Number of the step.
            divisors: Numbers by which the trainer may divide the loss: the number of batches whose
                gradients it adds up, and 1 over the scale of half precision. The row has the loss
                before these divisions.
            copies: Share of the anchors whose text occurs more than once in the batch.
        """
        every = list(readings)
        for reading in every:
            reading.end()
            if reading.error is not None:
                raise reading.error
        if not every:
            return None
        self._watch(every)
        batch = BatchReadings(every)
        # without pairs, a loss of 0 may be that of a batch with one row
        rows = batch.rows or (self._most if any(reading.loss for reading in every) else 0)
        if 2 * rows < self._most or batch.exceeds_half_precision:
            return None
        self._most, self._newest = max(self._most, rows), max(self._newest, step)
        row, self._looked = self._row(step, new=True), step
        factor = 1 / prod(x for x in divisors if x in batch.divisors)
        row["loss"], self.reason = batch.loss / factor, every[-1].reason
        if not batch.paired:
            self.kind = "unseen"
            return row
        row["misfit"] = batch.unexplained
        numbers = self._of_known(batch) if batch.known else self._of_compared(batch, factor)
        limits = self.settings.setdefault("rank-limits", {})
        limits[str(self.place)] = numbers.pop("rank_limit", None)
        # if there are other terms, the pairs alone do not describe the training
        kept = _LIE if batch.unexplained > _LEFT_OUT else numbers.keys()
        row.update({name: value for name, value in numbers.items() if name in kept})
        if self.kind in ("softmax", "other", "scores"):
            self._own.append((row, numbers.keys() - _LIE))
            self._withdraw(batch.compared)
        pushes_all = self.kind in ("softmax", "known") and (row["negatives"] or 0) >= rows - 1
        if copies and pushes_all and row["false_negatives"] is not None and batch.pushes_any:
            row["false_negatives"] = max(row["false_negatives"], copies)
        return row

    def _watch(self, readings: list[GraphReading]) -> None:
        """Store whether any trained weight has ``moved``, and which are ``unchanged``."""
        parts = {id(x): (x, local_part(x.detach())) for r in readings for x in r.weights}
        parts = {key: one for key, one in parts.items() if one[1].numel() > 1}  # no temperature
        if self._before == [] and self.settings.get("trainer") == "loop":  # it counts steps
            self._before += filter(None, map(_before_step, [x for x, _ in parts.values()]))
        first, moved, now = self._weights, self.settings.get("moved", False), {}
        for key, (x, part) in parts.items():
            # norms are slow, and a weight of another version has changed
            if not moved or key not in first or first[key].version == x._version:
                # of whole weights: a step changes few rows of a table of embeddings
                now[key] = _WeightState(local_norm(part), x._version)
        self._weights = now | first
        if first.keys() & parts.keys():
            seen = now.keys() & first.keys()
            moved = moved or any(now[key].norm != first[key].norm for key in seen)
            still = {k: tuple(parts[k][0].shape) for k in seen if moved and now[k] == first[k]}
            named = [self.names.get(k, f"one of shape {shape}") for k, shape in still.items()]
            self.settings |= {"moved": moved, "unchanged": sorted(named)}

    def seen_again(self, texts: list[Tensor], step: int) -> None:
        """Log the epoch of a step. It ends when rows of two columns (as numbers) occur again."""
        # labels repeat within an epoch; the negatives of a row may change from epoch to epoch
        pairs = [x[: len(y)].cpu() + y[: len(x)].cpu() for x, y in combinations(texts, 2)]
        new = [{*x.tolist()} for x in pairs or texts]
        again = max((len(x & self._texts) / len(x) for x in new), default=0.0)
        if again > _AGAIN:
            self._epoch, self._texts = self._epoch or step, set()
        elif not self._epoch and len(self._texts) < _MOST_TEXTS:
            self._texts |= set().union(*new)
        known = bool(texts) and len(self._texts) < _MOST_TEXTS
        if known and self.rows[-1]["epoch"] is None:
            self.note(epoch=float(step // self._epoch) if self._epoch else 0.0)

    def _withdraw(self, tables: list[Compared]) -> None:
        """If a teacher chose the pulled candidates, delete what was measured on them so far."""
        soft = any(t.has_soft_targets for t in tables)  # those of sure anchors are nearly hard
        sure = soft or all(t.has_own_candidates for t in tables)
        self._taught |= self.kind == "scores" and sure
        if self._taught:
            self.kind = "scores"
            for row, names in self._own:
                row.update(dict.fromkeys(names))

    def _row(self, step: int, *, new: bool = False) -> Row:
        """Return the row of a step; add it if it is missing, or if ``new`` and of another loss."""
        for row in reversed(self.rows):
            if row["step"] == step and not (new and row["loss"] is not None and not self._is(row)):
                break
        else:
            row = {**dict.fromkeys(COLUMNS), "step": step}
            self.rows.append(row)
        if new:
            row["series"] = self.place or None
        return row

    def _is(self, row: Row) -> bool:
        return (row.get("series") or 0) == self.place

    def note(
        self,
        step: int | None = None,
        *,
        epoch: float | None = None,
        learning_rate: float | None = None,
        gradient_norm: float | None = None,
        dev: float | None = None,
    ) -> None:
        """Write numbers into the row of ``step``; a missing row is added.

        If ``step`` is None, a dev score gets the number of steps so far, and other numbers are
        written into the newest row.
        """
        step = self._newest + 1 if step is None and dev is not None else step
        if step is None and not self.rows:
            raise ValueError("pass step=NUMBER to note(): the log has no row yet")
        row = self.rows[-1] if step is None else self._row(step)
        numbers = {"epoch": epoch, "dev": dev}
        numbers |= {"learning_rate": learning_rate, "gradient_norm": gradient_norm}
        row.update({name: value for name, value in numbers.items() if value is not None})

    def resume(self, path: str | Path, step: int) -> None:
        """Read the saved rows of the steps before ``step``, because training resumes at ``step``.

        The row of ``step`` is read only for its dev score: training measures the rest again. If
        the file ``path`` is missing, no rows are read.
        """
        if _file(Path(path)).is_file():
            before = self.load(path).rows
            self.rows = [row for row in before if row["step"] is not None and row["step"] < step]
            for row in before:
                if row["step"] == step and row["dev"] is not None:
                    self.note(step, dev=row["dev"])
        self.calls, self._newest = step, step - 1

    def case(
        self,
        losses: Iterable[Mapping[str, Any]] = (),
        *,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        kind: Literal["text", "images"] | None = None,
    ) -> RunEvidence:
        """Return a ``RunEvidence`` with the rows and settings of this training, for a diagnosis.

        The stated batch size, learning rate and kind of inputs are kept in ``settings``.
        A measured gradient dissipation above 1 shows that the loss has an unknown factor. Such a
        value is left out. If this factor is 1/temperature, create the Anatomy with ``temperature``.
        """
        stated = {"batch-size": batch_size, "learning-rate": learning_rate, "kind": kind}
        self.settings |= {name: value for name, value in stated.items() if value is not None}
        settings = {name.replace("_", "-"): value for name, value in self.settings.items()}
        settings.pop("series", None)
        settings["rank-limit"] = settings.pop("rank-limits", {}).get(str(self.place))
        measured = [row for row in self.measured if self._is(row)]
        rows = without_unknown_units(measured)
        known, left = (sum(r["dissipation"] is not None for r in x) for x in (measured, rows))
        sets, stopped = settings.pop("mixed", 1), settings.pop("stopped", "")
        notes = self._notes(rows, is_cut=left < known, sets=sets, stopped=stopped)
        if (planned := settings.pop("planned", None)) is not None:
            notes.append(unfinished(max((r["step"] or 0 for r in self.rows), default=0), planned))
        dev = sorted((int(r["step"] or 0), v) for r in self.rows if (v := r.get("dev")) is not None)
        unit = 100.0 if all(abs(score) <= 1 for _, score in dev) else 1.0  # if out of 1
        return RunEvidence(
            kind=settings.pop("kind", ""),
            rows=rows,
            scores=[(step, unit * score) for step, score in dev],
            settings=settings,
            objective=self.objective,
            losses=tuple(losses),
            notes=tuple(notes),
            words=self.words,
        )

    def _notes(self, rows: list[Row], *, is_cut: bool, sets: int, stopped: str) -> list[str]:
        """Return the limits of a diagnosis; ``is_cut``: the rows lack measured dissipations."""
        notes = []
        if sets > 1:
            notes += [
                "to judge each data set by itself, pass a dict of losses to the trainer: the "
                f"batches of {sets} data sets that this process saw are judged as one"
            ]
        if is_cut:
            notes += [
                "pass the loss's temperature to the Doctor (temperature=NUMBER): the measured "
                "gradient dissipation contains an unknown factor, so it is not judged"
            ]
        unknown_unit = any(row["temperature"] and row["dissipation"] is None for row in rows)
        if unknown_unit and self.objective is None:
            notes += [
                "gradient dissipation is missing at some steps (isotrope.decompose computes it): "
                "the sizes of the gradients are not those of InfoNCE, and may contain an unknown "
                "factor"
            ]
        if self.factor not in (None, 1):
            notes += [
                f"the loss is InfoNCE times {self.factor:.3g}; the values of gradient dissipation "
                "do not contain this factor"
            ]
        if stopped:
            until = f"until step {rows[-1]['step']:.0f} only" if rows else "no step"
            notes += [f"the Doctor measured {until}: {stopped}"]
        if any(row["negatives"] == 0 and row["embedding_gradient"] for row in rows):
            notes += ["gradient dissipation, weight and ratio need negatives: some steps have none"]
        return notes

    def save(self, path: str | Path) -> Path:
        """Write the rows as CSV to ``path`` (in a folder: to metrics.csv), and return the file."""
        file = _file(Path(path))
        ordered = sorted(self.rows, key=lambda row: row["step"] or 0)
        rows = (
            ["" if (x := row.get(name)) is None else f"{x:.10g}" for name in COLUMNS]
            for row in ordered
        )
        write_text(file, csv_text(COLUMNS, rows))
        return file

    @classmethod
    def load(cls, path: str | Path) -> "Anatomy":
        """Return the Anatomy that was saved in a file or folder, for example in a run folder."""
        file, anatomy = _file(Path(path)), cls()
        rows: dict[tuple[float, float], Row] = {}
        for step, row in read_lines(file, complete=True)[1]:
            empty = {**dict.fromkeys(COLUMNS), "step": int(step)}
            known = {name: value for name, value in row.items() if name in empty}
            rows.setdefault((step, row.get("series", 0)), empty).update(known)
        anatomy.rows += [rows[place] for place in sorted(rows)]
        return anatomy


def _before_step(weight: Tensor) -> _BeforeStep | None:
    if weight.grad is None or weight.grad.is_sparse:
        return None
    values, gradient = (local_part(x.detach()).flatten() for x in (weight, weight.grad))
    places = places_of_large(gradient)
    large = gradient[places].float()  # infinite if the scale of half precision is too high
    is_known = bool(large.isfinite().all())
    return _BeforeStep(weight, len(gradient), places, values[places], large) if is_known else None


def _file(path: Path) -> Path:
    return path if path.suffix == ".csv" else RunFolder(path).metrics


def save(folder: Path, anatomy: Anatomy, diagnosis: Diagnosis) -> None:
    """Write metrics.csv and diagnosis.json; :func:`.target.of_recording` reads both files."""
    anatomy.save(RunFolder(folder).metrics)
    record = json.loads(diagnosis.to_json())
    record["settings"] = {k: v for k, v in anatomy.settings.items() if v is not None}
    record["words"] = {k: v for k, v in asdict(anatomy.words).items() if v != getattr(Words(), k)}
    for name in anatomy.settings.get("series", [""]):
        if (objective := anatomy.of(name).objective if name else anatomy.objective) is not None:
            with suppress(InputError):  # no settings describe it
                record.setdefault("objectives", {})[name] = registry.as_settings(objective)
    write_text(RunFolder(folder).diagnosis, json_text(record))


def evidence(
    anatomy: Anatomy, losses: Iterable[Mapping[str, Any]], *, least: int = 1, **stated: Any
) -> dict[str, RunEvidence]:
    """Return the ``RunEvidence`` of each data set or loss by name; ``""`` if there is only one.

    If there are several, those with fewer than ``least`` measured steps are left out.
    """
    names, records = anatomy.settings.get("series", ()), list(losses)
    if len(names) < 2:
        return {"": anatomy.case(records, **stated)}
    cases = {
        name: anatomy.of(name).case([x for x in records if x.get("series") == name], **stated)
        for name in names
    }
    for name in [name for name, case in cases.items() if not case.rows]:
        note = f"{name} is not judged: this process measured no batch of it"
        cases = {k: replace(case, notes=(*case.notes, note)) for k, case in cases.items()}
    some = {name: case for name, case in cases.items() if len(case.rows) >= least}
    return some if len(some) > 1 else {"": next(iter((some or cases).values()))}
