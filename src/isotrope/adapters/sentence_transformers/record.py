"""sentence-transformers: the anatomy of a training by its own trainer, whatever its loss.

One line between the trainer and its ``train()``::

    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=data, loss=loss)
    anatomy = record(trainer, "runs/theirs")
    trainer.train()
    print(anatomy.diagnose())

Nothing of theirs is replaced: hooks on the model and on the loss see the embeddings and the loss
that training computes anyway.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from isotrope.core.errors import InputError, MissingExtra
from isotrope.diagnostics.anatomy import Anatomy
from isotrope.paradigm.objective import Objective

try:
    from sentence_transformers import SentenceTransformerTrainer
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise MissingExtra(error.name or "sentence_transformers", extra="train") from error

__all__ = ["record"]


def record(
    trainer: SentenceTransformerTrainer,
    path: str | Path | None = None,
    *,
    objective: Objective | None = None,
    every: int = 10,
    against: Literal["cross", "both"] = "cross",
    temperature: float | None = None,
) -> Anatomy:
    """Return the anatomy of what ``trainer`` is going to train, which fills while it does.

    The loss must embed rows of two columns or more: anchors, positives, and then hard negatives.
    Losses that cache gradients show embeddings and no gradient: say by which objective the
    components are to be computed (``MultipleNegativesRankingLoss`` with a ``scale`` of 20 is
    ``InfoNCE(temperature=0.05)``). Learning rate, gradient norm and, as ``dev``, the metric named
    in ``metric_for_best_model`` are noted as the trainer tells them.

    Args:
        trainer: not yet trained; of several processes each records its own rows of a batch, and
            the first writes.
        path: file or folder to write metrics.csv to with every checkpoint and at the end; None
            leaves that to ``Anatomy.save``. A resumed training goes on with the rows in it.
        objective: what the loss is, if it is one of ours; of an ``ObjectiveLoss`` it is known.
        every: steps from one look to the next.
        against: as for :class:`~isotrope.diagnostics.anatomy.Anatomy`.
        temperature: likewise; by default 1 over the ``scale`` of the loss, if it has one.

    Raises:
        InputError: a trainer that spreads a batch over several GPUs itself.
    """
    if trainer.args.n_gpu > 1:
        raise InputError(
            f"this trainer splits each batch between {trainer.args.n_gpu} GPUs; start one process "
            "a GPU (torchrun), or show it one (CUDA_VISIBLE_DEVICES=0)"
        )
    losses = list(trainer.loss.values()) if isinstance(trainer.loss, dict) else [trainer.loss]
    if objective is None:
        objective = _objective(losses)
    if temperature is None:
        temperature = _temperature(losses)
    anatomy = Anatomy(objective, every=every, against=against, temperature=temperature)
    # in every process: the gradient of a loss that gathers embeddings needs them all
    watch = _Watch(trainer, losses, anatomy)
    trainer.add_callback(_Notes(watch, path if trainer.is_world_process_zero() else None))
    return anatomy


def _objective(losses: list[nn.Module]) -> Objective | None:
    found = [getattr(loss, "objective", None) for loss in losses]
    own = found[0] if len(found) == 1 else None
    return own if isinstance(own, Objective) else None


def _temperature(losses: list[nn.Module]) -> float | None:
    scales = {getattr(loss, "scale", None) for loss in losses}
    scale = scales.pop()
    return 1 / scale if not scales and isinstance(scale, (int, float)) and scale > 0 else None


class _Watch:
    """What is embedded within one call of a loss."""

    def __init__(
        self, trainer: SentenceTransformerTrainer, losses: list[nn.Module], anatomy: Anatomy
    ) -> None:
        self.trainer, self.losses, self.anatomy = trainer, losses, anatomy
        self.embeddings: list[Tensor] | None = None
        self._hooks: list[RemovableHandle] = []

    def open(self) -> None:
        """Look on from here."""
        self.close()  # a training that was broken off has left them
        self._hooks = [self.trainer.model.register_forward_hook(self.embedded)]
        for loss in self.losses:
            self._hooks.append(loss.register_forward_pre_hook(self.begins))
            self._hooks.append(loss.register_forward_hook(self.ends))

    def close(self) -> None:
        """Look no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def begins(self, loss: nn.Module, given: tuple[Any, ...]) -> None:
        """Collect from here on, if the step is to be looked at and not an evaluation."""
        due = self.trainer.model.training and self.anatomy.due(self.trainer.state.global_step)
        self.embeddings = [] if due else None

    def embedded(self, model: nn.Module, given: tuple[Any, ...], output: object) -> None:
        """Keep what the model makes of a column, or of a piece of one."""
        if self.embeddings is not None and isinstance(output, Mapping):
            self.embeddings.append(output["sentence_embedding"])

    def ends(self, loss: nn.Module, given: tuple[Any, ...], value: object) -> None:
        """Look at the batch."""
        found, self.embeddings = self.embeddings, None
        if not found:
            return
        if isinstance(value, Mapping):  # some losses tell their terms apart
            value = torch.stack(list(value.values())).sum()
        assert isinstance(value, Tensor)
        step = self.trainer.state.global_step
        anchors, positives, *further = _columns(loss, found, list(given[0]))
        self.anatomy.observe(
            anchors.detach(),
            positives.detach(),
            value.detach(),
            negatives=torch.cat(further).detach() if further else None,
            gradient=_gradient(value, found, len(anchors)),
            step=step,
        )
        optimizer = self.trainer.optimizer
        assert optimizer is not None  # the trainer makes it before the first step
        self.anatomy.note(step, learning_rate=optimizer.param_groups[0]["lr"])


def _columns(
    loss: nn.Module, embeddings: list[Tensor], features: list[Mapping[str, Any]]
) -> list[Tensor]:
    """The embeddings of each column of the data set.

    Raises:
        InputError: a single column, or a loss that embeds its rows in another way.
    """
    name, columns = type(loss).__name__, len(features)
    rows, mask = sum(map(len, embeddings)), features[0].get("attention_mask")
    known = len(mask) if isinstance(mask, Tensor) and mask.ndim == 2 else rows // columns
    if columns == 1 and rows == 2 * known:
        columns = 2  # ours embeds a single column twice
    if columns < 2:
        raise InputError(
            f"{name} embeds one column; the anatomy needs anchors and positives: train on pairs"
        )
    if rows != columns * known:
        raise InputError(
            f"{name} embeds {rows} rows of {columns} columns with {known} texts each; record a "
            "loss that embeds each text once (the inner one of MatryoshkaLoss)"
        )
    return list(torch.split(torch.cat(embeddings), known))


def _gradient(loss: Tensor, embeddings: list[Tensor], n: int) -> Tensor | None:
    """The gradient of the loss on the first n rows; None where the loss has no graph to them."""
    if not all(x.requires_grad for x in embeddings):
        return None
    found = torch.autograd.grad(loss, embeddings, retain_graph=True, allow_unused=True)
    whole = [
        torch.zeros_like(x) if g is None else g for x, g in zip(embeddings, found, strict=True)
    ]
    return torch.cat(whole)[:n]


class _Notes(TrainerCallback):
    """Writes down what the trainer tells, and keeps the file."""

    def __init__(self, watch: _Watch, path: str | Path | None) -> None:
        self.watch, self.anatomy = watch, watch.anatomy
        self.path = None if path is None else Path(path)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401
        """Look on; go on with the rows of a training that is resumed."""
        self.watch.open()
        if self.path is not None and state.global_step > 0:
            self.anatomy.resume(self.path, state.global_step)

    def on_log(
        self,
        args: Any,  # noqa: ANN401 - the trainer's signature
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        logs: Mapping[str, float] | None = None,
        **_: Any,  # noqa: ANN401
    ) -> None:
        """Note the norm of the gradient of the step that has just ended."""
        if logs and "grad_norm" in logs:
            self.anatomy.note(state.global_step - 1, gradient_norm=float(logs["grad_norm"]))

    def on_evaluate(
        self,
        args: Any,  # noqa: ANN401 - the trainer's signature
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        metrics: Mapping[str, float] | None = None,
        **_: Any,  # noqa: ANN401
    ) -> None:
        """Note the score by which the best model is chosen, if larger is better."""
        name = args.metric_for_best_model
        found = {name, f"eval_{name}"} & set(metrics or {})
        if found and args.greater_is_better:
            assert metrics is not None
            self.anatomy.note(state.global_step, dev=float(metrics[found.pop()]))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401
        """Write the rows so far."""
        if self.path is not None:
            self.anatomy.save(self.path)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401
        """Write all rows."""
        self.watch.close()
        if self.path is not None:
            self.anatomy.save(self.path)
