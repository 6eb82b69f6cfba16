"""Claims: what claims.toml says, and what becomes of each in what was measured."""

import functools
import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from isotrope.core.errors import InputError
from papers.machinery.rule import SHARE, Judgement, judge, judge_not_behind
from papers.machinery.verdicts import spread

__all__ = ["FILE", "Claim", "claims", "differences", "judge_claim", "reference_encoder"]

FILE = Path(__file__).parents[1] / "claims.toml"

Measurements = Callable[[str, str], Mapping[int, float]]
"""From the name of a training and a metric to values by seed; empty where there are none."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One comparison; the head of claims.toml says what its parts are."""

    id: str
    paper: str
    where: str
    says: str
    a: tuple[str, ...]
    b: tuple[str, ...] = ()
    metric: str
    effect: float | None = None
    printed: tuple[tuple[float, str], ...] = ()
    interest: float | None = None
    margin: float | None = None
    above: bool = False
    why: str = ""
    untestable: str = ""

    def __post_init__(self) -> None:
        if (self.effect is None) == (self.margin is None):
            raise InputError(f"claim {self.id!r} has either an effect or a margin")
        if self.effect is not None and bool(self.printed) == (self.interest is not None):
            raise InputError(
                f"claim {self.id!r} has either the printed numbers of its effect or an interest"
            )
        if (self.interest is not None or self.margin is not None) and not self.why:
            raise InputError(f"claim {self.id!r} must say why its interest or margin is that")


@functools.cache
def claims(file: Path = FILE) -> tuple[Claim, ...]:
    """Return every claim, in the order of the file.

    Raises:
        InputError: a row that is no claim, or two of one name.
    """
    found: dict[str, Claim] = {}
    known = {field.name for field in fields(Claim)}
    for row in tomllib.loads(file.read_text(encoding="utf-8"))["claim"]:
        name = row.get("id")
        if unknown := set(row) - known:
            raise InputError(f"claim {name!r} has no {', '.join(sorted(unknown))}")
        if name in found:
            raise InputError(f"two claims are named {name!r}")
        row["printed"] = tuple((factor, number) for factor, number in row.get("printed", ()))
        found[name] = Claim(**{**row, "a": _names(row["a"]), "b": _names(row.get("b", ()))})
    return tuple(found.values())


def reference_encoder() -> str:
    """Return the encoder whose verdicts count."""
    return str(tomllib.loads(FILE.read_text(encoding="utf-8"))["reference_encoder"])


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def differences(claim: Claim, measured: Measurements) -> dict[int, float]:
    """Return metric of a less metric of b, by the seeds that all their trainings have."""
    sides = [_mean([measured(name, claim.metric) for name in side]) for side in (claim.a, claim.b)]
    first = sides[0]
    second = sides[1] if claim.b else dict.fromkeys(first, 0.0)
    return {seed: first[seed] - second[seed] for seed in sorted(first) if seed in second}


def _mean(every: Sequence[Mapping[int, float]]) -> dict[int, float]:
    seeds = set.intersection(*(set(one) for one in every)) if every else set()
    return {seed: statistics.fmean(one[seed] for one in every) for seed in seeds}


def judge_claim(claim: Claim, measured: Measurements) -> Judgement:
    """Judge a claim by what there is of its trainings."""
    if claim.untestable:
        return Judgement("not testable here", None, SHARE * (claim.effect or 0.0))
    own = differences(claim, measured)
    if claim.margin is not None:
        counted = {seed: -d if claim.above else d for seed, d in own.items()}
        return replace(judge_not_behind(counted, claim.margin), change=spread(own))
    assert claim.effect is not None  # __post_init__
    return judge(own, claim.effect, interest=claim.interest)
