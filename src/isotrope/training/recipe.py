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
        steps: Number of steps of the whole run, after which the learning rate is
            ``last_learning_rate``.
        steps_per_epoch: Number of steps of one pass over the data.
        learning_rate: Peak learning rate of the optimiser, already scaled.
        weight_decay: Weight decay at the first step.
        optimizer: ``sgd`` or ``lars`` (both with ``momentum``), or ``adamw``.
        momentum: Momentum of SGD and LARS.
        warmup_steps: Number of steps over which the learning rate rises linearly.
        scheduler: Path of the learning rate from its peak to ``last_learning_rate``: linear,
            along a cosine, or constant.
        last_learning_rate: Learning rate after the last step.
        last_weight_decay: Weight decay at the end of a cosine; None keeps the first value.
        decay_all: Whether biases and norms have weight decay (and LARS's trust ratio) too.
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
    """The default settings for training a method.

    Attributes:
        objective: Registered name of the objective.
        objective_settings: Hyperparameters of each objective that replace its own defaults; the
            user can change them.
        augment: Name in ``data.augment.RECIPES``.
        source: Source of the numbers.
        learning_rate: Peak at ``batch_size``; a batch of B takes it times B / batch_size, unless
            ``scaled`` is False.
        optimizer: See :class:`Plan`.
        weight_decay: Weight decay at the first step.
        last_weight_decay: Weight decay at the last step; None keeps the first value.
        decay_all: Whether biases and norms have weight decay too.
        momentum: Momentum of SGD and LARS.
        last_learning_rate: Learning rate at the end of the cosine.
        batch_size: Images per step.
        epochs: Passes over the data.
        warmup_epochs: Epochs of warm-up; a shorter run warms up for the same share.
        clip: Largest norm of the gradient, or None.
        scaled: Whether the learning rate grows with the batch.
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
