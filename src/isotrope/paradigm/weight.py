"""Named weights: how the negatives share an anchor's gradient (paper 000, tables 1 and 2)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, Temperature, check
from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.metric import Metric, slope

__all__ = ["By", "Energy", "Hardest", "Power", "Softmax", "Uniform", "Weight"]

# which similarity a weight is a function of: h_i.h'_j, h_i.h_j, h'_i.h'_j, or the first two
By = Literal["cross", "anchors", "positives", "both"]

_BY = Hyper("", "the similarity it is a function of: h_i.h'_j, h_i.h_j, h'_i.h'_j, the first two")
_AGAINST: dict[By, Against] = {
    "cross": "cross",
    "anchors": "within",
    "positives": "within",
    "both": "both",
}


@dataclass(frozen=True)
class Weight:
    """W_ij as a function of a similarity and one statistic of its row or batch.

    Attributes:
        by: which similarity: ``cross`` h_i.h'_j, ``anchors`` h_i.h_j, ``positives`` h'_i.h'_j,
            ``both`` h_i.h'_j and h_i.h_j (SimCLR's 2N - 2).
        against: which vectors are the negatives, see ``Terms.against``: h'_j for ``cross``, both
            for ``both``, else h_j.
        batch_wide: the normaliser is one for the batch, so the weights hold the 1/n themselves.
    """

    known: ClassVar[dict[str, type["Weight"]]] = {}

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        Weight.known[name or cls.__name__.lower()] = cls

    def __post_init__(self) -> None:
        check(self)

    @property
    def against(self) -> Against:
        return _AGAINST[getattr(self, "by", "cross")]

    @property
    def batch_wide(self) -> bool:
        return False

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return n x c weights, 0 at excluded entries, in the dtype of the views."""
        raise TypeError(f"{type(self).__name__} computes nothing")

    def push(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Return sum_j W_ij x_j (n x d) and sum_j W_ij (n), without history.

        Softmax, Energy and Hardest need no n x c matrix for it where the backend needs none.
        """
        weight = self(pairs)
        return weight @ pairs.columns(self.against), weight.sum(dim=1)


@dataclass(frozen=True)
class Softmax(Weight):
    """W_ij proportional to e^{s_ij / tau} over the negatives.

    Attributes:
        normaliser: ``row`` (each anchor's weights sum to 1; paper 000, eq. 5) or ``batch`` (the
            sum over all ordered pairs k != l; paper 000, eq. 18, 19).
    """

    temperature: Temperature = 0.05
    by: Annotated[By, _BY] = "cross"
    normaliser: Annotated[
        Literal["row", "batch"], Hyper("", "each anchor's weights sum to 1, or the whole batch's")
    ] = "row"

    @property
    def batch_wide(self) -> bool:
        return self.normaliser == "batch"

    def __call__(self, pairs: Pairs) -> Tensor:
        similarity, negative = _compared(pairs, self.by)
        logits = (similarity / self.temperature).masked_fill(~negative, -torch.inf)
        top = logits.amax(dim=1, keepdim=True)
        if self.normaliser == "batch":
            top = top.amax()
        # without any negative the maximum is -inf, and the weights are all 0
        mass = (logits - top.masked_fill(top == -torch.inf, 0.0)).exp()
        total = mass.sum() if self.normaliser == "batch" else mass.sum(dim=1, keepdim=True)
        return mass / total.where(total != 0, 1.0)

    def push(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        if self.by == "both":
            return super().push(pairs)
        mean, level = _softmax_mean(pairs, self.by, self.temperature)
        some = level != -torch.inf  # NaN stays
        if self.normaliser == "row":
            mass = some.to(level.dtype)
        else:
            whole = torch.logsumexp(level, dim=0)
            mass = (level - whole.masked_fill(whole == -torch.inf, 0.0)).exp()
        return mass[:, None] * mean, mass


@dataclass(frozen=True)
class Energy(Weight):
    """W_ij = e^{s_ij/tau} / (tau sum_{k<l} e^{s_kl/tau}): what log-energy gives (MHE, table 2).

    The derivative of log sum_{k<l} e^{s_kl/tau}, one normaliser for the batch, by default within
    the anchors' view.
    """

    temperature: Temperature = 0.05
    by: Annotated[By, _BY] = "anchors"

    @property
    def batch_wide(self) -> bool:
        return True

    def __call__(self, pairs: Pairs) -> Tensor:
        shares = Softmax(temperature=self.temperature, by=self.by, normaliser="batch")(pairs)
        return 2 / self.temperature * shares  # unordered pairs are half of the ordered ones

    def push(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        shares = Softmax(temperature=self.temperature, by=self.by, normaliser="batch")
        push, mass = shares.push(pairs)
        return 2 / self.temperature * push, 2 / self.temperature * mass


@dataclass(frozen=True)
class Power(Weight):
    """W_ij proportional to max(s_ij, 1e-4)^p over the negatives, each anchor's sum 1."""

    power: Annotated[float, Hyper("p", "exponent of the similarity", at_least=0)] = 2.0
    by: Annotated[By, _BY] = "cross"

    def __call__(self, pairs: Pairs) -> Tensor:
        similarity, negative = _compared(pairs, self.by)
        # by logarithms: a high power of a small similarity leaves the range of the dtype
        logits = self.power * similarity.clamp_min(1e-4).log()
        logits = logits.masked_fill(~negative, -torch.inf)
        some = negative.any(dim=1, keepdim=True)
        return logits.masked_fill(~some, 0.0).softmax(dim=1) * negative


@dataclass(frozen=True)
class Uniform(Weight):
    """W_ij = 1 / the number of negatives: hard and easy negatives alike."""

    by: Annotated[By, _BY] = "cross"

    def __call__(self, pairs: Pairs) -> Tensor:
        similarity, negative = _compared(pairs, self.by)
        mass = negative.to(similarity.dtype)
        return mass / mass.sum(dim=1, keepdim=True).clamp_min(1)


@dataclass(frozen=True)
class Hardest(Weight):
    """W_ij = 1 at the hardest negative (first index at ties), else 0 (MPT).

    With the metric ``distance`` it is 1/d_n (MET, MHS), with ``angle`` 1/sin theta_n (MAT), and 0
    where the negative is closer than .01.
    """

    metric: Annotated[Metric, Hyper("", "what pushes it away: dot product, distance or angle")] = (
        "dot"
    )
    by: Annotated[By, _BY] = "cross"

    def __call__(self, pairs: Pairs) -> Tensor:
        similarity, negative = _compared(pairs, self.by)
        top = similarity.masked_fill(~negative, -torch.inf).argmax(dim=1, keepdim=True)
        steep = slope(similarity.gather(1, top), self.metric)
        return torch.zeros_like(similarity).scatter_(1, top, steep) * negative

    def push(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        seen = _positives(pairs) if self.by == "positives" else pairs
        (chosen,) = seen.nearest(1, self.against).unbind(dim=1)
        none = chosen < 0
        chosen = chosen.clamp_min(0)
        similarity = (seen.views.anchors * seen.columns(self.against)[chosen]).sum(dim=1)
        steep = slope(similarity, self.metric).masked_fill(none, 0.0)
        return steep[:, None] * pairs.columns(self.against)[chosen], steep


def _positives(pairs: Pairs) -> Pairs:
    """The positives of the anchors against each other."""
    views = pairs.views
    groups = None if views.groups is None else views.groups[views.rows]
    return pairs.of(
        Views(views.own, views.own, views.negatives, groups=groups, in_batch=views.in_batch)
    )


def _compared(pairs: Pairs, by: By) -> tuple[Tensor, Tensor]:
    """The similarities that a weight is a function of, and which of them are of negatives."""
    if by == "positives":
        pairs = _positives(pairs)
    return pairs.similarity(_AGAINST[by]), pairs.negative(_AGAINST[by])


def _softmax_mean(pairs: Pairs, by: By, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return sum_j softmax_ij x_j (n x d) and the log-sum-exp (n) of each row.

    The former is tau times the derivative of the latter by the anchor. Where the similarities are
    of other vectors than the x_j (h'_i.h'_j), the x_j are appended to them and met by zeros, by
    which the derivative is taken.
    """
    views = pairs.views
    seen = _positives(pairs).views if by == "positives" else views
    columns = seen.positives if by == "cross" else seen.anchors
    rows, met, further = seen.anchors.detach().clone(), columns.detach(), views.negatives
    if by == "positives":
        rows, met = (torch.cat(x, dim=1) for x in ((rows, 0 * rows), (met, views.anchors)))
        further = None if further is None else torch.cat([further, further], dim=1)
    groups, offset = (views.groups, views.offset) if by == "cross" else (None, 0)
    if by != "cross" and views.groups is not None:
        groups = views.groups[views.rows]
    with torch.enable_grad():
        compared = Views(
            rows.requires_grad_(), met, further, offset, groups=groups, in_batch=views.in_batch
        )
        level = pairs.of(compared).logsumexp(temperature)
        (found,) = torch.autograd.grad(level.sum(), rows)
    mean = temperature * found[:, -views.anchors.shape[1] :]
    return mean.detach(), level.detach()
