"""Rates at a step, parameter groups, and LARS against its formula."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from isotrope.core.image_methods import METHODS
from isotrope.training.images.settings import find_method
from isotrope.training.optimisers import (
    LARS,
    SCHEDULES,
    OwnRate,
    build_optimizer,
    cosine,
    learning_rate_at,
    set_rates,
    weight_decay_at,
)
from isotrope.training.recipe import Plan

PLAN = Plan(
    steps=110,
    steps_per_epoch=11,
    learning_rate=0.5,
    weight_decay=0.04,
    warmup_steps=10,
    last_learning_rate=0.1,
)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        *((0, 0.05), (4, 0.25), (9, 0.5), (10, 0.5)),
        *((35, 0.3 + 0.2 * math.sqrt(0.5)), (60, 0.3), (85, 0.3 - 0.2 * math.sqrt(0.5))),
        *((110, 0.1), (200, 0.1)),
    ],
)
def test_the_learning_rate_warms_up_and_falls_along_a_cosine(step: int, expected: float) -> None:
    assert learning_rate_at(PLAN, step) == pytest.approx(expected, rel=1e-12)


def test_without_warm_up_the_first_step_has_the_peak_and_the_last_nearly_none() -> None:
    plan = Plan(steps=4, steps_per_epoch=4, learning_rate=1.0, weight_decay=0.0)
    rates = [learning_rate_at(plan, s) for s in range(5)]
    half = math.sqrt(0.5) / 2
    assert rates == pytest.approx([1, 0.5 + half, 0.5, 0.5 - half, 0], abs=1e-15)


@pytest.mark.parametrize("warmup", [0, 3])
@pytest.mark.parametrize("scheduler", list(SCHEDULES))
def test_schedules_are_those_of_transformers(scheduler: str, warmup: int) -> None:
    """But for the warm-up, whose first step has a rate of 0 there, and whose last one the peak."""
    from transformers import get_scheduler

    plan = replace(PLAN, steps=10, warmup_steps=warmup, last_learning_rate=0.0, scheduler=scheduler)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=plan.learning_rate)
    theirs = get_scheduler(
        "constant_with_warmup" if scheduler == "constant" else scheduler,
        optimizer,
        num_warmup_steps=warmup,
        num_training_steps=plan.steps,
    )
    rates = []
    for _ in range(plan.steps):
        rates += theirs.get_last_lr()
        optimizer.step()
        theirs.step()
    ours = [learning_rate_at(plan, step) for step in range(plan.steps)]
    assert ours[warmup:] == pytest.approx(rates[warmup:], rel=1e-12)
    assert ours[:warmup] == pytest.approx(rates[1 : warmup + 1], rel=1e-12)


def test_the_linear_schedule_is_exact() -> None:
    plan = replace(PLAN, warmup_steps=0, last_learning_rate=0.0, scheduler="linear")
    assert [learning_rate_at(plan, s) for s in range(110)] == [
        0.5 * (1 - s / 110) for s in range(110)
    ]


def test_weight_decay_goes_along_a_cosine_if_it_has_an_end() -> None:
    plan = replace(PLAN, last_weight_decay=0.4)
    found = [weight_decay_at(plan, s) for s in (0, 55, 110, 500)]
    assert found == pytest.approx([0.04, 0.22, 0.4, 0.4], rel=1e-12)
    assert weight_decay_at(PLAN, 110) == 0.04


def test_cosine_has_its_ends_and_its_middle() -> None:
    assert [cosine(0.9, 1.0, p) for p in (0, 0.5, 1)] == pytest.approx([0.9, 0.95, 1.0], rel=1e-15)


def net() -> nn.Module:
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 5)]
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("name", ["sgd", "lars", "adamw"])
def test_biases_and_norms_decay_only_where_the_plan_says_all(name: str) -> None:
    module = net()
    module[0].bias.requires_grad_(False)
    matrices = {module[0].weight, module[3].weight}
    vectors = {module[1].weight, module[1].bias, module[3].bias}
    some = build_optimizer(module, replace(PLAN, optimizer=name, decay_all=False))
    decays = {p: group["weight_decay"] for group in some.param_groups for p in group["params"]}
    assert decays == dict.fromkeys(matrices, 0.04) | dict.fromkeys(vectors, 0.0)
    everything = build_optimizer(module, replace(PLAN, optimizer=name))
    assert [g["weight_decay"] for g in everything.param_groups] == [0.04]
    assert {*everything.param_groups[0]["params"]} == matrices | vectors


def test_rates_are_set_by_step_and_held_where_they_are_constant() -> None:
    module = net()
    plan = replace(PLAN, last_weight_decay=0.4, decay_all=False)
    optimizer = build_optimizer(module, plan, own_rate=OwnRate(module[3], 3, constant=True))
    set_rates(optimizer, plan, 60)
    found = {p: (g["lr"], g["weight_decay"]) for g in optimizer.param_groups for p in g["params"]}
    decay = weight_decay_at(plan, 60)
    assert found[module[0].weight] == (learning_rate_at(plan, 60), decay)
    assert found[module[1].weight] == (learning_rate_at(plan, 60), 0.0)
    assert found[module[3].weight] == (1.5, decay)
    assert found[module[3].bias] == (1.5, 0.0)
    faster = build_optimizer(module, plan, own_rate=OwnRate(module[3], 3))
    set_rates(faster, plan, 60)
    rates = {p: g["lr"] for g in faster.param_groups for p in g["params"]}
    assert rates[module[3].weight] == 3 * rates[module[0].weight] == 3 * learning_rate_at(plan, 60)


def test_an_optimiser_begins_with_the_rates_of_step_0_and_its_momentum() -> None:
    optimizer = build_optimizer(net(), replace(PLAN, momentum=0.7))
    (group,) = optimizer.param_groups
    assert (group["lr"], group["momentum"]) == (0.05, 0.7)
    assert build_optimizer(net(), replace(PLAN, optimizer="adamw"), fused=True).defaults["fused"]


def test_lars_is_its_formula() -> None:
    torch.manual_seed(0)
    module = net()
    plan = replace(PLAN, optimizer="lars", decay_all=False, momentum=0.9)
    optimizer = build_optimizer(module, plan)
    assert isinstance(optimizer, LARS)
    ours = {n: p.detach().clone() for n, p in module.named_parameters()}
    velocity = {n: torch.zeros_like(p) for n, p in ours.items()}
    for step in (0, 1, 30):
        set_rates(optimizer, plan, step)
        for p in module.parameters():
            p.grad = torch.randn_like(p)
        for n, p in module.named_parameters():
            g = p.grad
            if p.ndim > 1:
                g = g + 0.04 * ours[n]
                g = 0.001 * ours[n].norm() / g.norm() * g
            velocity[n] = 0.9 * velocity[n] + g
            ours[n] = ours[n] - learning_rate_at(plan, step) * velocity[n]
        optimizer.step()
    for n, p in module.named_parameters():
        assert torch.allclose(p, ours[n], rtol=1e-12, atol=1e-15)


def test_lars_moves_a_zero_matrix_plainly_and_leaves_what_has_no_gradient() -> None:
    zero, still = (nn.Parameter(x) for x in (torch.zeros(2, 2), torch.ones(2, 2)))
    optimizer = LARS([zero, still], lr=0.5, weight_decay=0.1)
    zero.grad = torch.ones(2, 2)
    assert optimizer.step(lambda: 3.0) == 3.0
    assert torch.equal(zero.detach(), torch.full((2, 2), -0.5))
    assert torch.equal(still.detach(), torch.ones(2, 2))
    zero.grad, still.grad = torch.zeros(2, 2), torch.zeros(2, 2)
    LARS([zero, still], lr=0.5).step()
    assert torch.equal(still.detach(), torch.ones(2, 2))


def test_lars_goes_on_from_its_state() -> None:
    a, b = (nn.Parameter(torch.ones(2, 2)) for _ in range(2))
    first, second = (LARS([p], lr=0.5, weight_decay=0.1) for p in (a, b))
    for p, optimizer in ((a, first), (b, second)):
        p.grad = torch.eye(2)
        optimizer.step()
    third = LARS([b], lr=0.5, weight_decay=0.1)
    third.load_state_dict(second.state_dict())
    for p, optimizer in ((a, first), (b, third)):
        p.grad = torch.ones(2, 2)
        optimizer.step()
    assert torch.equal(a, b)


def test_a_recipe_scales_its_learning_rate_and_warms_up_for_its_share() -> None:
    vicreg = find_method("vicreg").recipe  # .03 at 128, 10 of 200 epochs of warm-up
    plan = vicreg.plan(steps=1000, steps_per_epoch=100, batch_size=512)
    assert plan.learning_rate == pytest.approx(0.12)
    assert plan.warmup_steps == 50
    assert find_method("simsiam").recipe.plan(
        steps=10, steps_per_epoch=1, batch_size=512
    ).learning_rate == pytest.approx(0.06)


@pytest.mark.parametrize("name", METHODS)
def test_plans_are_the_recipes(name: str) -> None:
    recipe = find_method(name).recipe
    plan = recipe.plan(steps=200, steps_per_epoch=1, batch_size=recipe.batch_size)
    for field in ("learning_rate", "weight_decay", "optimizer", "momentum", "last_learning_rate"):
        assert getattr(plan, field) == getattr(recipe, field)
    assert plan.last_weight_decay == recipe.last_weight_decay
    assert plan.decay_all is recipe.decay_all
    assert plan.warmup_steps == recipe.warmup_epochs
