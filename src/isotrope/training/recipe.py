"""The Recipe and Plan records: the hyperparameters of a published method and of one run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Optimizer = Literal["sgd", "lars", "adamw"]
Scheduler = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The optimiser settings of one run, in steps.

    Attributes:
        steps: how many the whole run has; the learning rate reaches ``last_learning_rate`` there.
        steps_per_epoch: how many one pass over the data has.
        learning_rate: the peak, as the optimiser uses it (scaled already).
        weight_decay: the decay at the first step.
        optimizer: ``sgd`` (with ``momentum``), ``lars`` (likewise) or ``adamw``.
        momentum: used by SGD and LARS.
        warmup_steps: over which the learning rate rises linearly.
        scheduler: how the learning rate goes from its peak to ``last_learning_rate``: linearly,
            along a cosine, or not at all.
        last_learning_rate: the rate after the last step.
        last_weight_decay: the weight decay goes there along a cosine; None leaves it as it is.
        decay_all: weight decay (and LARS's trust ratio) also for biases and norms.
    """

    steps: int
    steps_per_epoch: int
    learning_rate: float
    weight_decay: float
    optimizer: Optimizer = "sgd"
    momentum: float = 0.9
    warmup_steps: int = 0
    scheduler: Scheduler = "cosine"
    last_learning_rate: float = 0.0
    last_weight_decay: float | None = None
    decay_all: bool = True


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a method is trained unless its user says otherwise.

    Attributes:
        objective: Registered name of the objective.
        objective_settings: for each objective the hyperparameters that are not its own default
            (with other settings the method can be trained as well).
        augment: name in ``data.augment.RECIPES``.
        source: where the numbers come from.
        learning_rate: peak, at ``batch_size``; a batch of B takes it times B / batch_size, unless
            ``scaled`` is False.
        optimizer: see :class:`Plan`, as the next ones.
        weight_decay: the decay at the first step.
        last_weight_decay: the decay at the last one; None keeps that of the first.
        decay_all: weight decay also for biases and norms.
        momentum: used by SGD and LARS.
        last_learning_rate: the rate at the end of the cosine.
        batch_size: images a step.
        epochs: passes over the data.
        warmup_epochs: Epochs of warm-up; a shorter run warms up for the same share.
        clip: largest norm of the gradient, or None.
        scaled: the learning rate grows with the batch.
    """

    objective: str
    augment: str
    source: str
    objective_settings: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    learning_rate: float = 0.06
    optimizer: Optimizer = "sgd"
    weight_decay: float = 5e-4
    last_weight_decay: float | None = None
    decay_all: bool = True
    momentum: float = 0.9
    last_learning_rate: float = 0.0
    batch_size: int = 128
    epochs: int = 200
    warmup_epochs: float = 0.0
    clip: float | None = None
    scaled: bool = True

    def plan(self, *, steps: int, steps_per_epoch: int, batch_size: int) -> Plan:
        """Return the plan of a run of ``steps``; ``dataclasses.replace`` changes single entries."""
        rate = self.learning_rate * (batch_size / self.batch_size if self.scaled else 1)
        return Plan(
            steps=steps,
            steps_per_epoch=steps_per_epoch,
            learning_rate=rate,
            weight_decay=self.weight_decay,
            optimizer=self.optimizer,
            momentum=self.momentum,
            warmup_steps=round(steps * self.warmup_epochs / self.epochs),
            last_learning_rate=min(self.last_learning_rate, rate),
            last_weight_decay=self.last_weight_decay,
            decay_all=self.decay_all,
        )
