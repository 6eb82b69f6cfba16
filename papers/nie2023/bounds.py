"""The bounds of eq. 12 and of appendices D and E on random batches, and where they fail."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isotrope.core.views import unit
from isotrope.paradigm.proof import BATCHES, batch
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table, no_jobs
from papers.machinery.verdicts import Verdict
from papers.theorems.bound import Bound
from papers.theorems.contrastive import (
    dcl_uniformity_bound,
    infonce_bounds,
    mixed_negatives_bound,
    mixed_positive_bound,
    spread,
    uniformity_bound,
)

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

COUNT: dict[Scale, int] = {"smoke": 40, "cpu": 2000, "paper": 2000}
SHOWN = 60  # batches whose anchors are in the picture


@dataclass(frozen=True)
class RandomBatch:
    """A random batch: unit vectors, tau (.01 to 1), t (0 to 10) and n x M parts of mixtures."""

    a: Tensor
    b: Tensor
    tau: float
    t: float
    share: float
    first: Tensor
    second: Tensor


@dataclass(frozen=True)
class Inequality:
    """A claim of the paper, or one that its words or symbols make.

    Attributes:
        equation: number in the paper.
        claim: in our words.
        sides: of it, on a batch.
    """

    equation: str
    claim: str
    sides: Callable[[RandomBatch], Bound]


def too_few(x: RandomBatch) -> Bound:
    """The second step of eq. 12 where N counts the negatives: a margin of tau log(K - 1)."""
    s = x.a @ x.b.T
    hardest = s.fill_diagonal_(-torch.inf).amax(dim=1)
    excess = (hardest - (x.a * x.b).sum(dim=1)) / x.tau + math.log(len(s) - 2)
    return Bound(infonce_bounds(x.a, x.b, x.tau).triplet.left, math.log(2) + excess.relu())


def printed_constant(x: RandomBatch) -> Bound:
    """Eq. 46's last line, as printed, and the mean similarity of the line before."""
    s, n = x.a @ x.b.T, len(x.a)
    before = s[~torch.eye(n, dtype=torch.bool)].mean() / x.tau
    printed = (1 / (n * (n - 1)) - spread(x.a, x.b)) / (2 * x.tau)
    return Bound((printed - before).abs(), torch.zeros_like(before))


INEQUALITIES = (
    Inequality(
        "12",
        "InfoNCE is at most log 2 + DCL+",
        lambda x: infonce_bounds(x.a, x.b, x.tau).dcl_plus,
    ),
    Inequality(
        "12",
        "log 2 + DCL+ is at most log 2 + MPT / tau with m = tau log(N - 1), N the batch size",
        lambda x: infonce_bounds(x.a, x.b, x.tau).triplet,
    ),
    Inequality(
        "44",
        "uniformity is at least -t times the mean squared distance of negatives",
        lambda x: uniformity_bound(x.a, x.b, x.t),
    ),
    Inequality(
        "46",
        "DCL's, less log(N - 1), is at least 1/tau less the mean squared distance over 2 tau",
        lambda x: dcl_uniformity_bound(x.a, x.b, x.tau),
    ),
    Inequality(
        "50",
        "with mixtures of two negatives each, InfoNCE stays under the bound with log(N + M)",
        lambda x: mixed_negatives_bound(x.a, x.b, x.first, x.second, x.share, x.tau),
    ),
    Inequality(
        "50, 51",
        "with mixtures of the positive and a negative, under the larger of two bounds",
        lambda x: mixed_positive_bound(x.a, x.b, x.second, x.share / 2, x.tau),
    ),
)
SLIPS = (
    Inequality("12", "the second step holds where N counts the negatives, as in eq. 1", too_few),
    Inequality(
        "46", "the last line, with the printed constant, equals the one before", printed_constant
    ),
)
"""What must not be read into the paper; each is false."""


def trials(count: int) -> Iterator[RandomBatch]:
    """Yield random batches of every kind that objectives are proved on, loose and tight."""
    for seed in range(count):
        random = torch.Generator().manual_seed(seed)

        def integer(low: int, high: int, random: torch.Generator = random) -> int:
            return int(torch.randint(low, high, (), generator=random))

        n, d, m = integer(3, 13), integer(2, 12), integer(1, 9)
        a, b = batch(list(BATCHES)[seed % len(BATCHES)], n, d, seed=seed)
        tau, t, share = torch.rand(3, generator=random).tolist()
        # rows of other anchors: the parts of the mixtures
        parts = 1 + torch.randint(n - 1, (2, n, m), generator=random)
        first, second = (parts + torch.arange(n)[:, None]) % n
        yield RandomBatch(unit(a), unit(b), 10 ** (-2 * tau), 10 * t, share, first, second)


@cache
def checked(scale: Scale) -> list[tuple[int, float]]:
    """Return, for each claim and slip, in how many batches it fails, and its mean gap."""
    inequalities = (*INEQUALITIES, *SLIPS)
    failures, gaps = [0] * len(inequalities), [0.0] * len(inequalities)
    for trial in trials(COUNT[scale]):
        for i, inequality in enumerate(inequalities):
            bound = inequality.sides(trial)
            failures[i] += not bool(bound.holds.all())
            gaps[i] += float(bound.gap.mean()) / COUNT[scale]
    return list(zip(failures, gaps, strict=True))


def render(scale: Scale, results: Results) -> Rendered:
    """Return in how many random batches each claim fails."""
    inequalities = list(zip((*INEQUALITIES, *SLIPS), checked(scale), strict=True))
    count = COUNT[scale]
    rows = [
        [
            name.equation,
            name.claim,
            "holds" if name in INEQUALITIES else "not meant",
            f"{failed:,} of {count:,}",
            f"{gap:.3f}" if name in INEQUALITIES else "-",
            "fails" if failed else "holds",
        ]
        for name, (failed, gap) in inequalities
    ]
    header = ["eq.", "claim", "paper", "ours: batches where it fails", "mean gap", "verdict"]
    return Rendered(
        tables=[Table(header, rows)],
        verdicts=[
            Verdict(
                f"eq. {name.equation}: {name.claim}", not failed, f"fails in {failed} of {count}"
            )
            for name, (failed, _) in inequalities
        ],
        pictures={"bounds": partial(_drawn, scale)},
        notes=[
            "batches of 3 to 12 pairs in 2 to 11 dimensions: random, clustered, collapsed, "
            "antipodal and with equal rows; tau from .01 to 1, t from 0 to 10",
            "read with temperatures inside the exponentials and h'_j of the other view, eq. 46 "
            "with the constant 1/tau, and mixtures as in eq. 47 and 48, which are not normalised",
            "the last three claims are what eq. 1, the printed eq. 46 and common ways to mix make "
            "of it; they are false, and our bounds refuse or correct them",
        ],
    )


def _drawn(scale: Scale) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    batches: Sequence[RandomBatch] = list(trials(min(SHOWN, COUNT[scale])))
    steps = [infonce_bounds(x.a, x.b, x.tau) for x in batches]
    loss = torch.cat([step.dcl_plus.left for step in steps])
    over = {
        "log 2 + DCL+": torch.cat([step.dcl_plus.right for step in steps]) - loss,
        "log 2 + MPT / tau": torch.cat([step.triplet.right for step in steps]) - loss,
    }
    points = [Series(title, loss.tolist(), gap.tolist()) for title, gap in over.items()]
    marks = {"log 2": math.log(2)}
    panel = Chart("eq. 12", points, "InfoNCE", "bound less InfoNCE", kind="points", marks=marks)
    return charts([panel])


ARTIFACT = Artifact(
    title="bounds of eq. 12 and of appendices D and E, as a table of violations",
    jobs=no_jobs,
    render=render,
)
