"""Anatomy: in anyone's training loop, what its loss does to the embeddings, step by step.

Five lines in a loop of one's own::

    anatomy = isotrope.Anatomy(every=10)
    for step, batch in enumerate(loader):
        anchors, positives = encoder(batch.a), encoder(batch.b)
        loss = my_loss(anchors, positives)
        anatomy.observe(anchors, positives, loss)
        ...
    anatomy.save("runs/mine")
    print(anatomy.diagnose())
"""

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from isotrope.core.errors import InputError, nearest
from isotrope.core.files import replacing
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.diagnostics.findings import Diagnosis
from isotrope.diagnostics.observe import columns, measure
from isotrope.paradigm.anatomy import DEAD
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.recover import Recovered, recover

__all__ = ["COLUMNS", "Anatomy"]

COLUMNS = columns("misfit", "dev")
"""What a row may hold: the columns of a run on text, and how much the components leave out."""

MISFIT = 0.05  # of the gradient: components that leave out more are not told

_WHOLE = 1.001  # more than all of a gradient, rounding aside

Row = dict[str, float | None]


class Anatomy:
    """The rows of metrics.csv, from embeddings and a loss.

    Every ``every``-th call of :meth:`observe` is looked at; the others do nothing. With an
    objective of this library the components are its own. Without one they are recovered from the
    gradient of the loss on the anchors (``isotrope.paradigm.recover``), which determines them
    where there are fewer columns than dimensions; where it does not, or where they leave out more
    than 5% of the gradient, they are None. ``misfit`` says how much they leave out. ``ratio`` is
    then of anchors with GD >= 0.01 only: of smaller gradients rounding leaves none.

    Args:
        objective: what the loss is, if it is one of ours.
        every: steps from one look to the next; step 0 is looked at.
        against: of a loss of one's own, the negatives: the other view, or both (NT-Xent).
        reduction: how it makes one number of its n anchors.
        temperature: of its softmax, if it has one: the 1/temperature in its gradient is then not
            counted as dissipation, which lies between 0 and 1 as in the papers.

    Attributes:
        rows: one a look, by the names in ``COLUMNS``; what was not measured is None.
        calls: how often :meth:`observe` was called.

    Raises:
        ValueError: an ``every`` or a temperature that is not positive.
    """

    def __init__(
        self,
        objective: Objective | None = None,
        *,
        every: int = 10,
        against: Literal["cross", "both"] = "cross",
        reduction: Literal["mean", "sum"] = "mean",
        temperature: float | None = None,
    ) -> None:
        for name, value in (("every", every), ("temperature", temperature)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive; found {value}")
        self.objective, self.every = objective, every
        self.against, self.reduction, self.temperature = against, reduction, temperature
        self.rows: list[Row] = []
        self.calls = 0
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
        positives: Tensor,
        loss: Tensor | None = None,
        *,
        negatives: Tensor | None = None,
        groups: Tensor | None = None,
        gradient: Tensor | None = None,
        step: int | None = None,
    ) -> Row | None:
        """Look at a batch, if it is its turn, and return the new row.

        Call it between the loss and its ``backward()``, with the very tensors that the loss was
        computed from, before they are normalised. The graph is kept; gradients of parameters are
        not touched.

        Args:
            anchors: n x d embeddings.
            positives: n x d, row i the positive of anchor i.
            loss: the scalar to minimise, not yet scaled for float16 or for accumulation.
            negatives: q x d further negatives of all anchors.
            groups: n integers; rows of one group are no negatives of each other.
            gradient: n x d, of the loss on the anchors, where it is known already.
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
        views = Views(anchors, positives, negatives, groups=groups)
        found: Row = {} if loss is None else {"loss": _scalar(loss)}
        if all(bool(x.isfinite().all()) for x in (anchors, positives, negatives) if x is not None):
            # half precision is for encoders: what follows divides by temperatures
            with torch.autocast(anchors.device.type, enabled=False):
                found |= self._seen(views, loss, gradient)
        row, self._looked = self._row(at), at
        row.update(found)
        return row

    def _row(self, step: int) -> Row:
        """The row of a step, made if need be."""
        for row in reversed(self.rows):
            if row["step"] == step:
                return row
        self.rows.append({**dict.fromkeys(COLUMNS), "step": step})
        return self.rows[-1]

    def _seen(self, views: Views, loss: Tensor | None, gradient: Tensor | None) -> Row:
        """What is to be seen of a batch without NaN."""
        if self.objective is not None:
            return measure(self.objective, views)
        if gradient is None and loss is not None and loss.requires_grad:
            gradient = _gradient(loss, views.anchors)
        if gradient is None:
            return measure(None, views)
        if self.reduction == "mean":
            gradient = gradient * len(gradient)  # of each anchor's own loss
        norms = torch.linalg.vector_norm(gradient, dim=1, dtype=_at_least_float(gradient.dtype))
        found = self._recovered(gradient, views)
        known = found is not None and found.misfit <= MISFIT and bool(found.determined.all())
        terms = found.terms if found is not None and known else None
        return {
            **measure(None, views, terms=terms),
            "ratio": None if terms is None else _live_ratio(terms),
            "embedding_gradient": float(norms.mean()),
            "misfit": None if found is None else found.misfit,
        }

    def _recovered(self, gradient: Tensor, views: Views) -> Recovered | None:
        """The components, unless there are too many columns for any to be determined."""
        columns = len(views.positives) + (self.against == "both") * len(views.anchors)
        columns += 0 if views.negatives is None else len(views.negatives)
        if columns > views.anchors.shape[1]:
            return None
        found = recover(gradient, views, against=self.against)
        return found if self.temperature is None else found.in_units_of(1 / self.temperature)

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

        A dissipation above 1 has the 1/temperature of a softmax in it, which nobody has told
        (``temperature``); it is then not judged.

        Args:
            settings: what else is known of it, in the words of the command line, with underscores:
                ``batch_size=64, learning_rate=3e-5``.
        """
        from isotrope.diagnostics.doctor import diagnose  # with all its rules: when it is called
        from isotrope.diagnostics.evidence import of_rows

        known = {name.replace("_", "-"): value for name, value in settings.items()}
        rows = self.rows
        unscaled = any((row["dissipation"] or 0) > _WHOLE for row in rows)
        if unscaled:
            rows = [{**row, "dissipation": None, "dead": None} for row in rows]
        case = of_rows(rows, objective=self.objective, settings=known)
        told = "dissipation is not judged: say the temperature of the loss (temperature=)"
        return diagnose(replace(case, notes=(*case.notes, told)) if unscaled else case)

    def save(self, path: str | Path) -> Path:
        """Write the rows as CSV and return the file: ``path``, or metrics.csv in a folder.

        Raises:
            InputError: it cannot be written.
        """
        file = _file(Path(path))
        with (
            replacing(file) as temporary,
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
