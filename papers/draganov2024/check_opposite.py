"""Proposition C.1: how often random directions are in opposite halves, against its bound."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from isotrope.core.errors import InputError
from isotrope.measures.opposite_halves import opposite_halves
from papers.draganov2024.logged import verdict
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table, no_jobs
from papers.theorems.cosine import cosine_tail

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

FAR = 7 * math.pi / 8
"""From here on, says appendix C.1, the effect could matter."""
DIMENSIONS = (2, 8, 20, 128)
PAIRS: dict[Scale, int] = {"smoke": 2000, "cpu": 100_000, "paper": 100_000}
GRID: dict[Scale, tuple[range, range]] = {
    "smoke": (range(2, 400, 40), range(1, 100, 14)),
    "cpu": (range(2, 400), range(1, 100)),
    "paper": (range(2, 400), range(1, 100)),
}
"""Dimensions, and epsilon in hundredths."""


@dataclass(frozen=True)
class OppositeHalves:
    """How often two random directions are further apart than an angle.

    Attributes:
        dimension: d.
        angle: radians.
        share: the share of the pairs drawn.
        exact: the probability.
        bound: the paper's (Prop. C.1), None where it says nothing: at pi/2, or where it exceeds 1.
    """

    dimension: int
    angle: float
    share: float
    exact: float
    bound: float | None


def random_halves(
    dimension: int,
    angles: Sequence[float] = (math.pi / 2, FAR),
    *,
    pairs: int = 100_000,
    seed: int = 0,
) -> list[OppositeHalves]:
    """Draw pairs of normal vectors and count those far apart (Draganov et al., 2024, appendix C.1).

    Args:
        dimension: d, 2 or more.
        angles: angles from pi/2 on, below pi.
        pairs: drawn; the same for every angle.
        seed: the seed of the draw.

    Raises:
        InputError: an angle or a dimension out of range.
        MissingExtra: scipy is not installed.
    """
    if dimension < 2 or not all(math.pi / 2 <= angle < math.pi for angle in angles):
        raise InputError(
            "opposite halves need 2 or more dimensions and angles from pi/2 on, below pi; found "
            f"{dimension} and {', '.join(f'{angle:g}' for angle in angles)}"
        )
    random = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, pairs, dimension, generator=random, dtype=torch.float64)
    shares = []
    for angle in angles:
        share = float(opposite_halves(x, y, angle))
        if angle == math.pi / 2:
            shares.append(OppositeHalves(dimension, angle, share, 0.5, None))
            continue
        tail = cosine_tail(dimension, 1 + math.cos(angle))  # P(cos <= -c) = P(cos >= c)
        bound = float(tail.right) if tail.right < 1 else None
        shares.append(OppositeHalves(dimension, angle, share, float(tail.left), bound))
    return shares


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
