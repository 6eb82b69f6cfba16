"""Hyper: bounds in words, and values outside them."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import torch

from isotrope.core.hyper import Hyper, check, hypers


@dataclass(frozen=True, kw_only=True)
class Knobs:
    temperature: Annotated[Any, Hyper("tau", "temperature of the softmax", above=0)] = 0.05
    balance: Annotated[Any, Hyper("b", "share", at_least=0, at_most=1)] = 0.5
    shift: Annotated[Any, Hyper("s", "shift")] = 0.0
    label: str = "not a hyperparameter"


def test_hypers_by_field_in_order() -> None:
    assert list(hypers(Knobs)) == ["temperature", "balance", "shift"]
    assert hypers(Knobs)["temperature"].symbol == "tau"


@pytest.mark.parametrize(
    ("hyper", "words"),
    [
        (Hyper("a", ""), "any number"),
        (Hyper("a", "", above=0), "> 0"),
        (Hyper("a", "", at_least=0, at_most=1), ">= 0, <= 1"),
        (Hyper("a", "", above=0, at_most=2.5), "> 0, <= 2.5"),
        (Hyper("a", "", choices=("GD", "GD+W")), "GD, GD+W"),
        (Hyper("a", "", choices=(False, True)), "false, true"),
    ],
)
def test_bounds_in_words(hyper: Hyper, words: str) -> None:
    assert hyper.bounds == words


@pytest.mark.parametrize(
    ("value", "allowed"), [(0, False), (1e-300, True), (2, True), (2.1, False), (-1, False)]
)
def test_an_exclusive_and_an_inclusive_bound(value: float, allowed: bool) -> None:
    assert Hyper("a", "", above=0, at_most=2).allows(value) is allowed


def test_an_inclusive_lower_bound() -> None:
    hyper = Hyper("a", "", at_least=0)
    assert hyper.allows(0)
    assert not hyper.allows(-1e-9)
    assert not hyper.allows(float("nan"))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"temperature": 1},
        {"temperature": torch.tensor(0.1, requires_grad=True)},
        {"balance": 0},
        {"balance": 1.0},
        {"shift": -1e9},
    ],
    ids=str,
)
def test_values_within_bounds(values: dict[str, Any]) -> None:
    check(Knobs(**values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"temperature": 0},
            r"temperature of Knobs \(temperature of the softmax\) must be > 0; found 0$",
        ),
        ({"temperature": torch.tensor(-0.5)}, "must be > 0; found -0.5$"),
        ({"balance": 1.5}, r"balance of Knobs \(share\) must be >= 0, <= 1; found 1.5"),
        ({"balance": -0.1}, "must be >= 0, <= 1; found -0.1"),
        ({"shift": float("nan")}, "must be any number; found nan"),
        ({"temperature": "0.05"}, "temperature of Knobs must be a number; found '0.05'"),
        ({"temperature": True}, "must be a number; found True"),
        ({"temperature": None}, "must be a number; found None"),
        ({"temperature": [0.1]}, r"must be a number; found \[0.1\]"),
        *(
            ({"temperature": torch.ones(shape)}, r"tensor without dimensions; found shape \(")
            for shape in ((1,), (2,), (1, 1))
        ),
    ],
    ids=str,
)
def test_values_outside_bounds(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(Knobs(**values))
