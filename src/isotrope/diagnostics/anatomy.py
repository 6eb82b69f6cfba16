"""Anatomy: in anyone's training, what its loss does to the embeddings, step by step.

These are the rows that :class:`isotrope.Doctor` fills: how a batch is measured, and what the rows
say together.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from isotrope.core.errors import InputError, nearest
from isotrope.core.files import atomic_replace
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.diagnostics.evidence import RunEvidence, of_rows
from isotrope.diagnostics.findings import Diagnosis
from isotrope.diagnostics.observe import alone, columns, measure, negative_count
from isotrope.paradigm.anatomy import DEAD
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.recognise import MISFIT, Recognised, recognise
from isotrope.paradigm.score_matrix import of_scores
from isotrope.paradigm.softmax_fit import normalised, radial

__all__ = ["COLUMNS", "Anatomy"]

COLUMNS = columns("misfit", "radial", "negatives", "temperature", "dev")
"""What a row may hold: the columns of a run on text, and what is recognised of a loss."""

_WHOLE = 1.001  # more than all of a gradient, rounding aside

Row = dict[str, float | None]


class Anatomy:
    """The rows of metrics.csv, from embeddings and a loss.

    Every ``every``-th call of :meth:`observe` is looked at; the others do nothing. With an
    objective of this library the components are its own. Without one the loss is recognised by its
    gradient on the anchors (``isotrope.paradigm.recognise``), which shows its components where
    there are fewer columns than dimensions or where it is a softmax, and the temperature of a
    softmax. Where they leave out more than 5% of the gradient they are None. ``ratio`` is then of
    anchors with GD >= 0.01 only: of smaller gradients rounding leaves none.

    Besides the columns of every run a row has

    - ``misfit``: the share of the gradient that the components leave out;
    - ``radial``: the share of it that makes embeddings longer or shorter: 0 of a loss of cosines.
      Above 5%, of embeddings that are not normalised, the loss is one of dot products or
      distances, and what is of cosines is None;
    - ``negatives``: how many an anchor has on average, 0 of a loss that compares an anchor with
      its own pair only, and in a batch where there is nothing else. GD, W and R are of negatives:
      without any they are None, which is another thing than a GD of 0;
    - ``temperature``: of the softmax, as the gradient shows it; of one that weighs hard negatives
      more it is lower than the loss says.

    Args:
        objective: what the loss is, if it is one of ours.
        every: steps from one look to the next; step 0 is looked at.
        against: of a loss of one's own, the negatives: the other view, or both (NT-Xent); None
            finds out.
        reduction: how it makes one number of its n anchors.
        temperature: of its softmax, if it has one and the gradient does not show it: the
            1/temperature in its gradient is then not counted as dissipation, which lies between 0
            and 1 as in the papers.
        settings: what is known of the training, in the words of the command line (hyphens).

    Attributes:
        rows: one a look, by the names in ``COLUMNS``; what was not measured is None.
        kind: what the loss of the last look is: as ``isotrope.paradigm.recognise`` says it;
            ``known`` of an objective; ``single`` without positives, ``unseen`` without a gradient,
            ``lengths`` where the gradient changes lengths, ``broken`` where something is NaN.
        calls: how often :meth:`observe` was called.

    Raises:
        ValueError: an ``every`` or a temperature that is not positive.
    """

    def __init__(
        self,
        objective: Objective | None = None,
        *,
        every: int = 10,
        against: Literal["cross", "both"] | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        temperature: float | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (("every", every), ("temperature", temperature)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive; found {value}")
        self.objective, self.every = objective, every
        self.against, self.reduction, self.temperature = against, reduction, temperature
        self.settings = dict(settings or {})
        self.clear()

    def clear(self) -> None:
        """Forget what was seen."""
        self.rows: list[Row] = []
        self.kind = "unseen"
        self.calls = 0
        self._near: float | None = None  # the temperature that was recognised last
        self._looked: int | None = None

    def due(self, step: int | None = None) -> bool:
        """Return whether :meth:`observe` will look at ``step``, by default that of the next call.

        A step is looked at once, however many batches it accumulates.
        """
        at = self.calls if step is None else step
        return at % self.every == 0 and at != self._looked

    def observe(
        self,
        anchors: Tensor,
        positives: Tensor | None,
        loss: Tensor | None = None,
        *,
        negatives: Tensor | None = None,
        groups: Tensor | None = None,
        gradient: Tensor | None = None,
        labelled: bool = False,
        step: int | None = None,
    ) -> Row | None:
        """Look at a batch, if it is its turn, and return the new row.

        Call it between the loss and its ``backward()``, with the very tensors that the loss was
        computed from, before they are normalised. The graph is kept; gradients of parameters are
        not touched.

        Args:
            anchors: n x d embeddings.
            positives: n x d, row i the positive of anchor i; None where there are none.
            loss: the scalar to minimise, not yet scaled for float16 or for accumulation.
            negatives: q x d further negatives of all anchors.
            groups: n integers; rows of one group are no negatives of each other.
            gradient: n x d, of the loss on the anchors, where it is known already.
            labelled: the loss has labels as well: of two columns the second need not be a positive.
            step: number of the step; by default of the call, from 0.

        Raises:
            ValueError: shapes that do not fit, a loss that is no scalar, or one that does not
                depend on the anchors.
        """
        at = self.calls if step is None else step
        due = self.due(at)
        self.calls += 1
        if not due:
            return None
        own = anchors if positives is None else positives
        views = Views(anchors, own, negatives, groups=groups)
        found: Row = {} if loss is None else {"loss": _scalar(loss)}
        self.kind = "broken"
        if all(bool(x.isfinite().all()) for x in (anchors, positives, negatives) if x is not None):
            # half precision is for encoders: what follows divides by temperatures
            with torch.autocast(anchors.device.type, enabled=False):
                if positives is not None and self._tells(views):
                    self.kind = "known"
                    found |= measure(self.objective, views)
                    found["negatives"] = negative_count(views)
                else:
                    if gradient is None and loss is not None and loss.requires_grad:
                        gradient = _gradient(loss, anchors)
                    paired = positives is not None
                    found |= self._seen(views, gradient, paired=paired, labelled=labelled)
        row, self._looked = self._row(at), at
        row.update(found)
        return row

    def observe_scores(
        self, scores: Tensor, gradient: Tensor, loss: float | None = None, *, step: int
    ) -> Row:
        """Look at a batch of which there are scores, and return its row.

        Where the row has been made of embeddings as well, their norm and rank stay.

        Args:
            scores: n x m, row i of anchor i, its positive among them.
            gradient: n x m, of the loss on them.
            loss: its value.
            step: number of the step.
        """
        terms = of_scores(scores, gradient)
        given = 1.0 if terms.temperature is not None else self.temperature or 1.0
        force = given * terms.dissipation
        live = terms.weight.sum(dim=1) > 0
        self.kind = "other" if terms.temperature is None else "softmax"
        if not bool(live.any()):
            self.kind = "nothing"
        found: Row = {
            "dissipation": float(force.mean()),
            "dead": float((force < DEAD).double().mean()),
            "hardest_share": terms.hardest,
            "ratio": float((1 / terms.weight[live].sum(dim=1)).mean()) if live.any() else None,
            "misfit": terms.misfit,
            "negatives": float(scores.shape[1] - 1),
            "temperature": terms.temperature,
        }
        row, self._looked = self._row(step), step
        row.update(found if loss is None else {**found, "loss": loss})
        return row

    def _tells(self, views: Views) -> bool:
        """Whether the objective tells the components: it may compare rows, and there be one."""
        if self.objective is None:
            return False
        return len(views.anchors) >= self.objective.least_rows or views.negatives is not None

    def _row(self, step: int) -> Row:
        """The row of a step, made if need be."""
        for row in reversed(self.rows):
            if row["step"] == step:
                return row
        self.rows.append({**dict.fromkeys(COLUMNS), "step": step})
        return self.rows[-1]

    def _seen(self, views: Views, gradient: Tensor | None, *, paired: bool, labelled: bool) -> Row:
        """What is to be seen of a batch without NaN."""
        if gradient is None or not bool(gradient.isfinite().all()):
            known, self.kind = paired and not labelled, "unseen"
            return measure(None, views) if known else alone(views.anchors)
        share = radial(gradient, views.anchors)
        if self.reduction == "mean":
            gradient = gradient * len(gradient)  # of each anchor's own loss
        norms = torch.linalg.vector_norm(gradient, dim=1, dtype=_at_least_float(gradient.dtype))
        told: Row = {"embedding_gradient": float(norms.mean()), "radial": share}
        if share > MISFIT and not normalised(views.anchors):
            self.kind = "lengths" if paired else "single"
            return alone(views.anchors, cosines=False) | told
        if not paired:
            self.kind = "single"
            return alone(views.anchors) | told
        found = recognise(gradient, views, against=self.against, labelled=labelled, near=self._near)
        self.kind, self._near = found.kind, found.temperature or self._near
        temperature = self.temperature or found.temperature
        if temperature is not None:
            found = found.in_units_of(1 / temperature)
        return self._components(found, views, labelled=labelled) | told

    def _components(self, found: Recognised, views: Views, *, labelled: bool) -> Row:
        """What a recognised loss does to the embeddings, and how they lie."""
        terms, count = found.terms, negative_count(views)
        # of labelled pairs some are to be apart: their angles are no angles of positives
        guessed = labelled and found.kind not in ("softmax", "other") and views.negatives is None
        told = alone(views.anchors) if found.apart or guessed else None
        kind: Row = {"misfit": found.misfit, "negatives": count}
        if found.kind == "pairs":
            kind["negatives"] = 0.0
        elif terms is None and count:
            kind["negatives"] = None
        if found.kind == "softmax":
            kind["temperature"] = found.temperature
        if told is None:
            told = measure(None, views, terms=terms)
            told["ratio"] = None if terms is None else _live_ratio(terms)
        return told | kind

    def note(self, step: int | None = None, **numbers: float) -> None:
        """Add numbers to the newest row, or to that of ``step``, which is made if need be.

        Args:
            step: see :meth:`observe`.
            numbers: by name of a column: ``learning_rate``, ``gradient_norm``, ``epoch``, ``dev``.

        Raises:
            ValueError: no such column, or no row yet.
        """
        for name in numbers:
            if name not in COLUMNS:
                raise ValueError(f"there is no column {name!r}{nearest(name, COLUMNS)}")
        if step is None and not self.rows:
            raise ValueError("no row to add to: observe() a batch first, or say which step")
        row = self.rows[-1] if step is None else self._row(step)
        row.update(numbers)

    def resume(self, path: str | Path, step: int) -> None:
        """Go on from ``step`` of a training that has saved to ``path``; nothing there is no error.

        Raises:
            InputError: the file there holds something else.
        """
        if _file(Path(path)).is_file():
            before = self.load(path).rows
            self.rows = [row for row in before if row["step"] is not None and row["step"] < step]

    def diagnose(self, **settings: Any) -> Diagnosis:  # noqa: ANN401 - any setting
        """Return what is wrong with the training, as ``isotrope diagnose`` does.

        Args:
            settings: see :meth:`case`.
        """
        from isotrope.diagnostics.doctor import diagnose  # with all its rules: when it is called

        return diagnose(self.case(**settings))

    def case(
        self,
        losses: Iterable[Mapping[str, Any]] = (),
        **settings: Any,  # noqa: ANN401 - any setting
    ) -> RunEvidence:
        """Return what is known of the training, for the doctor to reason on.

        A dissipation above 1 has a factor of the loss in it that is not known, such as the
        1/temperature of a softmax (``temperature``); it is then not judged.

        Args:
            losses: what was recognised of each loss.
            settings: what else is known of the training, in the words of the command line, with
                underscores: ``batch_size=64, learning_rate=3e-5``.
        """
        given = {**self.settings, **settings}
        known = {name.replace("_", "-"): value for name, value in given.items()}
        rows, notes = self.rows, []
        if any((row["dissipation"] or 0) > _WHOLE for row in rows):
            rows = [{**row, "dissipation": None, "dead": None} for row in rows]
            notes += ["dissipation is not judged: say the temperature of the loss (temperature=)"]
        if any(row["negatives"] == 0 and row["embedding_gradient"] for row in rows):
            notes += [
                "the loss compares an anchor with its own pair only: without in-batch negatives it "
                "has no dissipation, weights and ratio to judge"
            ]
        case = of_rows(rows, objective=self.objective, settings=known)
        return replace(
            case, scores=_scores(case.rows), losses=tuple(losses), notes=(*case.notes, *notes)
        )

    def save(self, path: str | Path) -> Path:
        """Write the rows as CSV and return the file: ``path``, or metrics.csv in a folder.

        Raises:
            InputError: it cannot be written.
        """
        file = _file(Path(path))
        with (
            atomic_replace(file) as temporary,
            temporary.open("w", newline="", encoding="utf-8") as handle,
        ):
            writer = csv.writer(handle, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows([_cell(row.get(name)) for name in COLUMNS] for row in self._sorted())
        return file

    def _sorted(self) -> list[Row]:
        return sorted(self.rows, key=lambda row: row["step"] or 0)

    @classmethod
    def load(cls, path: str | Path, objective: Objective | None = None) -> "Anatomy":
        """Return the anatomy that was saved; also of a run of ``isotrope train``.

        Args:
            path: of the file or its folder.
            objective: what was trained with.

        Raises:
            InputError: there is no such file, or it holds something else.
        """
        file, found = _file(Path(path)), cls(objective)
        try:
            with file.open(newline="", encoding="utf-8") as handle:
                found.rows = [_row(cells) for cells in csv.DictReader(handle)]
        except (OSError, ValueError, TypeError, KeyError, csv.Error) as error:
            raise InputError(
                f"{file} holds no rows of metrics.csv ({error}); give what `save` wrote"
            ) from error
        return found


def _scores(rows: Iterable[Mapping[str, float | None]]) -> list[tuple[int, float]]:
    """The noted dev scores of 100; those of other trainers are of 1."""
    found = [(int(r["step"] or 0), v) for r in rows if (v := r.get("dev")) is not None]
    unit = 100.0 if all(abs(score) <= 1 for _, score in found) else 1.0
    return [(step, unit * score) for step, score in found]


def _scalar(loss: Tensor) -> float:
    if loss.numel() != 1:
        raise ValueError(
            f"the loss must be a scalar; found shape {tuple(loss.shape)}: reduce it, and say how "
            "by reduction="
        )
    return float(loss.detach())


def _gradient(loss: Tensor, anchors: Tensor) -> Tensor:
    """The gradient of the loss on the anchors; its graph stays."""
    gradient: Tensor | None = None
    if anchors.requires_grad:
        (gradient,) = torch.autograd.grad(loss, anchors, retain_graph=True, allow_unused=True)
    if gradient is None:
        raise ValueError(
            "the loss does not depend on these anchors; observe the very tensors that it was "
            "computed from, not a copy or a slice made afterwards"
        )
    return gradient


def _live_ratio(terms: Terms) -> float | None:
    """The mean R of live anchors: of a gradient that has all but gone rounding is what is left."""
    live = (terms.dissipation >= DEAD) & (terms.mass != 0)
    return float(terms.ratio[live].mean()) if terms.ratio is not None and bool(live.any()) else None


def _at_least_float(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _file(path: Path) -> Path:
    return path if path.suffix == ".csv" else path / "metrics.csv"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def _row(cells: Mapping[str, str]) -> Row:
    row: Row = {name: float(cells[name]) if cells.get(name) else None for name in COLUMNS}
    row["step"] = int(cells["step"])
    return row
