"""The rule of the claims of tables and figures: when a comparison over seeds counts.

What is contradicted here is on the other side with its whole interval. The claims of
``claims.toml`` have a smallest effect of interest, and so more words (``rule``).
"""

import functools
import math
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

LEVEL = 0.9
_KINDS = Path(__file__).with_name("verdict_kinds.toml")
RULE = (
    "a comparison is paired by seed (same data, same order) and goes by the 90% t interval of the "
    "mean difference: the claim holds or fails where all of it is on one side, and is undecided "
    "where it is not, or where there is one seed"
)

UNDECIDED: Literal["undecided"] = "undecided"
Answer = bool | Literal["undecided"] | None
"""Whether a claim holds; None if its trainings were not run. Test it with ``is True``."""

BySeed = Mapping[int, float]

WORDS = ("replicated", "undecided", "contradicted", "not testable here")
"""The words of claims of tables and figures."""

_CLAIMS: dict[Answer, str] = {True: "replicated", False: "contradicted"}
_CHECKS: dict[Answer, str] = {True: "check passes", False: "check fails"}


@dataclass(frozen=True)
class Spread:
    """Mean, sample standard deviation (None of one value) and number of values.

    Attributes:
        mean: of the values.
        deviation: of the sample, not of the mean.
        count: of the values.
        by_seed: the values themselves, where it is known of which seed each is.
    """

    mean: float
    deviation: float | None
    count: int
    by_seed: BySeed = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        return self.text()

    def text(self, digits: int = 2) -> str:
        """Return ``75.69 ± 0.12``, or ``75.69`` of a single value."""
        more = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        return f"{self.mean:.{digits}f}{more}"

    @property
    def interval(self) -> tuple[float, float]:
        """The t interval of the mean at :data:`LEVEL`; of a single value it has no ends."""
        return self.interval_at(LEVEL)

    def interval_at(self, level: float) -> tuple[float, float]:
        """Return the t interval of the mean at a level between 0 and 1, such as 0.95."""
        if self.deviation is None:
            return -math.inf, math.inf
        from scipy.stats import t

        half = float(t.ppf((1 + level) / 2, self.count - 1)) * self.deviation / self.count**0.5
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Ruling:
    """Whether a claim of the paper holds in our measurements.

    Attributes:
        claim: one sentence, in our words.
        holds: None where what decides it was not run.
        evidence: the numbers.
        erratum: the number of what is proven wrong; it is no claim that a measurement decides.
        check: whether it is about this software instead of the paper.
        untestable: why no measurement here can decide it.
    """

    claim: str
    holds: Answer
    evidence: str = ""
    erratum: str = ""
    check: bool = False
    untestable: str = ""

    @property
    def word(self) -> str:
        """One of :data:`WORDS`; of errata and checks, what they are."""
        if self.erratum:
            return f"erratum {self.erratum}"
        if self.check:
            return _CHECKS.get(self.holds, "check not run")
        if self.untestable:
            return "not testable here"
        return _CLAIMS.get(self.holds, UNDECIDED)


def spread(values: BySeed | Iterable[float]) -> Spread | None:
    """Return mean and deviation; None of nothing."""
    by_seed = dict(values) if isinstance(values, Mapping) else {}
    values_ = list(by_seed.values()) if by_seed else list(values)
    if not values_:
        return None
    deviation = statistics.stdev(values_) if len(values_) > 1 else None
    return Spread(statistics.fmean(values_), deviation, len(values_), by_seed)


def minus(a: BySeed, b: BySeed | float | None) -> Spread | None:
    """Return the difference over the seeds that both have; ``b`` may be one number for all."""
    if b is None:
        return None
    other = b if isinstance(b, Mapping) else dict.fromkeys(a, b)
    return spread({seed: a[seed] - other[seed] for seed in a if seed in other})


def above(change: Spread | None, least: float = 0.0) -> Answer:
    """Tell by :data:`RULE` whether a difference is larger than ``least``; None if there is none."""
    if change is None:
        return None
    low, high = change.interval
    return True if low > least else False if high < least else UNDECIDED


def ahead(level: Spread | None, other: Spread | float | None) -> Answer:
    """Tell by :data:`RULE` whether one is larger than another, or than a number."""
    if level is None or other is None:
        return None
    return above(minus(level.by_seed, other.by_seed if isinstance(other, Spread) else other))


def negated(holds: Answer) -> Answer:
    """Return the opposite; an unknown or undecided answer stays the same."""
    return not holds if isinstance(holds, bool) else holds


def all_of(holds: Iterable[Answer]) -> Answer:
    """Return False if one is, else None if one is not known, else whether none is undecided."""
    values_ = list(holds)
    if False in values_:
        return False
    if None in values_ or not values_:
        return None
    return UNDECIDED if UNDECIDED in values_ else True


def shown(level: Spread | None, digits: int = 2) -> str | None:
    """Return mean and deviation; None of nothing."""
    return None if level is None else level.text(digits)


def signed(change: Spread | None, digits: int = 2) -> str | None:
    """Return ``+1.20 ± 0.31``, or None."""
    text = shown(change, digits)
    return text if text is None or text.startswith("-") else f"+{text}"


def signed_each(changes: Mapping[str, Spread | None], digits: int = 2) -> str:
    """Return those differences that were measured in one line, each with its name."""
    return ", ".join(
        f"{name} {signed(change, digits)}" for name, change in changes.items() if change
    )


def with_interval(change: Spread | None) -> str:
    """Return ``+1.20 (+0.80 to +1.60)``, without the interval of a single value; a dash of none."""
    if change is None:
        return "-"
    low, high = change.interval
    return f"{change.mean:+.2f}" + (f" ({low:+.2f} to {high:+.2f})" if change.count > 1 else "")


class UnmatchedKind(LookupError):
    """A row of the file finds no verdict, or more than the one erratum it is about."""


def with_kinds(artifact: str, verdicts: Sequence[Ruling], *, cpu: bool) -> list[Ruling]:
    """Return the verdicts with their kinds, by verdict_kinds.toml.

    They tell claims of a paper from errata, from checks of this software and from what no
    measurement here can decide.
    """
    kinds = _kinds()
    changed = list(verdicts)

    def change(words: str, **kind: Any) -> None:
        at = [i for i, verdict in enumerate(changed) if words in verdict.claim]
        if not at or ("erratum" in kind and len(at) > 1):
            raise UnmatchedKind(f"{artifact}: {words!r} is in {len(at)} claims")
        for i in at:
            changed[i] = replace(changed[i], **kind)

    for number, words in kinds["errata"].get(artifact, {}).items():
        change(words, erratum=number)
    for words in kinds["checks"].get(artifact, ()):
        change(words, check=True)
    for row in kinds["untestable"] if cpu else ():
        for words in row["claims"].get(artifact, ()):
            change(words, untestable=row["why"])
    return changed


@functools.cache
def _kinds() -> dict[str, Any]:
    return tomllib.loads(_KINDS.read_text(encoding="utf-8"))
