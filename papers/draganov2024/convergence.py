"""Counts the steps in which free embeddings reach their positives, by norm and angle.

Source: Draganov et al., 2024, figure 2. Plain gradient descent on the negative cosine moves n
random pairs in d dimensions until their mean cosine exceeds 0.999; no network is trained. The
starts differ in one thing: the norm of all embeddings, or the angle of the pairs. The numbers are
those of their later paper's notebook: n = 500, d = 20, learning rate 10 on the mean of n losses
(0.02 for each pair), angles by moving random positives towards their anchors or away from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isotrope.core import unit
from isotrope.paradigm import build
from papers.draganov2024.cosine import most_progress


@dataclass(frozen=True)
class Start:
    """Where the embeddings of one run begin.

    Attributes:
        norm: the norm of all embeddings.
        lean: t in (-1, 1): a positive is the direction of (1 - |t|) x - t z, with z its anchor and
            x a random direction: 0 is a random angle, towards -1 it closes, towards 1 it opens.
    """

    norm: float = 1.0
    lean: float = 0.0


NORMS = tuple(Start(norm=norm) for norm in (0.25, 0.5, 0.75, *map(float, range(1, 11))))
"""The norms of the paper's figure; a norm of 0, which its code draws too, has no direction."""

ANGLES = tuple(Start(lean=i / 25) for i in range(-24, 25))
"""The angles of the paper's figure, at norm 1."""


@dataclass(frozen=True)
class ConvergenceProtocol:
    """The settings that all runs share; by default those of the code of a later paper.

    Attributes:
        pairs: n.
        dimension: d.
        rate: learning rate, of the mean over n pairs.
        target: mean cosine at which a run is done.
        limit: steps after which it is given up.
        seed: the seed of the draws; each start draws its own, as many whatever the others are.
    """

    pairs: int = 500
    dimension: int = 20
    rate: float = 10.0
    target: float = 0.999
    limit: int = 20_000
    seed: int = 0


@dataclass(frozen=True)
class Convergence:
    """How the run from one start ended.

    Attributes:
        start: where it began.
        angle: the mean angle of the pairs there, in radians.
        steps: the steps until the mean cosine exceeded the target; None if it did not.
        at_least: steps that theorem 3.3 says it takes at least, see :func:`least_steps`.
    """

    start: Start
    angle: float
    steps: int | None
    at_least: int | None


def starts(protocol: ConvergenceProtocol, places: Sequence[Start]) -> tuple[Tensor, Tensor]:
    """Return the anchors and the positives of every start, each k x n x d."""
    anchors, positives = [], []
    for number, start in enumerate(places):
        state = np.random.SeedSequence((protocol.seed, number)).generate_state(1, np.uint64)[0]
        random = torch.Generator().manual_seed(int(state))
        shape = (2, protocol.pairs, protocol.dimension)
        drawn = torch.randn(*shape, generator=random, dtype=torch.float64)
        z, x = unit(drawn[0]), unit(drawn[1])
        anchors.append(z * start.norm)
        positives.append(unit((1 - abs(start.lean)) * x - start.lean * z) * start.norm)
    return torch.stack(anchors), torch.stack(positives)


def convergence(places: Sequence[Start], protocol: ConvergenceProtocol) -> list[Convergence]:
    """Train the embeddings of every start, in float64, all at once; one result for each."""
    z, other = starts(protocol, places)
    begun = _cosines(z, other)
    left = list(range(len(z)))
    steps: dict[int, int] = {}
    for step in range(protocol.limit + 1):
        mean = _cosines(z, other).mean(dim=1)
        going = (mean <= protocol.target).tolist()
        steps |= {place: step for place, goes in zip(left, going, strict=True) if not goes}
        left = [place for place, goes in zip(left, going, strict=True) if goes]
        if not left or step == protocol.limit:
            break
        moves = _gradients(z, other)
        rows = torch.tensor(going)
        z, other = (
            x[rows] - protocol.rate * g[rows] for x, g in zip((z, other), moves, strict=True)
        )
    gamma = protocol.rate / protocol.pairs
    return [
        Convergence(
            start,
            float(cosines.clamp(-1, 1).acos().mean()),
            steps.get(place),
            least_steps(cosines, start.norm, gamma, protocol.target, protocol.limit),
        )
        for place, (start, cosines) in enumerate(zip(places, begun, strict=True))
    ]


def _gradients(z: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of the sum of k losses, each of n pairs, by anchors and positives."""
    leaves = [x.detach().flatten(0, 1).requires_grad_() for x in (z, other)]
    loss = build("negativecosine")(*leaves, backend="eager") * len(z)
    by_anchor, by_positive = torch.autograd.grad(loss, leaves)
    return by_anchor.view_as(z), by_positive.view_as(other)


def least_steps(cosines: Tensor, norm: float, step: float, target: float, limit: int) -> int | None:
    """Return the steps that pairs take at least to a mean cosine above ``target`` (Thm 3.3).

    The theorem's bound on what one step of rate ``step`` for a pair gains, as corrected for obtuse
    angles, is added up from the cosines at the start. Norms only grow, which the bound at the norm
    of the start allows. None beyond ``limit`` steps.
    """
    x = step / norm**2
    # c + bound(c) rises with c up to 1/(4x), where it has reached 1
    highest = min(1.0, 1 / (4 * x))
    c = cosines.clamp(-1, 1)
    for steps in range(limit + 1):
        if c.mean() > target:
            return steps
        within = c.clamp(max=highest)
        c = (within + most_progress(within.acos(), norm, step)).clamp(max=1)
    return None


def _cosines(z: Tensor, other: Tensor) -> Tensor:
    return (unit(z) * unit(other)).sum(dim=-1)
