"""Watching: what is embedded for a batch, what gradient comes back, and of which loss.

Hooks on the model keep what it makes, hooks on the loss say where a batch begins and ends. A
trainer of sentence-transformers has its loss in ``trainer.loss``; any other has it within its model
or within itself, and then a batch is what has been embedded from one step to the next.

Where embeddings do not show the loss (sparse ones, several vectors a text, cross-encoders) the
scores do: those that the loss's ``similarity_fct`` returns, or that a cross-encoder gives.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from isotrope.adapters.doctor.scores import Scores
from isotrope.diagnostics.anatomy import Anatomy, Row
from isotrope.diagnostics.catch import Catch, Caught
from isotrope.paradigm.objective import Objective

__all__ = ["Seen", "Watch"]

_NAMES = ("sentence_embedding", "embeddings", "pooler_output", "text_embeds", "image_embeds")
"""What models call one vector an input, in the order in which they are looked for."""


@dataclass(frozen=True)
class Seen:
    """A batch that was looked at.

    Attributes:
        name: of the loss, as its class says it.
        columns: of the batch; 0 where no vectors were made.
        whole: whether each column was embedded once.
        labelled: whether the loss had labels too.
        row: what was measured; None where there were no vectors.
    """

    name: str
    columns: int
    whole: bool
    labelled: bool
    row: Row | None


class Watch:
    """The hooks, and the batch that is being watched.

    Args:
        embedder: the module whose output are the embeddings.
        losses: modules whose call is one batch; none where nobody knows them.
        model: whose output may hold the loss; where there are no ``losses``.
        batch_size: rows of a column, where no loss tells them.
        accumulated: batches a step, by which a loss that is not seen is divided.
        due: whether the step that is running is to be looked at.
        quietly: makes of a function one from which no error reaches the training.
        compiled: whether the embedder is compiled, and its hook must not be.
    """

    def __init__(
        self,
        embedder: nn.Module,
        *,
        losses: list[nn.Module],
        model: nn.Module,
        batch_size: int,
        accumulated: int,
        due: Callable[[], bool],
        quietly: Callable[[Callable[..., object]], Callable[..., None]],
        compiled: bool = False,
    ) -> None:
        self._embedder, self._losses, self._model = embedder, losses, model
        self._size, self._accumulated, self._due = batch_size, accumulated, due
        self._batch: _Batch | None = None
        self._scores = Scores(quietly)
        embedded = quietly(self._embedded)
        if compiled:
            embedded = torch.compiler.disable(embedded)  # type: ignore[no-untyped-call]
        self._hooks: list[RemovableHandle] = [embedder.register_forward_hook(embedded)]
        for loss in losses:
            self._hooks.append(loss.register_forward_pre_hook(quietly(self._begins)))
            self._hooks.append(loss.register_forward_hook(quietly(self._ends)))
        if not losses:
            self._hooks.append(model.register_forward_hook(quietly(self._answers)))

    def close(self) -> None:
        """Look no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._batch = [], None
        self._scores.close()

    def _training(self) -> bool:
        return self._model.training and torch.is_grad_enabled() and self._due()

    def _begins(self, loss: nn.Module, given: tuple[Any, ...]) -> None:
        """Collect from here on, if the step is to be looked at and not an evaluation."""
        self._batch = _of_loss(loss, given) if self._training() else None
        self._scores.close()
        if self._batch is not None:
            self._scores.open(loss)

    def _embedded(self, module: nn.Module, given: tuple[Any, ...], output: object) -> None:
        """Keep what the model makes of a column, or of a piece of one."""
        if self._batch is None and not self._losses and self._training_uncached():
            self._batch = _Batch(type(self._model).__name__, None, 0, labelled=False)
            self._batch.factor = 1 / self._accumulated
        vectors = _vectors(output)
        if self._batch is not None and vectors is not None:
            self._batch.catch.add(vectors)
        elif self._batch is not None and isinstance(output, Mapping):
            self._scores.add(output.get("scores"))

    def _training_uncached(self) -> bool:
        """Whether this is training, the first pass of a gradient cache (without graph) included."""
        return self._model.training and self._due()

    def _ends(self, loss: nn.Module, given: tuple[Any, ...], value: object) -> None:
        """Keep the loss, and by what its gradient is multiplied."""
        self._scores.restore()
        if self._batch is not None:
            self._batch.end(value)

    def _answers(self, model: nn.Module, given: tuple[Any, ...], output: object) -> None:
        """Keep the loss that the model gives with its output, if it does."""
        told = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if self._batch is not None and isinstance(told, Tensor) and told.numel() == 1:
            self._batch.end(told)

    def look(self, anatomy: Anatomy, step: int) -> Seen | None:
        """Look at the batch, whose backward pass has been; None where there was none."""
        batch, self._batch = self._batch, None
        if batch is None or (self._losses and batch.value is None):
            return None
        if not self._losses:
            batch.lay_out(self._size)
        caught, scores = batch.caught(), self._scores.found(batch.texts)
        row = None if caught is None else batch.observe(anatomy, caught, step)
        if scores is not None and (row is None or anatomy.kind == "lengths"):
            gradient = scores[1] / batch.factor
            row = anatomy.observe_scores(scores[0], gradient, batch.value, step=step)
        elif row is None and caught is None and batch.value is not None:
            anatomy.note(step, loss=batch.value)
        whole = caught is not None and caught.whole
        return Seen(batch.name, batch.columns, whole, batch.labelled, row)


class _Batch:
    """The embeddings of one batch, in columns of so many rows."""

    def __init__(self, name: str, rows: int | None, columns: int, *, labelled: bool) -> None:
        self.name, self.rows, self.columns, self.labelled = name, rows, columns, labelled
        self.catch = Catch()
        self.value: float | None = None
        self.factor = 1.0
        self.texts = rows  # of a column
        self._grouped = False  # positive and negatives of a row stand one after the other

    def end(self, value: object) -> None:
        """Note the value, and have its gradient noted: 1 but for accumulation and float16."""
        parts = list(value.values()) if isinstance(value, Mapping) else [value]
        tensors = [part for part in parts if isinstance(part, Tensor)]
        self.value = sum(float(part.detach()) for part in tensors)
        followed = [part for part in tensors if part.requires_grad]
        if followed:
            followed[0].register_hook(self._scaled)  # type: ignore[no-untyped-call]

    def _scaled(self, gradient: Tensor) -> None:
        self.factor = float(gradient)

    def lay_out(self, batch_size: int) -> None:
        """Find rows and columns, where no loss has told them.

        The first rows are the anchors; of more than one text an anchor, its own stand together.
        """
        sizes = self.catch.sizes()
        total = sum(sizes)
        if not total:
            return
        self.rows = batch_size if total % batch_size == 0 else sizes[0]
        self.columns, self._grouped = total // self.rows, True

    def caught(self) -> Caught | None:
        """What was embedded; None where no texts were counted, or no vectors made."""
        return None if self.rows is None else self.catch.first(self.rows * self.columns)

    def observe(self, anatomy: Anatomy, caught: Caught, step: int) -> Row | None:
        """The row of this batch."""
        assert self.rows is not None
        anchors, rest = caught.embeddings[: self.rows], caught.embeddings[self.rows :]
        positives = negatives = None
        if caught.whole and self.columns > 1:
            if self._grouped:
                groups = rest.reshape(self.rows, self.columns - 1, -1)
                positives, rest = groups[:, 0], groups[:, 1:].flatten(0, 1)
            else:
                positives, rest = rest[: self.rows], rest[self.rows :]
            negatives = rest if len(rest) else None
        gradient = caught.gradient
        return anatomy.observe(
            anchors,
            positives,
            None if self.value is None else torch.tensor(self.value),
            negatives=negatives,
            gradient=None if gradient is None else gradient[: self.rows] / self.factor,
            labelled=self.labelled,
            step=step,
        )


def _of_loss(loss: nn.Module, given: tuple[Any, ...]) -> _Batch:
    """A call of a loss of sentence-transformers: ``loss(features, labels)``."""
    features = list(given[0])
    labelled = len(given) > 1 and given[1] is not None
    # of one column our own losses embed each text twice, with dropout between
    twice = any(isinstance(getattr(m, "objective", None), Objective) for m in loss.modules())
    columns = 2 if twice and len(features) == 1 else len(features)
    batch = _Batch(type(loss).__name__, _rows(features[0]), columns, labelled=labelled)
    if isinstance(features[0], list):  # texts as they are, of cross-encoders
        batch.texts = len(features[0])
    return batch


def _rows(features: object) -> int | None:
    """How many texts a column has; None where there are no tokens that tell (cross-encoders)."""
    if not isinstance(features, Mapping):
        return None
    starts = features.get("cu_seq_lens_q")
    if isinstance(starts, Tensor):  # several texts in one row
        return len(starts) - 1
    for name in ("attention_mask", "offsets", "input_ids"):
        found = features.get(name)
        if isinstance(found, Tensor) and (found.ndim == 2 or name == "offsets"):
            return len(found)
    return next((len(x) for x in features.values() if isinstance(x, Tensor) and x.ndim), None)


def _vectors(output: object) -> Tensor | None:
    """One vector an input, of what a model returns; None where it returns something else."""
    found: object = output
    if isinstance(output, Mapping):
        found = next((output[name] for name in _NAMES if output.get(name) is not None), None)
    if not isinstance(found, Tensor) or found.ndim != 2 or not found.is_floating_point():
        return None
    return found.to_dense() if found.is_sparse else found
