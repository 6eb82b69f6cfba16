"""The rule of evidence: what differences between paired trainings say of a printed effect.

One rule for every claim. A difference is taken seed by seed (the same data in the same order), its
90% interval is Student's, and the smallest effect of interest is a quarter of the one printed.
With the printed direction as the positive one:

- **replicated**: the whole interval is at or above the smallest effect of interest;
- **same direction, weaker**: the whole interval is above 0, and reaches below that effect;
- **contradicted**: the whole interval is below the smallest effect of interest, and not above 0;
- **undecided**: it holds both, or there are too few seeds for an interval;
- **not testable here**: no such trainings can be done; the claim says why.

A claim that something is *not behind* has a margin instead of an effect: it is replicated where the
whole interval is above minus the margin, contradicted where it is below, undecided otherwise.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["LEVEL", "SHARE", "Judged", "Word", "interval", "judge", "judge_not_behind"]

Word = Literal[
    "replicated", "same direction, weaker", "undecided", "contradicted", "not testable here"
]

LEVEL = 0.9
"""Of every interval."""

SHARE = 0.25
"""The smallest effect of interest, as a share of the one printed."""


@dataclass(frozen=True)
class Judged:
    """What became of a comparison.

    Attributes:
        word: the verdict.
        mean: of the differences, None of none.
        low: end of the interval, None of fewer than two.
        high: its other end.
        count: of the differences.
        interest: smallest effect of interest, with the sign of the printed one; minus the margin
            where something is not to be behind.
    """

    word: Word
    mean: float | None
    low: float | None
    high: float | None
    count: int
    interest: float


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return the two ends of Student's interval of a mean.

    Args:
        values: two or more.
        level: the share of intervals that hold the mean.

    Raises:
        ValueError: fewer than two values.

    Example:
        >>> low, high = interval([1.0, 2.0, 3.0])  # 2 -+ 2.92 / sqrt(3)
        >>> round(low, 4), round(high, 4)
        (0.3141, 3.6859)
    """
    from scipy.stats import t

    if len(values) < 2:
        raise ValueError(f"an interval needs two values or more; found {len(values)}")
    half = float(t.ppf((1 + level) / 2, len(values) - 1)) * statistics.stdev(values)
    half /= math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half


def judge(differences: Sequence[float], effect: float, *, interest: float | None = None) -> Judged:
    """Judge a comparison whose effect is printed.

    Args:
        differences: ours, one for each seed.
        effect: the paper's difference; its sign is the direction.
        interest: the smallest effect that matters, above 0, where it cannot be :data:`SHARE` of the
            printed one because the paper gives a direction without a number.

    Raises:
        ValueError: an effect of 0, which has no direction, or an interest that is not above 0.
    """
    least = SHARE * abs(effect) if interest is None else interest
    if effect == 0 or not least > 0:
        raise ValueError(
            f"a comparison has an effect with a sign and an interest above 0; found {effect:g} and "
            f"{least:g}"
        )
    return _judged(differences, math.copysign(1.0, effect), least)


def judge_not_behind(differences: Sequence[float], margin: float) -> Judged:
    """Judge whether something is not behind by more than a margin.

    Args:
        differences: ours, one for each seed; positive is ahead.
        margin: above 0.

    Raises:
        ValueError: a margin that is not above 0.
    """
    if not margin > 0:
        raise ValueError(f"the margin of what is not behind is above 0; found {margin:g}")
    return _judged(differences, 1.0, -margin)


def _judged(differences: Sequence[float], sign: float, least: float) -> Judged:
    mean = statistics.fmean(differences) if differences else None
    if len(differences) < 2:
        return Judged("undecided", mean, None, None, len(differences), sign * least)
    low, high = interval(differences)
    ends = sorted((sign * low, sign * high))
    return Judged(_word(*ends, least), mean, low, high, len(differences), sign * least)


def _word(low: float, high: float, least: float) -> Word:
    """The verdict on an interval in the printed direction."""
    if low >= least:
        return "replicated"
    if low > 0:
        return "same direction, weaker"
    return "contradicted" if high < least else "undecided"
