"""Hyper: what a hyperparameter is called, means and may be; carried in ``Annotated[...]``."""

import dataclasses
import math
import typing
from dataclasses import dataclass
from typing import Any

__all__ = ["Hyper", "check", "hypers"]


@dataclass(frozen=True)
class Hyper:
    """One hyperparameter of an objective or part.

    Attributes:
        symbol: its letter in the papers (docs/notation.md).
        help: one sentence.
        above: exclusive lower bound.
        at_least: inclusive lower bound.
        at_most: inclusive upper bound.
    """

    symbol: str
    help: str
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bounds(self) -> str:
        """The allowed range in words: ``"> 0"``, ``">= 0, <= 1"``, or ``"any number"``."""
        named = ((">", self.above), (">=", self.at_least), ("<=", self.at_most))
        return ", ".join(f"{sign} {value:g}" for sign, value in named if value is not None) or (
            "any number"
        )

    def allows(self, value: float) -> bool:
        """Tell whether ``value`` is a number within the bounds."""
        return not (
            not math.isfinite(value)
            or (self.above is not None and value <= self.above)
            or (self.at_least is not None and value < self.at_least)
            or (self.at_most is not None and value > self.at_most)
        )


def hypers(cls: type) -> dict[str, Hyper]:
    """Return the hyperparameters of a class, by field name, in the order they are declared."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        field.name: hyper
        for field in dataclasses.fields(cls)
        for hyper in getattr(hints[field.name], "__metadata__", ())
        if isinstance(hyper, Hyper)
    }


def check(instance: Any) -> None:  # noqa: ANN401 - any dataclass with Hyper fields
    """Check the hyperparameters of a dataclass instance against their declared bounds.

    A 0-dim tensor (a learnt temperature) is taken at its present value.

    Raises:
        ValueError: a value that is not a number or lies outside its bounds.
    """
    for name, hyper in hypers(type(instance)).items():
        value = getattr(instance, name)
        plain = value.detach() if hasattr(value, "detach") else value
        try:
            number = float("" if isinstance(plain, (str, bool)) else plain)
        except (TypeError, ValueError):
            raise ValueError(
                f"{name} of {type(instance).__name__} must be a number; found {value!r}"
            ) from None
        if not hyper.allows(number):
            raise ValueError(
                f"{name} of {type(instance).__name__} ({hyper.help}) must be "
                f"{hyper.bounds}; found {number:g}"
            )
