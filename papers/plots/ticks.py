"""Tick positions of an axis and their labels: short, distinct, with thousands separators."""

import math
from collections.abc import Sequence

from matplotlib.ticker import MaxNLocator

__all__ = ["linear_ticks", "log_ticks", "numbers"]

_STEPS = [1, 2, 2.5, 5, 10]
_STRIDES = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500)  # of powers of ten
_POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN = (1e-4, 1e6)  # numbers outside are written as powers of ten
_DIGITS = range(7, 18)


def linear_ticks(low: float, high: float, most: int, *, integers: bool = False) -> list[float]:
    """Return round numbers between two limits.

    Args:
        low: lower limit.
        high: upper limit, above ``low``.
        most: about how many intervals.
        integers: integers only.
    """
    locator = MaxNLocator(most, steps=_STEPS, integer=integers, min_n_ticks=1 if integers else 2)
    ticks = [float(tick) for tick in locator.tick_values(low, high)]
    noise = 1e-6 * (ticks[-1] - ticks[0])  # of sums of steps; zero is written as such
    return [tick if abs(tick) > noise else 0.0 for tick in ticks if low <= tick <= high]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return powers of ten between two positive limits; where they are few, other numbers too."""
    first, last = math.log10(low), math.log10(high)
    powers = range(math.ceil(first), math.floor(last) + 1)
    if len(powers) > 2:
        stride = next(s for s in _STRIDES if len(powers) <= s * most)
        return [10.0**power for power in powers if power % stride == 0]
    for between in ((1, 3), (1, 2, 5)):
        candidates = (
            m * 10.0**p for p in range(math.floor(first), math.ceil(last) + 1) for m in between
        )
        ticks = [tick for tick in candidates if low <= tick <= high]
        if len(ticks) > 2:
            return ticks
    return linear_ticks(low, high, most)


def numbers(ticks: Sequence[float]) -> list[str]:
    """Return the numbers of an axis as text, all plain or all powers of ten, no two the same."""
    sizes = [abs(tick) for tick in ticks if tick]
    plain = not sizes or (min(sizes) >= _PLAIN[0] and max(sizes) < _PLAIN[1])
    write = _plain if plain else _power
    texts: list[str] = []
    for digits in _DIGITS:
        texts = [write(tick, digits) for tick in ticks]
        if len(set(texts)) == len(set(ticks)):
            break
    return [text.replace("-", "\N{MINUS SIGN}") for text in texts]


def _plain(value: float, digits: int) -> str:
    return f"{value:,.{digits}g}"


def _power(value: float, digits: int) -> str:
    if not value:
        return "0"
    factor, power = f"{value:.{digits - 1}e}".split("e")
    if "." in factor:
        factor = factor.rstrip("0").rstrip(".")
    raised = "10" + str(int(power)).translate(_POWERS)
    return {"1": raised, "-1": f"-{raised}"}.get(factor, f"{factor}\N{MULTIPLICATION SIGN}{raised}")
