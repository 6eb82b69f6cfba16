"""Counts the steps in which free embeddings reach their positives, by norm and angle.

Source: Draganov et al., 2024, figure 2. Plain gradient descent moves n random pairs in d dimensions
until their mean cosine exceeds 0.999; no network is trained. The starts differ in one thing: the
norm of all embeddings, or the angle of the pairs. The numbers are those of
the authors' released notebook: n = 500, d = 20, learning rate 10 on the mean of n losses (0.02 for
each pair), angles by moving random positives towards their anchors or away from them.

Any objective of two views can be put in the place of the paper's cosine. One that pushes, or stops
at a margin, need not arrive: then the steps are None.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrope.core.errors import InputError
from isotrope.core.views import unit
from isotrope.objectives.negative_cosine import NegativeCosine
from isotrope.paradigm.objective import Objective
from papers.draganov2024.cosine import progress as theorem


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

_MOST_NUMBERS = 10_000_000  # of a view: starts are kept all at once

ANGLES = tuple(Start(lean=i / 25) for i in range(-24, 25))
"""The angles of the paper's figure, at norm 1."""


@dataclass(frozen=True)
class ConvergenceProtocol:
    """The settings that all runs share; by default those of the paper's released code.

    Attributes:
        pairs: n.
        dimension: d.
        rate: learning rate, of the objective as it is called: mostly the mean over n pairs.
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

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, least in (("pairs", 2), ("dimension", 2), ("limit", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}; found {getattr(self, name)}")
        if self.pairs * self.dimension > _MOST_NUMBERS:
            raise InputError(
                f"pairs times dimension must be at most {_MOST_NUMBERS:,}; found {self.pairs} and "
                f"{self.dimension}"
            )
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise InputError(f"the learning rate must be above 0; found {self.rate:g}")
        if not -1 < self.target < 1:
            raise InputError(f"the target is a cosine in (-1, 1); found {self.target:g}")


@dataclass(frozen=True)
class Convergence:
    """How the run from one start ended.

    Attributes:
        start: where it began.
        angle: the mean angle of the pairs there, in radians.
        steps: the steps until the mean cosine exceeded the target; None if it did not.
        cosine: mean cosine of the pairs at the end.
        growth: mean norm at the end over that at the start.
        at_least: steps that theorem 3.3 says it takes at least, see :func:`least_steps`; None where
            the theorem says nothing: with any other objective than the cosine.
    """

    start: Start
    angle: float
    steps: int | None
    cosine: float
    growth: float
    at_least: int | None


def starts(
    protocol: ConvergenceProtocol, places: Sequence[Start], dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Return the anchors and the positives of every start, each k x n x d."""
    anchors, positives = [], []
    for number, start in enumerate(places):
        if not (math.isfinite(start.norm) and start.norm > 0 and -1 < start.lean < 1):
            raise InputError(
                "a start has a norm above 0 and leans between -1 and 1; found "
                f"{start.norm:g} and {start.lean:g}"
            )
        state = np.random.SeedSequence((protocol.seed, number)).generate_state(1, np.uint64)[0]
        random = torch.Generator().manual_seed(int(state))
        drawn = torch.randn(2, protocol.pairs, protocol.dimension, generator=random, dtype=dtype)
        z, x = unit(drawn[0]), unit(drawn[1])
        anchors.append(z * start.norm)
        positives.append(unit((1 - abs(start.lean)) * x - start.lean * z) * start.norm)
    return torch.stack(anchors), torch.stack(positives)


def convergence(
    objective: Objective,
    places: Sequence[Start] = (*NORMS, *ANGLES),
    protocol: ConvergenceProtocol | None = None,
) -> list[Convergence]:
    """Train the embeddings of every start, in float64.

    Rows of an objective that compares none with each other are independent, so all its starts are
    trained at once; those of any other one after the other, each a batch of n.
    """
    if type(objective).formula is Objective.formula:
        raise InputError(
            f"{type(objective).__name__} has components but no formula, which is what is minimised "
            "here: write one (`isotrope objectives --check` holds it against the components)"
        )
    protocol = protocol or ConvergenceProtocol()
    anchors, positives = starts(protocol, places)
    alone = objective.pairwise or objective.batch_level or objective.reduction == "sum"
    ends: list[_End] = []
    for first in range(0, len(places), 1 if alone else max(1, len(places))):
        some = slice(first, first + 1) if alone else slice(None)
        ends += _trained(objective, protocol, anchors[some], positives[some])
    return [
        _record(objective, protocol, start, cosines, end)
        for start, cosines, end in zip(places, _cosines(anchors, positives), ends, strict=True)
    ]


class _End(NamedTuple):
    """Where a start ended: after how many steps, and its n x d embeddings."""

    step: int
    z: Tensor
    other: Tensor


def _trained(
    objective: Objective, protocol: ConvergenceProtocol, z: Tensor, other: Tensor
) -> list[_End]:
    """Train k starts until the last is done, dropping each when it is."""
    left = list(range(len(z)))
    ends: dict[int, _End] = {}
    for step in range(protocol.limit + 1):
        moves = _gradients(objective, z, other)
        going = _going(protocol, z, other, moves) if step < protocol.limit else [False] * len(left)
        for row, goes in enumerate(going):
            if not goes:
                ends[left[row]] = _End(step, z[row], other[row])
        left = [place for place, goes in zip(left, going, strict=True) if goes]
        if not left:
            break
        rows = torch.tensor(going)
        z, other = (
            x[rows] - protocol.rate * g[rows] for x, g in zip((z, other), moves, strict=True)
        )
    return [ends[i] for i in sorted(ends)]


def _going(
    protocol: ConvergenceProtocol, z: Tensor, other: Tensor, moves: tuple[Tensor, Tensor]
) -> list[bool]:
    """Which of k starts are below the target and still move: where nothing does, nothing will."""
    cosine = _cosines(z, other).mean(dim=1)
    largest = torch.stack([move.abs().amax(dim=(1, 2)) for move in moves]).amax(dim=0)
    going: list[bool] = (cosine.isfinite() & (cosine <= protocol.target) & (largest > 0)).tolist()
    return going


def _gradients(objective: Objective, z: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of the sum of k losses, each of n pairs, by anchors and positives."""
    leaves = [x.detach().flatten(0, 1).requires_grad_() for x in (z, other)]
    # the fused kernels compute n x n similarities, also where none is asked for
    loss = objective(*leaves, backend="eager") * len(z)
    by_anchor, by_positive = torch.autograd.grad(
        loss, leaves, allow_unused=True, materialize_grads=True
    )
    return by_anchor.view_as(z), by_positive.view_as(other)


def _record(
    objective: Objective, protocol: ConvergenceProtocol, start: Start, begun: Tensor, end: _End
) -> Convergence:
    cosine = float(_cosines(end.z, end.other).mean())
    at_least = None
    if isinstance(objective, NegativeCosine):
        gamma = protocol.rate / protocol.pairs
        at_least = least_steps(begun, start.norm, gamma, protocol.target, protocol.limit)
    return Convergence(
        start=start,
        angle=float(begun.clamp(-1, 1).acos().mean()),
        steps=end.step if cosine > protocol.target else None,
        cosine=cosine,
        growth=float(torch.cat([end.z, end.other]).norm(dim=1).mean()) / start.norm,
        at_least=at_least,
    )


def least_steps(cosines: Tensor, norm: float, step: float, target: float, limit: int) -> int | None:
    """Return the steps that pairs take at least to a mean cosine above ``target`` (Thm 3.3).

    The theorem's bound on what one step gains, as corrected for obtuse angles, is added up from
    the cosines at the start. Norms only grow, which the bound at the norm of the start allows.
    """
    x = step / norm**2
    # c + bound(c) rises with c up to 1/(4x), where it has reached 1
    highest = min(1.0, 1 / (4 * x))
    c = cosines.clamp(-1, 1)
    for steps in range(limit + 1):
        if c.mean() > target:
            return steps
        within = c.clamp(max=highest)
        c = (within + theorem(within.acos(), norm, step).right).clamp(max=1)
    return None


def _cosines(z: Tensor, other: Tensor) -> Tensor:
    return (unit(z) * unit(other)).sum(dim=-1)
