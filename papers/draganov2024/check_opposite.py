"""Proposition C.1: how often random directions are in opposite halves, against its bound."""

import functools
import math
from typing import TYPE_CHECKING

from papers.draganov2024.cosine_checks import FAR, OppositeHalves, random_halves
from papers.draganov2024.logged import verdict
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table, no_jobs
from papers.theorems.cosine import cosine_tail

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

DIMENSIONS = (2, 8, 20, 128)
PAIRS: dict[Scale, int] = {"smoke": 2000, "cpu": 100_000, "paper": 100_000}
GRID: dict[Scale, tuple[range, range]] = {
    "smoke": (range(2, 400, 40), range(1, 100, 14)),
    "cpu": (range(2, 400), range(1, 100)),
    "paper": (range(2, 400), range(1, 100)),
}
"""Dimensions, and epsilon in hundredths."""


@functools.cache
def drawn(scale: Scale) -> list[OppositeHalves]:
    """Return counts at 7 pi/8, from where on the effect could matter."""
    return [random_halves(d, (FAR,), pairs=PAIRS[scale])[0] for d in DIMENSIONS]


@functools.cache
def counted(scale: Scale) -> tuple[int, int, int]:
    """Return how many bounds there are, how many are broken, and how many say nothing."""
    dimensions, hundredths = GRID[scale]
    tails = [cosine_tail(d, e / 100) for d in dimensions for e in hundredths]
    broken = sum(bool(tail.left > tail.right) for tail in tails)
    return len(tails), broken, sum(bool(tail.right > 1) for tail in tails)


def render(scale: Scale, results: Results) -> Rendered:
    """Return draws, exact probabilities and bounds."""
    count, broken, empty = counted(scale)
    seen = drawn(scale)
    rows = [
        [
            str(draw.dimension),
            f"{draw.share:.5f}",
            f"{draw.exact:.2g}",
            "above 1" if draw.bound is None else f"{draw.bound:.2g}",
        ]
        for draw in seen
    ]
    noise = [4 * math.sqrt(draw.exact * (1 - draw.exact) / PAIRS[scale]) for draw in seen]
    near = [
        abs(draw.share - draw.exact) <= more + 1 / PAIRS[scale]
        for draw, more in zip(seen, noise, strict=True)
    ]
    return Rendered(
        tables=[Table(["d", "share drawn", "probability", "bound"], rows, "angle above 7 pi/8")],
        verdicts=[
            verdict(
                "the bound of proposition C.1 holds",
                [broken == 0],
                f"broken in {broken} of {count} pairs of d and epsilon; above 1 in {empty}",
            ),
            verdict("random directions are as often opposite as the exact probability says", near),
            verdict(
                "in many dimensions it is exceedingly unlikely",
                [seen[-1].exact < 1e-6],
                f"probability {seen[-1].exact:.1g} in {seen[-1].dimension} dimensions",
            ),
        ],
        pictures={"check-opposite": functools.partial(_drawn, scale)},
        notes=[
            "Chebyshev's bound says little (d = 128: .005 for 4e-55), and nothing where "
            "2 d (1 - epsilon)^2 is below 1. At pi/2 the probability is one half in any dimension.",
        ],
    )


def _drawn(scale: Scale) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    dimensions = list(range(2, 41))
    tails = [cosine_tail(d, 1 + math.cos(FAR)) for d in dimensions]
    shares = [draw for draw in drawn(scale) if draw.share > 0]
    series = [
        Series("probability", dimensions, [float(tail.left) for tail in tails]),
        Series("bound", dimensions, [float(tail.right) for tail in tails]),
        Series("drawn", [draw.dimension for draw in shares], [draw.share for draw in shares]),
    ]
    return charts([Chart("angle above 7 pi/8", series, "dimension", "share of pairs", log_y=True)])


ARTIFACT = Artifact(
    title="table and figure of checks: proposition C.1, opposite halves",
    jobs=no_jobs,
    render=render,
)
