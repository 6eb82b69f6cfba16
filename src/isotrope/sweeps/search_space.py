"""Parses the search space: settings with the values or ranges that a sweep tries.

``objective.temperature=0.03,0.05,0.1`` are values; ``learning-rate=1e-5..1e-4`` is a range. Values
of a range are drawn on a logarithmic scale if its upper end is at least ten times its lower end,
otherwise on a linear scale. A suffix ``:log`` or ``:linear`` sets the scale. ``:whole`` draws whole
numbers; settings that need whole numbers need no suffix. ``:5`` makes a list of five values.
"""

import math
import types
import typing
from dataclasses import dataclass

from isotrope.core.errors import SettingError
from isotrope.core.settings import dotted_key, flag
from isotrope.training.run_settings import RunSettings

_MOST = 10_000  # most values of a range in a grid

_FIXED = {
    "output": "do not vary `output`: every run has its own folder in `--output`",
    "seed": "use `--seeds 0 1 2`, which trains every trial with each seed",
    "progress": "do not vary `progress`: a sweep shows one progress bar for all runs",
    "devices": "use `--jobs N`, which trains N runs at a time",
}


@dataclass(frozen=True)
class Span:
    """A range of numbers; both ends belong to it."""

    low: float
    high: float
    log: bool
    integers: bool

    def at(self, share: float) -> str:
        """Return a value of the range as text; ``share`` goes from 0 (``low``) to 1 (``high``)."""
        if self.log:
            value = math.exp(math.log(self.low) * (1 - share) + math.log(self.high) * share)
        else:
            value = self.low * (1 - share) + self.high * share
        return self.spelled(value)

    def spelled(self, value: float) -> str:
        """Return a value of the range as the text of a flag."""
        value = min(max(value, self.low), self.high)
        if self.integers:
            return str(round(value))
        return f"{min(max(float(f'{value:.4g}'), self.low), self.high):.12g}"


@dataclass(frozen=True)
class Varied:
    """A setting to vary: its flag, and listed values or the range to draw from."""

    name: str
    values: tuple[str, ...] = ()
    span: Span | None = None

    @property
    def ends(self) -> tuple[str, ...]:
        """The values of a list, or the ends of a range. If these are valid, every value is."""
        return self.values or (() if self.span is None else (self.span.at(0), self.span.at(1)))


def read_varied(text: str, settings: type[RunSettings]) -> Varied:
    """Parse ``NAME=VALUES``."""
    name, equals, values = text.partition("=")
    name = spelled(settings, name.strip())
    if not name or not equals or not values.strip():
        raise SettingError(
            "takes NAME=VALUE,VALUE,... or NAME=LOW..HIGH",
            setting="vary",
            value=text,
            remedy="for example learning-rate=1e-5,3e-5 or objective.temperature=0.03..0.1",
        )
    if name in _FIXED:
        raise SettingError(_FIXED[name], setting="vary", value=name)
    settings.check_name(name, source="`--vary`")
    try:
        if ".." in values:
            return _range(name, values, integers=_takes_whole(settings, name))
        return Varied(name, _listed(values))
    except ValueError as error:
        raise SettingError(str(error), setting="vary", value=text) from error


def spelled(settings: type[RunSettings], name: str) -> str:
    """Return the name of a setting's flag; names with a dot, as ``method.frozen_epochs``, stay."""
    return name if dotted_key(settings, name) else flag(name)


def _takes_whole(settings: type[RunSettings], name: str) -> bool:
    """Whether the setting takes whole numbers only."""
    if dotted_key(settings, name):
        return False
    kind = settings.model_fields[name.replace("-", "_")].annotation
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return int in kinds and float not in kinds


def _listed(text: str) -> tuple[str, ...]:
    values = tuple(value.strip() for value in text.split(","))
    if "" in values or len(set(values)) < len(values):
        raise ValueError("remove the value that is empty or listed twice")
    return values


def _range(name: str, text: str, *, integers: bool) -> Varied:
    """Return a setting with a range, or with the values of a range that ends with ``:N``."""
    ends, *words = text.split(":")
    low, high = _ends(ends)
    log, points = low > 0 and high / low >= 10, None
    for word in words:
        if word in ("log", "linear"):
            log = word == "log"
        elif word == "whole":
            integers = True
        elif word.isdecimal() and len(word) < 10 and int(word) > 1:
            points = int(word)
        else:
            raise ValueError(
                f"write only :log, :linear, :whole or a number (:5) after a range; found {word!r}"
            )
    if log and low <= 0:
        raise ValueError("begin a logarithmic range above 0, or write :linear after it")
    if integers and not (low.is_integer() and high.is_integer()):
        raise ValueError("give whole numbers as the ends of the range")
    span = Span(low, high, log, integers)
    if points is None:
        return Varied(name, span=span)
    if points > _MOST:
        raise ValueError(f"take at most {_MOST:,} values of a range; found {points:,}")
    return Varied(name, tuple(dict.fromkeys(span.at(i / (points - 1)) for i in range(points))))


def _ends(text: str) -> tuple[float, float]:
    low, _, high = text.partition("..")
    try:
        ends = float(low), float(high)
    except ValueError:
        raise ValueError("write a range as LOW..HIGH, with two numbers") from None
    if not (math.isfinite(ends[1] - ends[0]) and ends[0] < ends[1]):
        raise ValueError("write a range from a smaller to a larger number")
    return ends
