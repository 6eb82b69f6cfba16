"""Defines learning-rate schedules, seeds of steps, parameter groups, and the optimiser LARS.

The learning rate and the weight decay depend only on the step, and are set before every update.
Therefore a resumed run has the same values as an uninterrupted run.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from isotrope.core.errors import InputError
from isotrope.training.recipe import Plan
from isotrope.training.settings import TrainSettings


def cosine(start: float, end: float, progress: float) -> float:
    """Return the value at ``progress`` (0 to 1) on half a cosine from ``start`` to ``end``.

    >>> [round(cosine(1.0, 0.0, p), 6) for p in (0, 0.5, 1)]
    [1.0, 0.5, 0.0]
    """
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


SCHEDULES: dict[str, Callable[[float, float, float], float]] = {
    "constant": lambda start, end, progress: start,
    "linear": lambda start, end, progress: end + (start - end) * (1 - progress),
    "cosine": cosine,
}
"""Functions (peak, end, share of finished steps) that return the learning rate after warm-up."""


def learning_rate_at(plan: Plan, step: int) -> float:
    """Return the learning rate of the update ``step``, counted from 0.

    The rate rises linearly, is at its peak in the last step of the warm-up, and then follows
    ``plan.scheduler``. Schedules of transformers have the same names, but begin with a rate of 0.
    """
    if step < plan.warmup_steps:
        return plan.learning_rate * (step + 1) / plan.warmup_steps
    rest = max(1, plan.steps - plan.warmup_steps)
    progress = min(1.0, (step - plan.warmup_steps) / rest)
    return SCHEDULES[plan.scheduler](plan.learning_rate, plan.last_learning_rate, progress)


def refuse_long_warmup(plan: Plan, setting: str) -> None:
    """Refuse a warm-up that is longer than the run."""
    if plan.warmup_steps > plan.steps:
        raise InputError(
            f"train longer or shorten the warm-up: {setting} means {plan.warmup_steps} steps, but "
            f"the run has only {plan.steps}, so the rate would not reach {plan.learning_rate:g}"
        )


def plan_of(settings: TrainSettings, steps_per_epoch: int | None) -> Plan:
    """Return the steps and the learning rates of the whole run."""
    steps, warmup = settings.max_steps, settings.warmup
    if steps is None:
        assert steps_per_epoch is not None  # --streaming is refused without --max-steps
        steps = max(1, math.ceil(settings.epochs * steps_per_epoch))
    # as transformers rounds a share
    rising = int(warmup) if warmup >= 1 else math.ceil(warmup * steps)
    if settings.minutes is not None:  # the number of steps is known only by and by
        rising = min(rising, steps)
    plan = Plan(
        steps=steps,
        steps_per_epoch=steps_per_epoch or steps,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        optimizer="adamw",
        warmup_steps=rising,
        scheduler=settings.scheduler,
    )
    refuse_long_warmup(plan, f"`--warmup {warmup:g}`")
    return plan


def weight_decay_at(plan: Plan, step: int) -> float:
    """Return the weight decay of the update ``step``."""
    if plan.last_weight_decay is None:
        return plan.weight_decay
    return cosine(plan.weight_decay, plan.last_weight_decay, min(1.0, step / plan.steps))


@dataclass(frozen=True)
class OwnRate:
    """A part of a module that has its own learning rate.

    Attributes:
        times: Factor by which the learning rate of the other parts is multiplied.
        constant: Whether the learning rate of the part stays at its peak.
    """

    part: nn.Module
    times: float
    constant: bool = False


def build_optimizer(
    module: nn.Module, plan: Plan, *, own_rate: OwnRate | None = None, fused: bool = False
) -> torch.optim.Optimizer:
    """Return the optimiser of all parameters of ``module`` that require a gradient.

    Args:
        module: Module to train.
        plan: Plan of the run.
        own_rate: Part of the module with its own learning rate; None for a single rate.
        fused: Whether AdamW updates all parameters in one kernel.
    """
    own = own_rate or OwnRate(nn.Module(), 1.0)
    apart = set(own.part.parameters())
    by_kind: dict[tuple[bool, bool], list[Tensor]] = {}
    for parameter in module.parameters():
        if parameter.requires_grad:
            # vectors are biases, and the scales and shifts of norms
            kind = (plan.decay_all or parameter.ndim > 1, parameter in apart)
            by_kind.setdefault(kind, []).append(parameter)
    groups: list[dict[str, Any]] = [
        {
            "params": parameters,
            "decays": decays,
            "times": own.times if is_apart else 1.0,
            "constant": own.constant and is_apart,
        }
        for (decays, is_apart), parameters in by_kind.items()
    ]
    optimizer: torch.optim.Optimizer
    if plan.optimizer == "adamw":
        optimizer = torch.optim.AdamW(groups, lr=plan.learning_rate, fused=fused)
    elif plan.optimizer == "lars":
        optimizer = LARS(groups, lr=plan.learning_rate, momentum=plan.momentum)
    else:
        optimizer = torch.optim.SGD(groups, lr=plan.learning_rate, momentum=plan.momentum)
    set_rates(optimizer, plan, 0)
    return optimizer


def set_rates(optimizer: torch.optim.Optimizer, plan: Plan, step: int) -> None:
    """Set the learning rate and weight decay of each parameter group for the update ``step``."""
    for group in optimizer.param_groups:
        rate = plan.learning_rate if group["constant"] else learning_rate_at(plan, step)
        group["lr"] = group["times"] * rate
        group["weight_decay"] = weight_decay_at(plan, step) if group["decays"] else 0.0


class LARS(torch.optim.Optimizer):
    """SGD with momentum, in which the step of each matrix is proportional to the matrix's norm.

    Parameters p with gradient g and velocity v are updated in four operations: g <- g + wd p;
    g <- eta (|p| / |g|) g, unless |p| or |g| is 0; v <- mu v + g; p <- p - lr v. With
    ``decays=False``, the first two operations are left out.

    Source: You, Gitman and Ginsburg 2017, "Large batch training of convolutional networks",
    section 5. As in SimCLR, BYOL and MoCo v3, v does not contain the learning rate.

    Args:
        groups: Parameters p, or groups of parameters.
        lr: Learning rate lr.
        momentum: Momentum mu.
        weight_decay: Weight decay wd.
        trust: Trust coefficient eta.
    """

    def __init__(
        self,
        groups: Iterable[Any],
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
    ) -> None:
        values = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(groups, {**values, "decays": True, "times": 1.0, "constant": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # noqa: ANN401 - torch's
        """Update every parameter that has a gradient; return the result of ``closure``."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)
        return loss

    def _update(self, p: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        if group["decays"]:
            g = g.add(p, alpha=group["weight_decay"])
            length, slope = torch.linalg.vector_norm(p), torch.linalg.vector_norm(g)
            ratio = group["trust"] * length / slope
            g = g * torch.where((length > 0) & (slope > 0), ratio, torch.ones_like(ratio))
        v = self.state[p].setdefault("velocity", torch.zeros_like(p))
        v.mul_(group["momentum"]).add_(g)
        p.sub_(group["lr"] * v)


def step_seed(seed: int, step: int, process: int = 0) -> int:
    """Return the random seed of one step in one process."""
    # odd constants of 64 bits, as in splitmix64, give neighbouring seeds and steps distant results
    mixed = seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + process * 0x94D049BB133111EB
    return (mixed + 1) % 2**63
