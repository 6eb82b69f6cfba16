"""Hooks a model and its losses to record a batch's embeddings, gradients and loss.

Hooks on the model keep its output, hooks on the loss mark the start and the end of a batch. A
trainer of sentence-transformers has its loss in ``trainer.loss``; any other computes it in its
model or by itself, and then a batch is everything embedded between two steps.

If embeddings do not show the loss (sparse ones, several vectors per text, cross-encoders) the
scores do: those that the loss's ``similarity_fct`` returns, or the output of a cross-encoder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from isotrope.adapters.doctor.scores import ScoreHooks
from isotrope.diagnostics.anatomy import Anatomy, Row
from isotrope.diagnostics.catch import Catch, Caught
from isotrope.paradigm.objective import Objective

__all__ = ["Seen", "Watch"]

_NAMES = ("sentence_embedding", "embeddings", "pooler_output", "text_embeds", "image_embeds")
"""Names of a model's output with one vector per input, in order of preference."""


@dataclass(frozen=True)
class Seen:
    """A batch that was measured.

    Attributes:
        name: of the loss, as its class says it.
        row: the measurements; None without vectors.
    """

    name: str
    row: Row | None


class Watch:
    """The hooks, and the batch that is being recorded.

    Args:
        embedder: the module whose output are the embeddings.
        losses: modules whose call is one batch; empty if unknown.
        model: its output may hold the loss, if there are no ``losses``.
        batch_size: rows of a column, if no loss shows them.
        accumulated: batches per step, by which an unobserved loss is divided.
        due: returns whether the current step is to be measured.
        quietly: wraps a function so that no error reaches the training.
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
        self._batch: _WatchedBatch | None = None
        self._scores = ScoreHooks(quietly)
        embedded = quietly(self._embedded)
        if compiled:
            embedded = torch.compiler.disable(embedded)
        self._hooks: list[RemovableHandle] = [embedder.register_forward_hook(embedded)]
        for loss in losses:
            self._hooks.append(loss.register_forward_pre_hook(quietly(self._begins)))
            self._hooks.append(loss.register_forward_hook(quietly(self._ends)))
        if not losses:
            self._hooks.append(model.register_forward_hook(quietly(self._answers)))

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._batch = [], None
        self._scores.close()

    def _training(self) -> bool:
        return self._model.training and torch.is_grad_enabled() and self._due()

    def _begins(self, loss: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Start a batch, if the step is due and not an evaluation."""
        self._batch = _of_loss(loss, inputs) if self._training() else None
        self._scores.close()
        if self._batch is not None:
            self._scores.open(loss)

    def _embedded(self, module: nn.Module, inputs: tuple[Any, ...], output: object) -> None:
        """Keep the model's output for a column, or for a piece of one."""
        if self._batch is None and not self._losses and self._training_uncached():
            self._batch = _WatchedBatch(type(self._model).__name__, None, 0, None)
            self._batch.factor = 1 / self._accumulated
        vectors = _vectors(output)
        if self._batch is not None and vectors is not None:
            self._batch.catch.add(vectors)
        elif self._batch is not None and isinstance(output, Mapping):
            self._scores.add(output.get("scores"))

    def _training_uncached(self) -> bool:
        """Whether this is training, the first pass of a gradient cache (without graph) included."""
        return self._model.training and self._due()

    def _ends(self, loss: nn.Module, inputs: tuple[Any, ...], value: object) -> None:
        """Keep the loss, and the factor of its gradient."""
        self._scores.restore()
        if self._batch is not None:
            self._batch.end(value)

    def _answers(self, model: nn.Module, inputs: tuple[Any, ...], output: object) -> None:
        """Keep the loss in the model's output, if there is one."""
        loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if self._batch is not None and isinstance(loss, Tensor) and loss.numel() == 1:
            self._batch.end(loss)

    def measure(self, anatomy: Anatomy, step: int) -> Seen | None:
        """Measure the batch after its backward pass; None if there was no batch."""
        batch, self._batch = self._batch, None
        if batch is None or (self._losses and batch.value is None):
            return None
        if not self._losses:
            batch.lay_out(self._size)
        caught, scores = batch.caught(), self._scores.matrix(batch.texts)
        row = None if caught is None else batch.observe(anatomy, caught, step)
        if scores is not None and (row is None or anatomy.kind == "lengths"):
            gradient = scores[1] / batch.factor
            row = anatomy.observe_scores(scores[0], gradient, batch.value, step=step)
        elif row is None and caught is None and batch.value is not None:
            anatomy.note(step, loss=batch.value)
        return Seen(batch.name, row)


class _WatchedBatch:
    """The embeddings of one batch, in columns of ``rows`` rows."""

    def __init__(
        self,
        name: str,
        rows: int | None,
        columns: int,
        labels: Tensor | None,
        repeated: float = 0.0,
    ) -> None:
        self.name, self.rows, self.columns, self.labels = name, rows, columns, labels
        self.repeated = repeated  # share of the rows whose anchor or positive comes again
        self.groups: Tensor | None = None
        self.catch = Catch()
        self.value: float | None = None
        self.factor = 1.0
        self.texts = rows  # of a column
        self._grouped = False  # positive and negatives of a row stand one after the other

    def end(self, value: object) -> None:
        """Keep the loss, and its gradient: 1 except under accumulation and float16 scaling."""
        parts = list(value.values()) if isinstance(value, Mapping) else [value]
        tensors = [part for part in parts if isinstance(part, Tensor)]
        self.value = sum(float(part.detach()) for part in tensors)
        followed = [part for part in tensors if part.requires_grad]
        if followed:
            followed[0].register_hook(self._scaled)

    def _scaled(self, gradient: Tensor) -> None:
        self.factor = float(gradient)

    def lay_out(self, batch_size: int) -> None:
        """Infer rows and columns, if no loss has shown them.

        The first rows are the anchors; the further texts of an anchor are consecutive.
        """
        sizes = self.catch.sizes()
        total = sum(sizes)
        if not total:
            return
        self.rows = batch_size if total % batch_size == 0 else sizes[0]
        self.columns, self._grouped = total // self.rows, True

    def caught(self) -> Caught | None:
        """Return the embeddings; None if the number of texts is unknown, or without vectors."""
        return None if self.rows is None else self.catch.first(self.rows * self.columns)

    def observe(self, anatomy: Anatomy, caught: Caught, step: int) -> Row | None:
        """Measure this batch and return its row."""
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
        row = anatomy.observe(
            anchors,
            positives,
            None if self.value is None else torch.tensor(self.value),
            negatives=negatives,
            groups=self.groups,
            gradient=None if gradient is None else gradient[: self.rows] / self.factor,
            labels=self.labels,
            step=step,
        )
        # of other losses, and of groups, it is not known that each row pushes all others
        all_pushed = anatomy.kind in ("softmax", "known") and self.groups is None
        if all_pushed and row is not None and row["false_negatives"] is not None:
            row["false_negatives"] = max(row["false_negatives"], self.repeated)
        return row


def _of_loss(loss: nn.Module, inputs: tuple[Any, ...]) -> _WatchedBatch:
    """Return the batch of a sentence-transformers call ``loss(features, labels)``."""
    features = list(inputs[0])
    labels = inputs[1] if len(inputs) > 1 else None
    if labels is not None and not isinstance(labels, Tensor):
        labels = torch.empty(0)  # of another kind: there are some, and no pair has one number
    # of one column our own losses embed each text twice, with dropout between
    ours = [m for m in loss.modules() if isinstance(getattr(m, "objective", None), Objective)]
    columns = 2 if ours and len(features) == 1 else len(features)
    name, rows = type(loss).__name__, _rows(features[0])
    batch = _WatchedBatch(name, rows, columns, labels, _repeated(features[:2]))
    if labels is not None and any(getattr(m, "groups", False) for m in ours):
        batch.groups = labels.long().flatten()
    if isinstance(features[0], list):  # texts as they are, of cross-encoders
        batch.texts = len(features[0])
    return batch


def _rows(features: object) -> int | None:
    """Return the number of texts of a column; None without tokens (cross-encoders)."""
    if not isinstance(features, Mapping):
        return None
    starts = features.get("cu_seq_lens_q")
    if isinstance(starts, Tensor):  # several texts in one row
        return len(starts) - 1
    for name in ("attention_mask", "offsets", "input_ids"):
        tensor = features.get(name)
        if isinstance(tensor, Tensor) and (tensor.ndim == 2 or name == "offsets"):
            return len(tensor)
    return next((len(x) for x in features.values() if isinstance(x, Tensor) and x.ndim), None)


def _repeated(columns: list[object]) -> float:
    """Return the share of the rows whose anchor or positive is the very text of another row."""
    repeated = None
    for features in columns:
        tokens = features.get("input_ids") if isinstance(features, Mapping) else None
        if isinstance(tokens, Tensor) and tokens.ndim == 2:
            _, text, count = tokens.cpu().unique(dim=0, return_inverse=True, return_counts=True)
            again = count[text] > 1
            if repeated is None or len(again) == len(repeated):
                repeated = again if repeated is None else repeated | again
    return 0.0 if repeated is None else float(repeated.double().mean())


def _vectors(output: object) -> Tensor | None:
    """Return the model's output with one vector per input; None if it has none."""
    vectors: object = output
    if isinstance(output, Mapping):
        vectors = next((output[name] for name in _NAMES if output.get(name) is not None), None)
    if not isinstance(vectors, Tensor) or vectors.ndim != 2 or not vectors.is_floating_point():
        return None
    return vectors.to_dense() if vectors.is_sparse else vectors
