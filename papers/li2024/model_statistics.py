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

from isotrope import Objective, Views
from isotrope.core import InputError
from isotrope.encoders import SentenceEncoder
from isotrope.paradigm import build, names, summary, tangent
from papers.li2024.lemma import angles_of, lemma1

# Forms the held-out batches of 128 texts, in two views, on which Li et al. (2024) measure a model.


def held_out(
    encoder: SentenceEncoder,
    texts: Sequence[str] | Sequence[tuple[str, str]],
    *,
    batch_size: int = 128,
    max_length: int | None = None,
    seed: int = 0,
) -> list[Views]:
    """Return the embeddings of texts or pairs in batches; an incomplete last batch is left out."""
    if not 2 <= batch_size <= len(texts):
        raise InputError(
            f"batches of {batch_size} cannot be made of {len(texts)} texts; give more texts, or a "
            "smaller batch size of at least 2"
        )
    pairs = [(text, text) if isinstance(text, str) else text for text in texts]
    modes = [(module, module.training) for module in encoder.modules()]
    starts = range(0, len(pairs) - batch_size + 1, batch_size)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder.train()
            batches = [pairs[start : start + batch_size] for start in starts]
            return [_views(encoder, batch, max_length) for batch in batches]
    finally:
        for module, mode in modes:
            module.training = mode


def _views(
    encoder: SentenceEncoder, pairs: Sequence[tuple[str, str]], max_length: int | None
) -> Views:
    ids, _ = encoder.tokenize(
        [text for side in zip(*pairs, strict=True) for text in side],
        min(encoder.max_length, max_length or encoder.max_length),
    )
    rows = encoder(**{name: x.to(encoder.device) for name, x in encoder.pad(ids).items()})
    return Views(*rows.float().cpu().chunk(2))


# Compares the distribution of a model's angles with the assumptions of Li et al. (2024).

ASSUMED = {
    "positive": ((math.pi / 20, math.pi / 2), 0.05),
    "negative": ((math.pi / 20, math.pi), 0.10),
}
"""The range of the mean and the spread that Li et al. (2024, section 3.1) draw from, in radians."""

_KEPT = 20_000  # cosines that a density is made of: quantiles of those there are


@dataclass(frozen=True)
class AngleStatistics:
    """How angles are distributed, in radians.

    Attributes:
        mean: mu.
        std: sigma; the variance divides by the number of angles.
        skew: third standardised moment, 0 for a normal distribution.
        kurtosis: fourth, less 3: 0 for a normal distribution.
        ks: largest distance between the distribution function and that of N(mu, sigma^2). It is no
            test: mu and sigma come from the same angles, and angles of one anchor are dependent.
        in_range: whether mu lies in the range that Li et al. (2024) assume.
        spread: sigma over the one that they assume.
        count: the number of angles.
    """

    mean: float
    std: float
    skew: float
    kurtosis: float
    ks: float
    in_range: bool
    spread: float
    count: int


@dataclass(frozen=True, eq=False)
class Density:
    """A density of cosines (Li et al., 2024, figure 5).

    Attributes:
        cosine: k points from -1 to 1.
        positive: k, of cosines with positives.
        negative: k, with negatives.
    """

    cosine: Tensor
    positive: Tensor
    negative: Tensor


def angle_statistics(batches: Sequence[Views]) -> dict[str, AngleStatistics]:
    """Return the statistics of the angles with positives and with negatives of all batches."""
    statistics = {}
    for name, cosines in zip(("positive", "negative"), _cosines(batches), strict=True):
        angles = cosines.clamp(-1, 1).arccos()
        (low, high), sigma = ASSUMED[name]
        mean, std = float(angles.mean()), float(angles.std(correction=0))
        z = (angles - mean) / std if std > 0 else torch.zeros_like(angles)
        statistics[name] = AngleStatistics(
            mean=mean,
            std=std,
            skew=float((z**3).mean()),
            kurtosis=float((z**4).mean()) - 3 if std > 0 else 0.0,
            ks=_kolmogorov_smirnov(z),
            in_range=low <= mean <= high,
            spread=std / sigma,
            count=len(angles),
        )
    return statistics


def densities(batches: Sequence[Views], *, points: int = 201) -> Density:
    """Return Gaussian kernel estimates of the densities, with Scott's bandwidth."""
    grid = torch.linspace(-1, 1, points, dtype=torch.float64)
    return Density(grid, *(_density(cosines, grid) for cosines in _cosines(batches)))


@torch.no_grad()
def _cosines(batches: Sequence[Views]) -> tuple[Tensor, Tensor]:
    """Return the cosines with positives and with negatives of all batches, in float64."""
    seen = [build("infonce").compare(b.map(lambda x: x.detach().cpu().double())) for b in batches]
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


# Measures the hardest negative's share of the push on an anchor (Li et al., 2024, figure 7).

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
    if kind not in ("weight", "projection"):
        raise ValueError(f"kind is 'weight' or 'projection'; found {kind!r}")
    if not all(temperature > 0 for temperature in temperatures):
        raise ValueError(f"temperatures are above 0; found {', '.join(map(str, temperatures))}")
    seen = [_MeasuredBatch(views, margin) for views in batches]
    shares_at: dict[float, float | None] = {}
    for temperature in temperatures:
        shares = torch.cat([batch.share(temperature, kind) for batch in seen])
        shares_at[temperature] = float(shares.mean()) if len(shares) else None
    return shares_at


class _MeasuredBatch:
    """The anchors of a batch that count, with their negatives; in float64."""

    def __init__(self, views: Views, margin: float | None) -> None:
        pairs = build("infonce").compare(views.map(lambda x: x.detach().cpu().double()))
        similarity = pairs.similarity().masked_fill(~pairs.negative(), -torch.inf)
        hardest, index = similarity.max(dim=1)
        counts = hardest > -torch.inf
        if margin is not None:
            counts &= pairs.positive - hardest < margin
        self.similarity, self.index = similarity[counts], index[counts, None]
        self.anchors, self.columns = pairs.views.anchors[counts], pairs.columns()

    def share(self, temperature: float, kind: str) -> Tensor:
        """Return the share of the hardest negative for each anchor."""
        weight = (self.similarity / temperature).softmax(dim=1)
        most = weight.gather(1, self.index)
        if kind == "weight":
            return most[:, 0]
        push = tangent(weight @ self.columns, self.anchors)
        hardest = tangent(most * self.columns[self.index[:, 0]], self.anchors)
        square = push.square().sum(dim=1)
        pushed = square > 1e-24  # of equal rows rounding alone does
        return (hardest * push).sum(dim=1)[pushed] / square[pushed]


# Counts anchors that a ratio brings closer to their positives (Li et al., 2024, figure 8a).

STEPS = (0.0, 0.1, 0.25, 0.5, 1.0)
"""The lambda that are looked at by default; 0 is the limit of small steps."""


@dataclass(frozen=True, eq=False)
class LemmaShare:
    """The anchors of a batch that satisfy Lemma 1 at one step.

    Attributes:
        step: lambda.
        minimum: k lower bounds of the ratio, ascending: those of the anchors that count.
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
    def counted(self) -> int:
        """Anchors that count: acute, with bounds."""
        return len(self.minimum)

    @property
    def share(self) -> float | None:
        """Satisfied / counted; None if no anchor counts."""
        return self.satisfied / self.counted if self.counted else None


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
    if r.shape not in ((), at.positive.shape):
        raise ValueError(
            f"a ratio is one number or one for each of {len(at.positive)} anchors; found shape "
            f"{tuple(r.shape)}"
        )
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


# Measures the dynamic ratio of every objective on one model (Li et al., 2024, figure 8b).

_DEAD = 0.01  # an anchor that less of the gradient is left of is not moved


@dataclass(frozen=True)
class RatioStatistics:
    """R over the anchors that an objective still moves.

    Attributes:
        mean: the mean of R; None if no anchor is active.
        std: the standard deviation, whose variance divides by the number of anchors; or None.
        above_one: the share of the active anchors with R > 1, or None.
        active: the number of anchors with GD >= 0.01 and some weight.
        count: the number of anchors.
    """

    mean: float | None
    std: float | None
    above_one: float | None
    active: int
    count: int


@torch.no_grad()
def dynamic_ratios(
    batches: Sequence[Views], objectives: Mapping[str, Objective] | None = None
) -> dict[str, RatioStatistics]:
    """Return the ratios of each objective on the same batches, by name."""
    if not batches:
        raise ValueError("ratios are of batches; found none")
    chosen = _dynamic() if objectives is None else objectives
    return {name: _statistics(objective, batches) for name, objective in chosen.items()}


def _dynamic() -> dict[str, Objective]:
    objectives = {name: build(name) for name in names()}
    return {name: o for name, o in objectives.items() if summary(o)["ratio"] == "dynamic"}


def _statistics(objective: Objective, batches: Sequence[Views]) -> RatioStatistics:
    ratios = []
    for views in batches:
        terms = objective.components(objective.compare(views))
        if terms.ratio is None:
            raise ValueError(f"the pull of {type(objective).__name__} is a matrix: it has no ratio")
        active = (terms.dissipation >= _DEAD) & (terms.mass != 0)
        ratios.append(terms.ratio[active].double())
    ratio, count = torch.cat(ratios), sum(len(views.anchors) for views in batches)
    if not len(ratio):
        return RatioStatistics(None, None, None, 0, count)
    above = int((ratio > 1).sum()) / len(ratio)
    return RatioStatistics(
        float(ratio.mean()), float(ratio.std(correction=0)), above, len(ratio), count
    )
