"""sentence-transformers: the anatomy of a training by its own trainers, whatever the loss.

One line between the trainer and its ``train()``::

    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=data, loss=loss)
    anatomy = record(trainer, "runs/theirs")
    trainer.train()
    print(anatomy.diagnose())

Nothing of theirs is replaced, and nothing is computed twice: hooks see what the model embeds and
the gradient that the training's own backward pass brings. What goes wrong while looking never
reaches the training; what cannot be seen is said once, as a warning of the logger ``isotrope``.
"""

import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from isotrope.adapters.sentence_transformers.losses import ObjectiveLoss
from isotrope.core.errors import MissingExtra
from isotrope.diagnostics.anatomy import Anatomy, Row
from isotrope.diagnostics.catch import Catch, Caught
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.recognise import MISFIT

try:
    from sentence_transformers.base.trainer import BaseTrainer
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise MissingExtra(error.name or "sentence_transformers", extra="train") from error

__all__ = ["record"]

logger = logging.getLogger("isotrope")


def record(
    trainer: BaseTrainer,
    path: str | Path | None = None,
    *,
    objective: Objective | None = None,
    every: int = 10,
    against: Literal["cross", "both"] | None = None,
    temperature: float | None = None,
) -> Anatomy:
    """Return the anatomy of what ``trainer`` is going to train, which fills while it does.

    Of two columns or more (anchors, positives, hard negatives) the components are recognised from
    the gradient, and so is the temperature of a softmax; losses that cache gradients and those of
    prefixes (``MatryoshkaLoss``, of which the longest is looked at) need nothing more. Pair losses
    have no in-batch negatives, and so no components. Of a single column there is how the
    embeddings lie, of what is no vector (cross-encoders, several vectors a text) nothing but the
    loss. Learning rate, gradient norm and, as ``dev``, the metric named in
    ``metric_for_best_model`` are noted as the trainer tells them.

    Args:
        trainer: of any of their four kinds of model, not yet trained; of several processes each
            records its own rows of a batch, and the first writes. One that spreads a batch over
            several GPUs itself shows nothing: start one process a GPU.
        path: file or folder to write metrics.csv to with every checkpoint and at the end; None
            leaves that to ``Anatomy.save``. A resumed training goes on with the rows in it.
        objective: what the loss is, if it is one of ours; of an ``ObjectiveLoss`` it is known.
        every: steps from one look to the next.
        against: as for :class:`~isotrope.diagnostics.anatomy.Anatomy`.
        temperature: likewise; by default that of the loss (its ``temperature``, or 1 over its
            ``scale``), if it has one, else what is recognised.
    """
    losses = list(trainer.loss.values()) if isinstance(trainer.loss, dict) else [trainer.loss]
    if objective is None:
        objective = _objective(losses)
    if temperature is None:
        temperature = _temperature(losses)
    anatomy = Anatomy(
        objective,
        every=every,
        against=against,
        temperature=temperature,
        settings=_settings(trainer),
    )
    # in every process: the gradient of a loss that gathers embeddings needs them all
    watch = _Watch(trainer, losses, anatomy)
    trainer.add_callback(_Notes(watch, path if trainer.is_world_process_zero() else None))
    return anatomy


def _objective(losses: list[nn.Module]) -> Objective | None:
    own = [m.objective for m in losses[0].modules() if isinstance(m, ObjectiveLoss)]
    return own[0] if len(losses) == 1 and own else None


def _temperature(losses: list[nn.Module]) -> float | None:
    """What the losses say, if they say one and the same."""
    found = set()
    for loss in losses:
        scale, own = getattr(loss, "scale", None), getattr(loss, "temperature", None)
        if isinstance(scale, (int, float)) and scale > 0:
            own = 1 / scale
        found.add(own if isinstance(own, (int, float)) and own > 0 else None)
    return found.pop() if len(found) == 1 else None


def _settings(trainer: BaseTrainer) -> dict[str, Any]:
    """What the trainer's arguments say that the doctor reasons with."""
    return {
        "batch-size": trainer.args.per_device_train_batch_size,
        "learning-rate": trainer.args.learning_rate,
    }


class _Watch:
    """What is embedded for one call of a loss, and what gradient comes back."""

    def __init__(self, trainer: BaseTrainer, losses: list[nn.Module], anatomy: Anatomy) -> None:
        self.trainer, self.losses, self.anatomy = trainer, losses, anatomy
        self._hooks: list[RemovableHandle] = []
        self._said: set[str] = set()
        self._batch: _HookedBatch | None = None

    def open(self) -> None:
        """Look on from here."""
        self.close()  # a training that was broken off has left them
        if self.trainer.args.n_gpu > 1:
            self.say(
                f"this trainer splits each batch between {self.trainer.args.n_gpu} GPUs: nothing "
                "of it is visible; start one process a GPU (torchrun), or show it one "
                "(CUDA_VISIBLE_DEVICES=0)"
            )
            return
        embedded = self.quietly(self._embedded)
        if self.trainer.args.torch_compile:
            embedded = torch.compiler.disable(embedded)
        self._hooks = [self.trainer.model.register_forward_hook(embedded)]
        for loss in self.losses:
            self._hooks.append(loss.register_forward_pre_hook(self.quietly(self._begins)))
            self._hooks.append(loss.register_forward_hook(self.quietly(self._ends)))

    def close(self) -> None:
        """Look no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._batch = [], None

    def say(self, what: str) -> None:
        """Say something once."""
        if what not in self._said:
            self._said.add(what)
            logger.warning("anatomy: %s", what)

    def quietly(self, what: Callable[..., object]) -> Callable[..., None]:
        """The same, from which no error reaches the training."""

        @functools.wraps(what)
        def looked(*given: Any, **named: Any) -> None:  # noqa: ANN401 - anyone's signature
            try:
                what(*given, **named)
            except Exception as error:  # whatever it is, the training goes on
                self._batch = None
                self.say(
                    f"a step could not be looked at ({type(error).__name__}: {error}); the "
                    "training is not touched by that"
                )

        return looked

    def _begins(self, loss: nn.Module, given: tuple[Any, ...]) -> None:
        """Collect from here on, if the step is to be looked at and not an evaluation."""
        training = self.trainer.model.training and torch.is_grad_enabled()
        due = training and self.anatomy.due(self.trainer.state.global_step)
        self._batch = _HookedBatch(loss, given) if due else None

    def _embedded(self, model: nn.Module, given: tuple[Any, ...], output: object) -> None:
        """Keep what the model makes of a column, or of a piece of one."""
        if self._batch is None:
            return
        vectors = output.get("sentence_embedding") if isinstance(output, Mapping) else None
        if isinstance(vectors, Tensor) and vectors.ndim == 2 and vectors.is_floating_point():
            self._batch.catch.add(vectors.to_dense() if vectors.is_sparse else vectors)

    def _ends(self, loss: nn.Module, given: tuple[Any, ...], value: object) -> None:
        """Keep the loss, and by what its gradient is multiplied."""
        if self._batch is not None:
            self._batch.end(value)

    def look(self) -> None:
        """Look at the batch, whose backward pass has been."""
        batch, self._batch = self._batch, None
        if batch is None or batch.value is None:
            return
        step = self.trainer.state.global_step
        caught = batch.caught()
        if caught is None:
            self.say(
                f"{type(self.trainer.model).__name__} under {batch.name} makes no embeddings that "
                "are one vector a text: their anatomy is not visible, only the loss is noted"
            )
            self.anatomy.note(step, loss=batch.value)
        else:
            row = batch.observe(self.anatomy, caught, step)
            for what in [] if row is None else _unseen(batch, caught, row):
                self.say(what)
        optimizer = self.trainer.optimizer
        if optimizer is not None:
            self.anatomy.note(step, learning_rate=optimizer.param_groups[0]["lr"])


class _HookedBatch:
    """One call of a loss."""

    def __init__(self, loss: nn.Module, given: tuple[Any, ...]) -> None:
        features = list(given[0])
        self.name = type(loss).__name__
        self.labelled = len(given) > 1 and given[1] is not None
        self.rows = _rows(features[0])
        twice = any(isinstance(module, ObjectiveLoss) for module in loss.modules())
        self.columns = 2 if twice and len(features) == 1 else len(features)
        self.catch = Catch()
        self.value: float | None = None
        self._factor = 1.0

    def end(self, value: object) -> None:
        """Note the value, and have its gradient noted: 1 but for accumulation and float16."""
        parts = list(value.values()) if isinstance(value, Mapping) else [value]
        tensors = [part for part in parts if isinstance(part, Tensor)]
        self.value = sum(float(part.detach()) for part in tensors)
        followed = [part for part in tensors if part.requires_grad]
        if followed:
            followed[0].register_hook(self._scaled)

    def _scaled(self, gradient: Tensor) -> None:
        self._factor = float(gradient)

    def caught(self) -> Caught | None:
        """What was embedded; None where no texts were counted, or no vectors made."""
        return None if self.rows is None else self.catch.first(self.rows * self.columns)

    def observe(self, anatomy: Anatomy, caught: Caught, step: int) -> Row | None:
        """The row of this batch."""
        assert self.rows is not None
        assert self.value is not None
        columns: list[Tensor | None] = [*torch.split(caught.embeddings, self.rows)]
        anchors, positives, *further = [*columns, None] if len(columns) == 1 else columns
        assert anchors is not None
        gradient = caught.gradient
        return anatomy.observe(
            anchors,
            positives if caught.whole else None,
            torch.tensor(self.value),
            negatives=torch.cat([x for x in further if x is not None])
            if further and caught.whole
            else None,
            gradient=None if gradient is None else gradient[: len(anchors)] / self._factor,
            labelled=self.labelled,
            step=step,
        )


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


def _unseen(batch: _HookedBatch, caught: Caught, row: Row) -> list[str]:
    """What of this batch is not to be seen, and why."""
    lying = "how embeddings lie is shown, GD, W and R are not"
    if batch.columns < 2 or not caught.whole:
        seen = "one column" if batch.columns < 2 else "its columns not each once"
        return [f"{batch.name} embeds {seen}: {lying}"]
    if row["norm"] is None or row["dissipation"] is not None:
        return []
    if row["negatives"] == 0:
        return [
            f"{batch.name} compares an anchor with nothing but its own pair: there are no in-batch "
            f"negatives, and so no GD, W and R; {lying}"
        ]
    if row["std"] is None:
        return [
            f"{batch.name} is no loss of cosines (its gradient changes the embeddings' lengths): "
            "norm and rank are shown, angles, GD, W and R are not"
        ]
    if row["embedding_gradient"] is None:
        return [f"no gradient of {batch.name} reaches the embeddings: {lying}"]
    misfit = row["misfit"]
    if batch.labelled or (misfit is not None and misfit > MISFIT):
        return [f"the gradient of {batch.name} is not one of pushes and a pull: {lying}"]
    return []


class _Notes(TrainerCallback):
    """Writes down what the trainer tells, and keeps the file."""

    def __init__(self, watch: _Watch, path: str | Path | None) -> None:
        self.watch, self.anatomy = watch, watch.anatomy
        self.path = None if path is None else Path(path)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401
        """Look on; go on with the rows of a training that is resumed."""
        self.watch.quietly(self.watch.open)()
        if self.path is not None and state.global_step > 0:
            self.watch.quietly(self.anatomy.resume)(self.path, state.global_step)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401
        """Look at a batch of several whose gradients are added up."""
        self.watch.quietly(self.watch.look)()

    def on_pre_optimizer_step(
        self,
        args: Any,  # noqa: ANN401 - the trainer's signature
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        **_: Any,  # noqa: ANN401
    ) -> None:
        """Look at the batch, before the weights that made it change."""
        self.watch.quietly(self.watch.look)()

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
            self.watch.quietly(self.anatomy.note)(
                state.global_step - 1, gradient_norm=float(logs["grad_norm"])
            )

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
            self.watch.quietly(self.anatomy.note)(
                state.global_step, dev=float(metrics[found.pop()])
            )

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401
        """Write the rows so far."""
        self._save()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401
        """Write all rows."""
        self.watch.close()
        self._save()

    def _save(self) -> None:
        if self.path is not None:
            self.watch.quietly(self.anatomy.save)(self.path)
