"""Dissipations, ratios and weights that gradients consist of (Li et al. 2024, tables 1 and 2).

A new objective calls ``parts.Hardest(metric="dot")(pairs)`` in its method ``components``. To
exchange a part of an existing objective, call
``objective.modify(weight=parts.Softmax(temperature=0.05))``.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, Temperature, check, hypers
from isotrope.core.terms import AGAINST, Against, By
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.surrogate_sums import Exponent, SurrogatePairs
from isotrope.paradigm.metric import CLOSE, Metric, angle, dissimilarity, shifted, slope

__all__ = [
    "Always",
    "ArcRatio",
    "Dissipation",
    "Energy",
    "Fraction",
    "Hardest",
    "Margin",
    "MetricRatio",
    "Power",
    "Ratio",
    "Softmax",
    "Static",
    "Uniform",
    "Weight",
]


def active(gap: Tensor, margin: float | Tensor) -> Tensor:
    """Return 1 where ``gap`` is below ``margin``, else 0; NaN where the gap is NaN."""
    return (gap < margin).to(gap.dtype).masked_fill(gap.isnan(), torch.nan)


class Component:
    """A dissipation, ratio or weight, computed from the similarities of each anchor.

    Attributes:
        by_name: A dict from short names, such as ``margin``, to the classes of one kind of part.
    """

    by_name: ClassVar[dict[str, type["Component"]]]

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        if Component in cls.__bases__:
            cls.by_name = {}
        else:
            known = cls.by_name.setdefault(name := name or cls.__name__.lower(), cls)
            if known.__module__ != cls.__module__:
                raise TypeError(f"rename {cls.__name__}: {known.__module__} also defines {name!r}")
            cls.by_name[name] = cls

    def __post_init__(self) -> None:
        check(self)

    @property
    def coupling(self) -> Coupling:
        """How the value of an anchor depends on other anchors; see :class:`Objective`."""
        return "batch"

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return n values in the dtype of the views; weights are n x c, see :class:`Weight`."""
        raise TypeError(f"{type(self).__name__} must define __call__")

    def short(self, *, exact: bool = False) -> str:
        """Return the short form (margin:0.3:dot); numbers have 6 digits, or all if ``exact``."""
        name = next((name for name, cls in self.by_name.items() if cls is type(self)), "")
        values = [getattr(self, field) for field in hypers(type(self))]
        words = [v if isinstance(v, str) else str(float(v)) if exact else f"{v:g}" for v in values]
        return ":".join([name, *words])


@dataclass(frozen=True)
class Dissipation(Component):
    """Base class of dissipations GD_i: factors on anchor i's gradient, from its similarities."""


@dataclass(frozen=True)
class Always(Dissipation, name="none"):
    """Dissipation GD = 1: the gradient never fades (objectives of table 2 in Li et al. 2024)."""

    coupling = "none"

    def __call__(self, pairs: Pairs) -> Tensor:
        return torch.ones_like(pairs.positive)


@dataclass(frozen=True)
class Margin(Dissipation):
    """Dissipation GD: 0 if the hardest negative is farther than the positive by m or more, else 1.

    ``dot``: GD = 1[s_ii' - max_k s_ik' < m] (MPT and all modified losses); ``distance``: GD =
    1[min_k d_ik' - d_ii' < m] (MET); ``angle``: GD = 1[min_k theta_ik' - theta_ii' < m] (MAT).
    """

    coupling = "none"
    margin: Annotated[float, Hyper("m", "lead of the positive that makes GD 0", at_least=0)] = 0.3
    metric: Annotated[Metric, Hyper("", "measure of the lead: dot, distance or angle")] = "dot"

    def __call__(self, pairs: Pairs) -> Tensor:
        near = dissimilarity(pairs.positive, self.metric)
        return active(dissimilarity(pairs.hardest(), self.metric) - near, self.margin)


@dataclass(frozen=True)
class Fraction(Dissipation):
    """Dissipation of InfoNCE (u = 0) and ArcCon (u > 0): the softmax share of the negatives.

    GD_i = 1 / (1 + e^{cos(theta_ii' + u)/tau} / sum_{k != i} e^{s_ik'/tau}).
    """

    coupling = "none"
    temperature: Temperature = 0.05
    margin: Annotated[float, Hyper("u", "angle added to the positive's angle", at_least=0)] = 0.0

    def __call__(self, pairs: Pairs) -> Tensor:
        positive = shifted(pairs.positive, self.margin)
        return torch.sigmoid(pairs.logsumexp(self.temperature) - positive / self.temperature)


@dataclass(frozen=True)
class Ratio(Component):
    """Base class of ratios R_i, computed from the similarities of anchor i."""


@dataclass(frozen=True)
class Static(Ratio):
    """Ratio R = r for every anchor: r is 1 in InfoNCE and MPT, and a setting of modified losses."""

    coupling = "none"
    ratio: Annotated[
        float, Hyper("r", "pull of the positive divided by the push of the negatives", at_least=0)
    ] = 1.0

    def __call__(self, pairs: Pairs) -> Tensor:
        return torch.full_like(pairs.positive, self.ratio)


@dataclass(frozen=True)
class ArcRatio(Ratio, name="arccon"):
    """Ratio R = sin(theta_ii' + u) / sin theta_ii' (ArcCon; Li et al. 2024, table 1).

    theta_ii' is the angle between anchor and positive. For u = 0 (InfoNCE), R is 1 everywhere.
    Otherwise R is 0 if theta_ii' + u >= pi, or if theta_ii' is closer than 0.01 to 0 or pi.
    """

    coupling = "none"
    margin: Annotated[float, Hyper("u", "angle added to theta_ii'", at_least=0)] = math.pi / 18

    def __call__(self, pairs: Pairs) -> Tensor:
        if self.margin == 0:
            return torch.ones_like(pairs.positive)
        theta = angle(pairs.positive)
        inside = (pairs.positive.abs() <= 1 - CLOSE) & (theta + self.margin <= torch.pi)
        return torch.sin(theta + self.margin) / torch.sin(theta) * inside


@dataclass(frozen=True)
class MetricRatio(Ratio, name="met"):
    """Ratio R = d_n / d_p (MET; Li et al. 2024, table 1), or sin theta_n / sin theta_p (MAT).

    p is the positive, n the hardest negative. R is 0 if a distance d or an angle theta is clamped.
    """

    coupling = "none"
    metric: Annotated[Metric, Hyper("", "R by loss: dot (R = 1), distance or angle")] = "distance"

    def __call__(self, pairs: Pairs) -> Tensor:
        push = slope(pairs.hardest(), self.metric)
        return slope(pairs.positive, self.metric) / push.where(push > 0, torch.inf)


_BY = Hyper(
    "", "cosine in W: h_i.h'_j (cross), h_i.h_j (anchors), these two (both), h'_i.h'_j (positives)"
)


@dataclass(frozen=True)
class Weight(Component):
    """Base class of weights W_ij, computed from a similarity and a statistic of the row or batch.

    A call returns n x c weights, 0 for columns that are not negatives. With ``SurrogatePairs``, the
    weights are ``kernels.surrogate_sums.LazyWeights``, which do not store the n x c matrix.

    Attributes:
        by: Similarity that the weight depends on: ``cross`` h_i.h'_j, ``anchors`` h_i.h_j,
            ``positives`` h'_i.h'_j, ``both`` h_i.h'_j and h_i.h_j (as in SimCLR).
        against: View of the negatives, as in ``Terms.against``. If ``by`` is ``cross``, the
            negatives are h'_j; if it is ``both``, h'_j and h_j; otherwise h_j.
        batch_wide: Whether one sum over the batch divides all weights, so that they contain 1/n.
    """

    @property
    def against(self) -> Against:
        return AGAINST[getattr(self, "by", "cross")]

    @property
    def batch_wide(self) -> bool:
        return False

    @property
    def coupling(self) -> Coupling:
        uncoupled = getattr(self, "by", None) == "cross" and not self.batch_wide
        return "none" if uncoupled else "batch"


@dataclass(frozen=True)
class Softmax(Weight):
    """Weight W_ij proportional to e^{s_ij / tau} over the negatives.

    Attributes:
        normaliser: ``row`` (each anchor's weights sum to 1; Li et al. 2024, eq. 5) or ``batch``
            (the weights of all ordered pairs sum to 1; Li et al. 2024, eq. 18, 19).
    """

    temperature: Temperature = 0.05
    by: Annotated[By, _BY] = "cross"
    normaliser: Annotated[
        Literal["row", "batch"], Hyper("", "weights sum to 1 for each anchor (row) or in the batch")
    ] = "row"

    @property
    def batch_wide(self) -> bool:
        return self.normaliser == "batch"

    def __call__(self, pairs: Pairs) -> Tensor:
        exponent = Exponent(temperature=float(self.temperature))
        return _shares(pairs, self.by, exponent, whole=self.batch_wide)


@dataclass(frozen=True)
class Energy(Weight):
    """W_ij = e^{s_ij/tau} / (tau sum_{k<l} e^{s_kl/tau}): W of MHE (Li et al., 2024, table 2).

    W_ij is the derivative of log sum_{k<l} e^{s_kl/tau} with respect to s_ij. The sum is over all
    pairs of rows, by default of the anchors' view.
    """

    temperature: Temperature = 0.05
    by: Annotated[By, _BY] = "anchors"

    batch_wide = True

    def __call__(self, pairs: Pairs) -> Tensor:
        shares = Softmax(temperature=self.temperature, by=self.by, normaliser="batch")(pairs)
        return 2 / self.temperature * shares  # unordered pairs are half of the ordered ones


@dataclass(frozen=True)
class Power(Weight):
    """Weight W_ij proportional to max(s_ij, 1e-4)^p over the negatives; each row sums to 1."""

    power: Annotated[float, Hyper("p", "exponent of the similarity", at_least=0)] = 2.0
    by: Annotated[By, _BY] = "cross"

    def __call__(self, pairs: Pairs) -> Tensor:
        return _shares(pairs, self.by, Exponent(power=self.power))


@dataclass(frozen=True)
class Uniform(Weight):
    """Weight W_ij = 1 / the number of negatives, the same for hard and easy negatives."""

    by: Annotated[By, _BY] = "cross"

    def __call__(self, pairs: Pairs) -> Tensor:
        return _shares(pairs, self.by, Exponent(power=0.0))


@dataclass(frozen=True)
class Hardest(Weight):
    """Weight W_ij = 1 at the hardest negative, the first if several are equal, else 0 (MPT).

    With the metric ``distance``, W at the hardest negative is 1 / distance (MET, MHS); with
    ``angle``, 1 / sin(angle) (MAT). With these metrics, W is 0 below a distance or angle of 0.01.
    """

    metric: Annotated[Metric, Hyper("", "the push increases this: -s, distance, angle")] = "dot"
    by: Annotated[By, _BY] = "cross"

    def __call__(self, pairs: Pairs) -> Tensor:
        if isinstance(pairs, SurrogatePairs):
            hardest = pairs.hardest_negatives(self.by)
            steep = slope(hardest.similarity, self.metric)
            return pairs.single(self.by, hardest.column, steep)
        similarity, negative = _compared(pairs, self.by)
        top = similarity.masked_fill(~negative, -torch.inf).argmax(dim=1, keepdim=True)
        steep = slope(similarity.gather(1, top), self.metric)
        return torch.zeros_like(similarity).scatter_(1, top, steep) * negative


def nothing(pairs: Pairs) -> Tensor:
    """Return weights of 0 for all rows of the other view, for objectives without a push."""
    views, none = pairs.views, torch.zeros_like(pairs.positive)
    if isinstance(pairs, SurrogatePairs):
        return pairs.single("cross", none.long(), none)
    return none.new_zeros(len(none), len(views.positives))


def products(pairs: Pairs, rows: Tensor, *compared: Tensor, against: Against) -> Tensor:
    """Return the weights r_i.x_j (n x c, 0 for j = i) of losses such as Barlow Twins.

    Args:
        pairs: Pairs of n anchors and n positives, without additional negatives.
        rows: The vectors r_i, n x d.
        compared: The vectors x_j, n x d for each view.
        against: Views of the negatives, to which the columns belong.
    """
    if isinstance(pairs, SurrogatePairs) and len(rows) > rows.shape[1]:
        return pairs.products(against, rows, *compared)
    parts = [(rows @ x.T).fill_diagonal_(0) for x in compared]
    return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]


def _shares(pairs: Pairs, by: By, exponent: Exponent, *, whole: bool = False) -> Tensor:
    """Return weights proportional to e^exponent; the arguments are those of the method ``shares``.

    The weights of a row, or of a batch, without negatives are all 0.
    """
    if isinstance(pairs, SurrogatePairs):
        return pairs.shares(by, exponent, whole=whole)
    similarity, negative = _compared(pairs, by)
    logits = exponent.of(similarity.masked_fill(~negative, -torch.inf))
    top = logits.amax() if whole else logits.amax(dim=1, keepdim=True)
    mass = (logits - top.masked_fill(top == -torch.inf, 0.0)).exp()
    total = mass.sum() if whole else mass.sum(dim=1, keepdim=True)
    return mass / total.where(total != 0, 1.0)


def _compared(pairs: Pairs, by: By) -> tuple[Tensor, Tensor]:
    """The similarities that a weight depends on, and the mask of the negatives."""
    if by == "positives":
        pairs = pairs.of(pairs.views.among_positives())
    return pairs.similarity(AGAINST[by]), pairs.negative(AGAINST[by])
