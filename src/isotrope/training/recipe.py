"""The optimiser settings of a published method (Recipe) and of one run (Plan)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

Optimizer = Literal["sgd", "lars", "adamw"]
Scheduler = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The settings of an optimiser.

    Attributes:
        learning_rate: Peak learning rate.
        optimizer: ``sgd`` or ``lars`` (both with ``momentum``), or ``adamw``.
        momentum: Momentum of SGD and LARS.
        weight_decay: Weight decay at the first step.
        last_weight_decay: Weight decay at the last step, reached along a cosine. None for a
            constant weight decay.
        last_learning_rate: Learning rate at the end of the schedule.
        decay_all: Whether biases and norms also have the weight decay and the trust ratio of LARS.
    """

    learning_rate: float = 0.06
    optimizer: Optimizer = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    last_weight_decay: float | None = None
    last_learning_rate: float = 0.0
    decay_all: bool = True


@dataclass(frozen=True, kw_only=True)
class Plan(Rates):
    """The optimiser settings of one run; the learning rate is for the batch size of the run.

    Attributes:
        steps: Number of steps of the whole run.
        steps_per_epoch: Number of steps of one pass over the data.
        warmup_steps: Number of steps in which the learning rate rises linearly.
        scheduler: Schedule by which the rate goes from its peak to ``last_learning_rate``.
    """

    steps: int
    steps_per_epoch: int
    warmup_steps: int = 0
    scheduler: Scheduler = "cosine"


@dataclass(frozen=True, kw_only=True)
class Recipe(Rates):
    """The default settings for training a method.

    Attributes:
        objective: Registered name of the objective.
        objective_settings: Dict from names of objectives to dicts of hyperparameters. These values
            replace the objective's own defaults.
        augment: Name of the augmentation, such as ``simclr``.
        source: Publications that give these numbers.
        batch_size: Batch size for which the learning rate was chosen. With batch size B, the
            learning rate is multiplied by B / batch_size, unless ``scaled`` is False.
        epochs: Number of epochs.
        warmup_epochs: Number of epochs of warm-up in a run of ``epochs`` epochs. The share of
            warm-up steps is the same in a run of another length.
        clip: Norm above which gradients are clipped; None if gradients are never clipped.
        scaled: Whether the learning rate is proportional to the batch size.
    """

    objective: str
    augment: str
    source: str
    objective_settings: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    batch_size: int = 128
    epochs: int = 200
    warmup_epochs: float = 0.0
    clip: float | None = None
    scaled: bool = True

    def plan(self, *, steps: int, steps_per_epoch: int, batch_size: int) -> Plan:
        """Return the plan of a run of ``steps`` steps."""
        rate = self.learning_rate * (batch_size / self.batch_size if self.scaled else 1)
        rates = {entry.name: getattr(self, entry.name) for entry in fields(Rates)}
        rates |= {"learning_rate": rate, "last_learning_rate": min(self.last_learning_rate, rate)}
        warmup = round(steps * self.warmup_epochs / self.epochs)
        return Plan(steps=steps, steps_per_epoch=steps_per_epoch, warmup_steps=warmup, **rates)
