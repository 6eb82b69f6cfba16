"""What Li et al. 2024 measure of a model on text that it was not trained on (appendix A.2).

Batches of 128 texts in two views, by the masks of dropout; of these the distribution of the angles
(figures 5 and 9), the hardest negative's share of the push (figure 7), the anchors that Lemma 1
brings closer (figure 8a), and every objective's dynamic ratio (figure 8b).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from isotrope import Objective, Pairs, Views
from isotrope.core import InputError
from isotrope.encoders import SentenceEncoder
from isotrope.paradigm import build, names, summary, tangent
from papers.li2024.lemma import angles_of, lemma1


def held_out(
    encoder: SentenceEncoder,
    texts: Sequence[str],
    *,
    batch_size: int = 128,
    max_length: int | None = None,
    seed: int = 0,
) -> list[Views]:
    """Return two views of texts in batches; an incomplete last batch is left out."""
    if not 2 <= batch_size <= len(texts):
        raise InputError(
            f"batches of {batch_size} cannot be made of {len(texts)} texts; give more texts, or a "
            "smaller batch size of at least 2"
        )
    length = min(encoder.max_length, max_length or encoder.max_length)
    modes = [(module, module.training) for module in encoder.modules()]
    batches = []
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder.train()
            for start in range(0, len(texts) - batch_size + 1, batch_size):
                ids, _ = encoder.tokenize([*texts[start : start + batch_size]] * 2, length)
                first, second = encoder.of_tokens(ids).float().cpu().chunk(2)
                batches.append(Views(first, second))
    finally:
        for module, mode in modes:
            module.training = mode
    return batches


def _compared(views: Views) -> Pairs:
    """The pairs of a batch, in float64 without history."""
    return build("infonce").compare(views.map(lambda x: x.detach().cpu().double()))


# angles and cosines, figures 5 and 9

ASSUMED = {
    "positive": ((math.pi / 20, math.pi / 2), 0.05),
    "negative": ((math.pi / 20, math.pi), 0.10),
}
"""The range of the mean and the spread that Li et al. (2024, section 3.1) draw from, in radians."""

_KEPT = 20_000  # cosines that a density is made of: quantiles of those there are


def angle_statistics(batches: Sequence[Views]) -> dict[str, dict[str, float]]:
    """Return statistics of the angles with positives and with negatives of all batches, radians.

    ``mean`` and ``std``, whose variance divides by the number of angles; ``skew`` and ``kurtosis``,
    both 0 for a normal distribution; ``ks``, the largest distance between the distribution function
    and that of N(mean, std^2) (no test: both come from the same angles, and angles of one anchor
    are dependent); ``in_range``, whether the mean lies in the range that the paper assumes;
    ``spread``, the deviation over the one that it assumes; and ``count``.
    """
    statistics: dict[str, dict[str, float]] = {}
    for name, cosines in zip(("positive", "negative"), _cosines(batches), strict=True):
        angles = cosines.clamp(-1, 1).arccos()
        (low, high), sigma = ASSUMED[name]
        mean, std = float(angles.mean()), float(angles.std(correction=0))
        z = (angles - mean) / std if std > 0 else torch.zeros_like(angles)
        statistics[name] = {
            "mean": mean,
            "std": std,
            "skew": float((z**3).mean()),
            "kurtosis": float((z**4).mean()) - 3 if std > 0 else 0.0,
            "ks": _kolmogorov_smirnov(z),
            "in_range": low <= mean <= high,
            "spread": std / sigma,
            "count": len(angles),
        }
    return statistics


def densities(batches: Sequence[Views], *, points: int = 201) -> dict[str, Tensor]:
    """Return Gaussian kernel estimates of the densities of ``cosine``, with Scott's bandwidth."""
    grid = torch.linspace(-1, 1, points, dtype=torch.float64)
    positive, negative = (_density(cosines, grid) for cosines in _cosines(batches))
    return {"cosine": grid, "positive": positive, "negative": negative}


@torch.no_grad()
def _cosines(batches: Sequence[Views]) -> tuple[Tensor, Tensor]:
    """Return the cosines with positives and with negatives of all batches, in float64."""
    seen = [_compared(views) for views in batches]
    near = [pairs.positive for pairs in seen]
    far = [pairs.similarity()[pairs.negative()] for pairs in seen]
    if not any(map(len, far)):
        raise ValueError("angles with negatives need a batch of two pairs or more; found none")
    return torch.cat(near), torch.cat(far)


def _kolmogorov_smirnov(z: Tensor) -> float:
    """Return the distance of the distribution of ``z`` from the standard normal one."""
    below = torch.special.ndtr(z.sort().values)
    steps = torch.arange(len(z) + 1, dtype=z.dtype) / len(z)
    return float(torch.maximum(steps[1:] - below, below - steps[:-1]).max())


def _density(values: Tensor, grid: Tensor) -> Tensor:
    """Return a Gaussian kernel estimate of the density of ``values`` on the grid."""
    if len(values) > _KEPT:
        values = values.sort().values[torch.linspace(0, len(values) - 1, _KEPT).long()]
    spread = values.std(correction=0).clamp_min(1e-3)  # of equal values: a narrow bell
    width = spread * len(values) ** -0.2
    bells = ((grid[:, None] - values) / width).square().mul_(-0.5).exp_()
    density: Tensor = bells.mean(dim=1) / (width * math.sqrt(2 * math.pi))
    return density


# the hardest negative's share of the push, figure 7

TEMPERATURES = (0.01, 0.03, 0.05, 0.1, 0.3, 1.0, 3.0)
"""Ours: the range of the paper's figure 6, in which its figure 7 must lie."""


@torch.no_grad()
def hardest_share(
    batches: Sequence[Views],
    temperatures: Sequence[float] = TEMPERATURES,
    *,
    margin: float | None = None,
    kind: Literal["weight", "projection"] = "weight",
) -> dict[float, float | None]:
    """Return the mean share of the hardest negative at each temperature, over all anchors.

    ``weight`` is W_in / sum_j W_ij of the exponential weight, as the paper's text says.
    ``projection`` is what its authors' released code computes: with v_j = W_ij (h'_j - s_ij h_i),
    the length of v_n along sum_j v_j over the length of sum_j v_j. It may exceed 1 where others
    push against the hardest; anchors that nothing pushes do not count.

    Example:
        >>> x = torch.eye(3)
        >>> hardest_share([Views(x, x)], [1.0])
        {1.0: 0.5}
    """
    seen = [_compared(views) for views in batches]
    shares_at: dict[float, float | None] = {}
    for tau in temperatures:
        shares = torch.cat([_share(pairs, tau, margin, kind) for pairs in seen])
        shares_at[tau] = float(shares.mean()) if len(shares) else None
    return shares_at


def _share(pairs: Pairs, temperature: float, margin: float | None, kind: str) -> Tensor:
    """Return the share of the hardest negative for each anchor that counts."""
    similarity = pairs.similarity().masked_fill(~pairs.negative(), -torch.inf)
    hardest, index = similarity.max(dim=1)
    counts = hardest > -torch.inf
    if margin is not None:
        counts &= pairs.positive - hardest < margin
    weight, index = (similarity[counts] / temperature).softmax(dim=1), index[counts, None]
    most = weight.gather(1, index)
    if kind == "weight":
        return most[:, 0]
    anchors, columns = pairs.views.anchors[counts], pairs.columns()
    push = tangent(weight @ columns, anchors)
    own = tangent(most * columns[index[:, 0]], anchors)
    square = push.square().sum(dim=1)
    pushed = square > 1e-24  # of equal rows rounding alone does
    return (own * push).sum(dim=1)[pushed] / square[pushed]


# anchors that a ratio brings closer to their positives, figure 8a

STEPS = (0.0, 0.1, 0.25, 0.5, 1.0)
"""The lambda that are looked at by default; 0 is the limit of small steps."""


@dataclass(frozen=True, eq=False)
class LemmaShare:
    """The anchors of a batch that satisfy Lemma 1 at one step.

    Attributes:
        step: lambda.
        minimum: k lower bounds of the ratio, ascending: those of the anchors that count, which are
            acute and have bounds.
        satisfied: anchors whose ratio lies between the bounds.
        overshot: anchors that count whose ratio is at the upper bound or above it.
        unbounded: acute anchors with a negative discriminant: no ratio brings them closer.
        obtuse: anchors with one of the three angles at pi/2 or above.
    """

    step: float
    minimum: Tensor
    satisfied: int
    overshot: int
    unbounded: int
    obtuse: int

    @property
    def share(self) -> float | None:
        """Satisfied over counted; None if no anchor counts."""
        return self.satisfied / len(self.minimum) if len(self.minimum) else None


@torch.no_grad()
def lemma_share(
    views: Views, ratio: Tensor | float = 1.0, steps: Sequence[float] = STEPS
) -> list[LemmaShare]:
    """Return the share of anchors that satisfy Lemma 1 with their hardest negative, for each step.

    cos(alpha) is the cosine of the tangent parts of h'_i and h'_j at h_i. Anchors count if their
    three angles are acute, as in the statistic that the paper's authors released; those among them
    with a negative discriminant are counted apart, and so are the others.

    Example:
        >>> anchors = torch.tensor([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]])
        >>> positives = torch.tensor([[0.8, 0.6, 0.0], [0.8, 0.6, 0.0]])
        >>> [found] = lemma_share(Views(anchors, positives), ratio=1.5, steps=[0.0])
        >>> found.minimum.tolist(), found.share
        ([1.0, 1.0], 1.0)
    """
    at = angles_of(views)
    r = torch.as_tensor(ratio, dtype=at.positive.dtype, device=at.positive.device)
    acute = torch.stack(at).cos().gt(0).all(dim=0)
    shares = []
    for step in steps:
        bounds = lemma1(*at, step)
        counts = acute & (bounds.discriminant >= 0)
        shares.append(
            LemmaShare(
                step=step,
                minimum=bounds.lower[counts].sort().values,
                satisfied=int((counts & (bounds.lower < r) & (r < bounds.upper)).sum()),
                overshot=int((counts & (r >= bounds.upper)).sum()),
                unbounded=int((acute & ~counts).sum()),
                obtuse=int((~acute).sum()),
            )
        )
    return shares


# the dynamic ratio of every objective on one model, figure 8b

_DEAD = 0.01  # GD of an anchor that an objective no longer moves


def dynamic() -> dict[str, Objective]:
    """Return the registered objectives whose ratio depends on the anchor."""
    objectives = {name: build(name) for name in names()}
    return {name: o for name, o in objectives.items() if summary(o)["ratio"] == "dynamic"}


@torch.no_grad()
def dynamic_ratios(
    batches: Sequence[Views], objectives: Mapping[str, Objective] | None = None
) -> dict[str, dict[str, float | None]]:
    """Return R of each objective on the same batches, over the anchors that it still moves.

    ``mean``, ``std`` (its variance divides by their number) and ``above_one``, the share with
    R > 1, are None if there are none; ``active`` is their number, ``count`` that of all anchors.
    """
    count = sum(len(views.anchors) for views in batches)
    ratios: dict[str, dict[str, float | None]] = {}
    for name, objective in (dynamic() if objectives is None else objectives).items():
        moved = torch.cat([_moved(objective, views) for views in batches])
        some = len(moved) > 0
        ratios[name] = {
            "mean": float(moved.mean()) if some else None,
            "std": float(moved.std(correction=0)) if some else None,
            "above_one": int((moved > 1).sum()) / len(moved) if some else None,
            "active": len(moved),
            "count": count,
        }
    return ratios


def _moved(objective: Objective, views: Views) -> Tensor:
    terms = objective.components(objective.compare(views))
    if terms.ratio is None:
        raise ValueError(f"the pull of {type(objective).__name__} is a matrix: it has no ratio")
    return terms.ratio[(terms.dissipation >= _DEAD) & (terms.mass != 0)].double()
