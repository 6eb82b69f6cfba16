"""Claims: reads claims.toml, and decides by the measurements whether each claim holds.

A claim is judged on the first five seeds. Where these leave it undecided, and fifteen are there, it
is judged once more on all fifteen, by a wider interval; it is never judged in between.
"""

import functools
import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from papers.machinery.rule import SHARE, ClaimJudgement, judge, judge_not_behind
from papers.machinery.verdicts import LEVEL, spread

LOOKS = ((5, LEVEL), (15, 0.95))
"""How many seeds a claim is judged on, at first and if they leave it undecided, by which level."""

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
    untested: str = ""
    follows: str = ""
    after: bool = False
    headline: str = ""
    on: str = "text"


@functools.cache
def claims(file: Path = FILE) -> tuple[Claim, ...]:
    """Return every claim, in the order of the file."""
    read = []
    for row in tomllib.loads(file.read_text(encoding="utf-8"))["claim"]:
        row["printed"] = tuple((factor, number) for factor, number in row.get("printed", ()))
        read.append(Claim(**{**row, "a": _names(row["a"]), "b": _names(row.get("b", ()))}))
    return tuple(read)


def reference_encoder() -> str:
    """Return the encoder whose verdicts count."""
    return str(tomllib.loads(FILE.read_text(encoding="utf-8"))["bed"])


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def differences(claim: Claim, measured: Measurements) -> dict[int, float]:
    """Return metric of a less metric of b, by the seeds that all their trainings have."""
    sides = [_mean([measured(name, claim.metric) for name in side]) for side in (claim.a, claim.b)]
    first = sides[0]
    second = sides[1] if claim.b else dict.fromkeys(first, 0.0)
    return {seed: first[seed] - second[seed] for seed in sorted(first) if seed in second}


def _mean(effects: Sequence[Mapping[int, float]]) -> dict[int, float]:
    seeds = set.intersection(*(set(effect) for effect in effects)) if effects else set()
    return {seed: statistics.fmean(effect[seed] for effect in effects) for seed in seeds}


def judge_claim(claim: Claim, measured: Measurements) -> ClaimJudgement:
    """Judge a claim by the results of its trainings: on five seeds, or once more on fifteen."""
    if claim.untestable:
        return ClaimJudgement("not testable here", None, SHARE * (claim.effect or 0.0))
    by_seed = differences(claim, measured)
    (few, level), (all_, second_level) = LOOKS
    judgement = _judge(claim, _first(few, by_seed), level)
    if claim.untested:
        return replace(judgement, word="not tested", seeds=None)
    if judgement.word == "undecided" and len(by_seed) >= all_:
        return _judge(claim, _first(all_, by_seed), second_level)
    return judgement


def _first(count: int, by_seed: Mapping[int, float]) -> dict[int, float]:
    return dict(sorted(by_seed.items())[:count])


def _judge(claim: Claim, by_seed: Mapping[int, float], level: float) -> ClaimJudgement:
    if claim.margin is not None:
        signed = {seed: -d if claim.above else d for seed, d in by_seed.items()}
        judgement = judge_not_behind(signed, claim.margin, level=level)
        return replace(judgement, change=spread(by_seed))
    assert claim.effect is not None  # each claim has one of the two: a test of claims.toml
    return judge(by_seed, claim.effect, interest=claim.interest, level=level)
