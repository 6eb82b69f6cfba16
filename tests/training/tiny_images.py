"""Methods on images small enough for float64 and exact comparisons."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from isotrope.core.image_methods import METHODS
from isotrope.data.images.batches import ImageBatch
from isotrope.encoders.image import ImageEncoder
from isotrope.paradigm import registry
from isotrope.training.images.method import ImageMethod
from isotrope.training.images.settings import find_method, options_of
from isotrope.training.recipe import Plan

SIZE, D, STEPS = 8, 5, 20

SMALL = {
    "simclr": {"hidden": 6, "dimension": 4},
    "mocov2": {"hidden": 6, "dimension": 4, "queue": 16},
    "mocov3": {"hidden": 6, "dimension": 4},
    "byol": {"hidden": 6, "dimension": 4},
    "simsiam": {"dimension": 6, "bottleneck": 3},
    "barlowtwins": {"dimension": 6},
    "vicreg": {"dimension": 6},
    "dino": {"prototypes": 7, "hidden": 6, "bottleneck": 3, "frozen_epochs": 0},
}
assert set(SMALL) == set(METHODS)


def encoder(*, batch_norm: bool, seed: int = 0) -> ImageEncoder:
    """A convolution and a linear layer, n x 3 x 8 x 8 to n x 5; crops of any size."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        norm = [nn.BatchNorm2d(4)] if batch_norm else []
        layers = [nn.Conv2d(3, 4, 3, stride=2), *norm, nn.Tanh(), nn.AdaptiveAvgPool2d(2)]
        net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, D))
    return ImageEncoder.wrap(net, dimension=D, image_size=SIZE)


def plan(**changes: Any) -> Plan:
    values = {"steps": STEPS, "steps_per_epoch": 4, "learning_rate": 0.1, "weight_decay": 0.0}
    return Plan(**values | changes)


def method(
    name: str,
    *,
    batch_norm: bool = False,
    options: dict[str, Any] | None = None,
    objective: str | None = None,
    settings: dict[str, Any] | None = None,
    **values: Any,
) -> ImageMethod:
    """A method in float64 with its recipe's objective, in training mode."""
    cls = find_method(name)
    head = {} if name == "dino" else {"batch_norm": batch_norm}
    chosen = options_of(name, SMALL[name] | head | (options or {}))
    objective = objective or cls.recipe.objective
    values = {"plan": plan(), "seed": 3, "log_every": 1000} | values
    made = cls(
        encoder=values.pop("encoder", None) or encoder(batch_norm=batch_norm),
        objective=registry.build(objective, cls.settings_of(objective, chosen) | (settings or {})),
        options=chosen,
        **values,
    ).double()
    if hasattr(made, "queue"):
        made.queue.float()  # rows are float32 whatever the encoder is
    return made.train()


def batch(step: int = 0, n: int = 6, rows: slice | None = None) -> ImageBatch:
    generator = torch.Generator().manual_seed(100 + step)
    images = torch.randint(0, 256, (n, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    return ImageBatch(images[rows or slice(None)], step, n)


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}


def learn(made: ImageMethod, step: int = 0) -> float:
    """One whole step, as the trainer makes it."""
    optimizer = made.optimizer()
    loss = made(batch(step))
    loss.backward()
    made.after_backward()
    made.before_update(step, optimizer)
    optimizer.step()
    made.after_step()
    made.zero_grad()
    return float(loss.detach())


def twin(made: ImageMethod) -> ImageMethod:
    """The same method once more, for the test's own arithmetic."""
    return copy.deepcopy(made)
