"""The encoder, its head, the losses and the optimiser of one training on text.

The trainer of sentence-transformers trains one ``SentenceTransformer``: the encoder, and the head,
which exists only in training. Normalize modules are removed, because objectives normalise by
themselves and the norms are logged. Each data set has its own ``ObjectiveLoss``, or
``CachedObjectiveLoss`` if the graphs of a batch do not fit into memory. The two views of a text are
two passes with dropout (SimCSE: Gao et al., 2021). Randomness is a function of (seed, step,
process), so a run resumed in the middle of an epoch repeats the same masks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from isotrope.adapters.sentence_transformers.losses import CachedObjectiveLoss, ObjectiveLoss
from isotrope.core.views import Views
from isotrope.data.text.batches import Batch
from isotrope.diagnostics.observe import loss_column, measure
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.paradigm.objective import Objective
from isotrope.training.optimisers import learning_rate_at
from isotrope.training.recipe import Plan
from isotrope.training.settings import TrainSettings


class Steps(IterableDataset[dict[str, Any]]):
    """The inputs of the steps ``start`` to ``stop`` of a run, in order."""

    def __init__(self, at: Callable[[int], dict[str, Any]], start: int, stop: int) -> None:
        self.at, self.start, self.stop = at, start, stop

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the input of each step."""
        for step in range(self.start, self.stop):
            yield self.at(step)


class TrainingHead(nn.Module):
    """The last module of the trained model: a network on its embeddings."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the features with the network applied to the embeddings."""
        return {**features, "sentence_embedding": self.network(features["sentence_embedding"])}


class TextModule(nn.Module):
    """The module that a run trains, with the logged numbers of a step.

    Args:
        settings: Settings of the run: its seed, precision and backend, the number of texts whose
            graphs are kept at a time, and the position ``between`` of the final weights between the
            initial (0) and the trained weights (1).
        encoder: Encoder to train, in place.
        head: Network on top of the encoder in training only, or None.
        objectives: Objective of each data set, by the name of the data set. Any registered
            objective or composition is allowed.
        plan: Steps, learning rate and weight decay of the run; the optimiser is AdamW.
        prefixes: Lengths of prefixes of the embeddings; the loss is the mean over whole embeddings
            and these prefixes.
        loss: Function that returns the loss of a model, instead of an objective.

    Attributes:
        model: The module to train: the encoder without its Normalize modules, and the head.
        losses: Loss of each data set.
    """

    model: SentenceTransformer

    def __init__(
        self,
        settings: TrainSettings,
        *,
        encoder: SentenceEncoder,
        head: nn.Module | None,
        objectives: Mapping[str, Objective],
        plan: Plan,
        prefixes: Sequence[int] = (),
        loss: Callable[[SentenceTransformer], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.between, self._step = settings.between, 0
        self.scaled = settings.precision == "16"  # float16 gradients, of which some may overflow
        self.encoder = encoder
        self.head = head if head is not None else nn.Identity()
        heads = [] if head is None else [TrainingHead(head)]
        # shared modules, not registered a second time
        vars(self)["model"] = SentenceTransformer(
            modules=[*encoder.body, *heads], device=str(encoder.device)
        )
        self.objectives = dict(objectives)
        self.objective = next(iter(self.objectives.values()))  # of the present step
        self.prefixes = tuple(prefixes)
        self.plan, self.steps, self.learning_rate = plan, plan.steps, plan.learning_rate
        self.seed, self.log_every = settings.seed, settings.log_every
        self.measured: dict[str, float | None] = {}
        self.seen: list[Views] = []
        self.gradient_norm: float | None = None
        self._logged = False
        trained = [p for p in encoder.parameters() if p.requires_grad] if self.between < 1 else []
        self._start = [(parameter, parameter.detach().clone()) for parameter in trained]
        vars(self)["losses"] = {
            name: self._loss(objective, settings) if loss is None else loss(self.model)
            for name, objective in self.objectives.items()
        }

    losses: dict[str, nn.Module]

    def _loss(
        self, objective: Objective, settings: TrainSettings
    ) -> ObjectiveLoss | CachedObjectiveLoss:
        common: dict[str, Any] = {
            "gather_across_devices": True,
            "groups": True,
            "backend": settings.backend,
            "prefixes": self.prefixes,
        }
        if settings.micro_batch is None:
            loss = ObjectiveLoss(self.model, objective, **common)
            loss.observe = self._observe
            return loss
        common["mini_batch_size"] = settings.micro_batch
        cached = CachedObjectiveLoss(self.model, objective, **common)
        cached.loss.observe = self._observe
        return cached

    # a step

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """Return a batch in the format of sentence-transformers' trainer."""
        columns = {
            f"column{i}_{name}": torch.from_numpy(values)
            for i, column in enumerate(batch.columns)
            for name, values in column._asdict().items()
        }
        label = torch.from_numpy(np.ascontiguousarray(batch.groups))
        if batch.scores is not None:
            label = torch.from_numpy(batch.scores.astype(np.float32)).squeeze(1)
        return {**columns, "label": label, "dataset_name": batch.dataset, "number": batch.number}

    def begin(self, step: int, dataset: str, number: int | None) -> None:
        """Begin a step; ``log_every`` counts the batches of each data set separately."""
        self.objective, self._step = self.objectives[dataset], step
        counted = step if number is None else number
        self._logged = counted % self.log_every == 0 or step == self.steps - 1
        self.measured, self.seen = {}, []

    def _observe(self, views: Views) -> None:
        self.seen = [views.detached()]
        if self._logged:
            self.measured = measure(self.objective, self.seen[0])

    def end(self, loss: Tensor, dataset: str) -> None:
        """Log the loss of a step, if the step is logged."""
        if self._logged:
            self.measured["loss"] = float(loss.detach())
            if dataset:
                self.measured[loss_column(dataset)] = self.measured["loss"]

    # its update

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step."""
        return learning_rate_at(self.plan, step)

    def before_update(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: the schedule sets the rates."""

    def after_backward(self) -> None:
        """Do nothing: the gradients are used as they are."""

    def after_step(self) -> None:
        """After the last update, set the weights to the share ``between`` of the way."""
        if self._step == self.steps - 1:
            with torch.no_grad():
                for parameter, start in self._start:
                    parameter.lerp_(start, 1 - self.between)

    def optimizer(self) -> torch.optim.Optimizer:
        """Return AdamW; its rates are relative to those of the schedule."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        decay = self.plan.weight_decay
        # biases, and the scales and shifts of norms, are vectors, which do not decay
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if p.ndim > 1 or not decay]}
        ]
        if decay:
            vectors = [p for p in parameters if p.ndim < 2]
            groups.append({"params": vectors, "weight_decay": 0.0})
        return torch.optim.AdamW(
            groups,
            lr=self.learning_rate,
            weight_decay=decay,
            # a fused step unscales by itself, after clipping: too late for float16
            fused=not self.scaled,
        )
