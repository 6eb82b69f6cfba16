"""Named weights: how the negatives share an anchor's gradient (Li et al. 2024, tables 1 and 2)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, Temperature, check
from isotrope.core.terms import AGAINST, Against, By
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.surrogate_sums import FLOOR, Exponent, SurrogatePairs
from isotrope.paradigm.metric import Metric, slope

_BY = Hyper(
    "", "similarity that the weight depends on: h_i.h'_j, h_i.h_j, h'_i.h'_j, the first two"
)


@dataclass(frozen=True)
class Weight:
    """W_ij as a function of a similarity and one statistic of its row or batch.

    Attributes:
        by: Similarity: ``cross`` h_i.h'_j, ``anchors`` h_i.h_j, ``positives`` h'_i.h'_j,
            ``both`` h_i.h'_j and h_i.h_j (SimCLR's 2N - 2).
        against: View of the negatives, see ``Terms.against``: h'_j for ``cross``, both for
            ``both``, else h_j.
        batch_wide: Whether the batch has one normaliser, so that the weights include the 1/n.
    """

    by_name: ClassVar[dict[str, type["Weight"]]] = {}

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        Weight.by_name[name or cls.__name__.lower()] = cls

    def __post_init__(self) -> None:
        check(self)

    @property
    def against(self) -> Against:
        return AGAINST[getattr(self, "by", "cross")]

    @property
    def batch_wide(self) -> bool:
        return False

    @property
    def coupling(self) -> Coupling:
        """Coupling as of an objective: ``none`` if no other anchor counts, not even in a sum."""
        uncoupled = getattr(self, "by", None) == "cross" and not self.batch_wide
        return "none" if uncoupled else "batch"

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return n x c weights, 0 at excluded entries, in the dtype of the views.

        ``SurrogatePairs`` give a lazy product (``kernels.surrogate_sums.LazyWeights``).
        """
        raise TypeError(f"{type(self).__name__} computes nothing")


@dataclass(frozen=True)
class Softmax(Weight):
    """W_ij proportional to e^{s_ij / tau} over the negatives.

    Attributes:
        normaliser: ``row`` (each anchor's weights sum to 1; Li et al. 2024, eq. 5) or ``batch``
            (the sum over all ordered pairs k != l; Li et al. 2024, eq. 18, 19).
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
        if isinstance(pairs, SurrogatePairs):
            exponent = Exponent(temperature=float(self.temperature))
            return pairs.shares(self.by, exponent, whole=self.batch_wide)
        similarity, negative = _compared(pairs, self.by)
        logits = (similarity / self.temperature).masked_fill(~negative, -torch.inf)
        top = logits.amax(dim=1, keepdim=True)
        if self.normaliser == "batch":
            top = top.amax()
        # without negatives the maximum is -inf and all weights are 0
        mass = (logits - top.masked_fill(top == -torch.inf, 0.0)).exp()
        total = mass.sum() if self.normaliser == "batch" else mass.sum(dim=1, keepdim=True)
        return mass / total.where(total != 0, 1.0)


@dataclass(frozen=True)
class Energy(Weight):
    """W_ij = e^{s_ij/tau} / (tau sum_{k<l} e^{s_kl/tau}): the weight of log-energy (MHE, table 2).

    It is the derivative of log sum_{k<l} e^{s_kl/tau}, with one normaliser for the batch, by
    default within the anchors' view.
    """

    temperature: Temperature = 0.05
    by: Annotated[By, _BY] = "anchors"

    @property
    def batch_wide(self) -> bool:
        return True

    def __call__(self, pairs: Pairs) -> Tensor:
        shares = Softmax(temperature=self.temperature, by=self.by, normaliser="batch")(pairs)
        return 2 / self.temperature * shares  # unordered pairs are half of the ordered ones


@dataclass(frozen=True)
class Power(Weight):
    """W_ij proportional to max(s_ij, 1e-4)^p over the negatives; each row sums to 1."""

    power: Annotated[float, Hyper("p", "exponent of the similarity", at_least=0)] = 2.0
    by: Annotated[By, _BY] = "cross"

    def __call__(self, pairs: Pairs) -> Tensor:
        if isinstance(pairs, SurrogatePairs):
            return pairs.shares(self.by, Exponent(power=self.power))
        similarity, negative = _compared(pairs, self.by)
        # in logarithms, because a high power of a small similarity underflows
        logits = self.power * similarity.clamp_min(FLOOR).log()
        logits = logits.masked_fill(~negative, -torch.inf)
        some = negative.any(dim=1, keepdim=True)
        return logits.masked_fill(~some, 0.0).softmax(dim=1) * negative


@dataclass(frozen=True)
class Uniform(Weight):
    """W_ij = 1 / the number of negatives: hard and easy negatives have the same weight."""

    by: Annotated[By, _BY] = "cross"

    def __call__(self, pairs: Pairs) -> Tensor:
        if isinstance(pairs, SurrogatePairs):
            return pairs.shares(self.by, Exponent(power=0.0))
        similarity, negative = _compared(pairs, self.by)
        mass = negative.to(similarity.dtype)
        return mass / mass.sum(dim=1, keepdim=True).clamp_min(1)


@dataclass(frozen=True)
class Hardest(Weight):
    """W_ij = 1 at the hardest negative (first index at ties), else 0 (MPT).

    With the metric ``distance`` it is 1/d_n (MET, MHS), with ``angle`` 1/sin theta_n (MAT), and 0
    where the negative is closer than .01.
    """

    metric: Annotated[
        Metric,
        Hyper("", "measure of the push: dot product, distance or angle"),
    ] = "dot"
    by: Annotated[By, _BY] = "cross"

    def __call__(self, pairs: Pairs) -> Tensor:
        if isinstance(pairs, SurrogatePairs):
            at, nearest = pairs.first(self.by)
            return pairs.single(self.by, at, slope(nearest, self.metric))
        similarity, negative = _compared(pairs, self.by)
        top = similarity.masked_fill(~negative, -torch.inf).argmax(dim=1, keepdim=True)
        steep = slope(similarity.gather(1, top), self.metric)
        return torch.zeros_like(similarity).scatter_(1, top, steep) * negative


def nothing(pairs: Pairs) -> Tensor:
    """Return zero weights on the other view, for objectives without a push."""
    views, none = pairs.views, torch.zeros_like(pairs.positive)
    if isinstance(pairs, SurrogatePairs):
        return pairs.single("cross", none.long(), none)
    return none.new_zeros(len(none), len(views.positives))


def products(pairs: Pairs, rows: Tensor, *compared: Tensor, against: Against) -> Tensor:
    """Return the n x c weights of second moments: rows_i.x_j, 0 for j = i.

    Args:
        pairs: Square pairs without additional negatives.
        rows: n x d.
        compared: The x of each view among the columns, n x d.
        against: Views that the columns come from.
    """
    if isinstance(pairs, SurrogatePairs) and len(rows) > rows.shape[1]:
        return pairs.products(against, rows, *compared)
    parts = [(rows @ x.T).fill_diagonal_(0) for x in compared]
    return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]


def _compared(pairs: Pairs, by: By) -> tuple[Tensor, Tensor]:
    """The similarities that a weight depends on, and the mask of the negatives."""
    if by == "positives":
        pairs = pairs.of(pairs.views.among_positives())
    return pairs.similarity(AGAINST[by]), pairs.negative(AGAINST[by])
