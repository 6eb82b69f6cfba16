"""The rule of ``claims.toml``: judges a printed effect by a paired difference of trainings.

The difference is taken seed by seed and has the 90% interval of ``verdicts``; the smallest effect
of interest is a quarter of the one printed. With the printed direction as the positive one:

- **replicated**: the whole interval is at or above the smallest effect of interest;
- **same direction, uncertain size**: the whole interval is above 0, and reaches below that effect;
- **opposite**: the whole interval is below 0;
- **smaller than a quarter**: the whole interval is below the smallest effect of interest, and holds
  0, or touches it;
- **undecided**: it holds both no effect and one of interest, or there are too few seeds;
- **not tested**: what the claim is about was not applied in these trainings, or not alone, or the
  printed number is in doubt; they are shown, and the claim says why they do not count;
- **not testable here**: no such trainings were done; the claim says why.

What was measured is judged, whether it speaks for the paper or against it. A claim that something
is *not behind* has a margin instead of an effect: it is replicated where the whole interval is
above minus the margin, opposite where it is below, undecided otherwise.

A claim may be looked at twice (``papers.machinery.claims``): first on five seeds by the 90%
interval, and, where that leaves it undecided, once more on fifteen by the 95% interval. Over both
looks, an interval is expected to miss the true difference in at most 15% of the claims.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from papers.machinery.verdicts import LEVEL, Spread, spread

Word = Literal[
    "replicated",
    "same direction, uncertain size",
    "undecided",
    "smaller than a quarter",
    "opposite",
    "not tested",
    "not testable here",
]

SHARE = 0.25
"""The smallest effect of interest, as a share of the one printed."""

MOST = 100
"""Seeds, beyond which nobody trains to decide a claim."""


@dataclass(frozen=True)
class ClaimJudgement:
    """The outcome of a comparison.

    Attributes:
        word: the verdict.
        change: the differences; None of none.
        interest: smallest effect of interest, with the sign of the printed one; minus the margin
            where something is not to be behind.
        seeds: how many would decide it if mean and deviation stay what they are; None where it is
            decided, where one seed gives no deviation, and above :data:`MOST`.
        level: of the interval that it was judged by.
    """

    word: Word
    change: Spread | None
    interest: float
    seeds: int | None = None
    level: float = LEVEL

    @property
    def interval(self) -> tuple[float, float]:
        """The interval it was judged by; without ends where there are fewer than two seeds."""
        return (-math.inf, math.inf) if self.change is None else self.change.interval_at(self.level)


def judge(
    differences: Mapping[int, float],
    effect: float,
    *,
    interest: float | None = None,
    level: float = LEVEL,
) -> ClaimJudgement:
    """Judge a comparison whose effect is printed."""
    least = SHARE * abs(effect) if interest is None else interest
    if effect == 0 or not least > 0:
        raise ValueError(
            f"a comparison has an effect with a sign and an interest above 0; found {effect:g} and "
            f"{least:g}"
        )
    return _judged(differences, math.copysign(1.0, effect), least, level)


def judge_not_behind(
    differences: Mapping[int, float], margin: float, *, level: float = LEVEL
) -> ClaimJudgement:
    """Judge whether something is not behind by more than a margin."""
    if not margin > 0:
        raise ValueError(f"the margin of what is not behind is above 0; found {margin:g}")
    return _judged(differences, 1.0, -margin, level)


def _judged(
    differences: Mapping[int, float], sign: float, least: float, level: float
) -> ClaimJudgement:
    change = spread(differences)
    if change is None:
        return ClaimJudgement("undecided", None, sign * least, level=level)
    low, high = sorted(sign * end for end in change.interval_at(level))
    word = _word(low, high, least)
    seeds = _seeds(sign * change.mean, change, least, level) if word == "undecided" else None
    return ClaimJudgement(word, change, sign * least, seeds, level)


def _seeds(mean: float, change: Spread, least: float, level: float) -> int | None:
    """The fewest seeds whose interval about this mean would leave out one of the borders."""
    if change.deviation is None:
        return None
    within = max(abs(mean - border) for border in ((0.0, least) if least > 0 else (least,)))
    for count in range(change.count + 1, MOST + 1):
        low, high = replace(change, count=count).interval_at(level)
        if (high - low) / 2 < within:
            return count
    return None


def _word(low: float, high: float, least: float) -> Word:
    """The verdict on an interval in the printed direction; one without ends decides nothing."""
    if low >= least:
        return "replicated"
    if low > 0:
        return "same direction, uncertain size"
    if high >= least:
        return "undecided"
    return "opposite" if high < 0 else "smaller than a quarter"
