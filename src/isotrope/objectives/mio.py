"""MIO: classifies every pair of the 2N views as positive or negative."""

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from isotrope.core.autograd import softplus
from isotrope.core.errors import Overflow
from isotrope.core.hyper import Paper, Temperature
from isotrope.core.terms import Terms
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.assemble import averaged, received
from isotrope.paradigm.objective import Objective

_TITLE = (
    "MIO: Mutual Information Optimization using Self-Supervised Binary Contrastive Learning",
    "Manna et al., 2023",
)


class _Binary:
    """Base class, to inherit before ``Objective``: a linear attraction, a softplus repulsion."""

    temperature: float
    coupling: ClassVar[Coupling] = "linear"
    two_directions = True

    def attraction(self, pairs: Pairs) -> Tensor:
        return -pairs.positive / self.temperature

    def repulsion(self, pairs: Pairs) -> Tensor:
        return pairs.softplus(self.temperature, "both") / _number(pairs)

    def components(self, pairs: Pairs) -> Terms:
        return _terms(pairs, self.temperature, torch.ones_like, torch.sigmoid)


class MIOv1(_Binary, Objective, paper=Paper(*_TITLE, "Manna et al., 2023, eq. 2-4, 11")):
    r"""Binary cross-entropy: the sigmoid of a pair's cosine predicts whether the pair is positive.

    Loss: The mean over 2N anchors of L_i = log(1 + e^{-s_ii'/tau}) + mean_j log(1 + e^{s_ij/tau}).
    s_ii' and s_ij are the cosines of anchor i with its positive i' and with a negative j. There are
    M negatives: the 2N - 2 rows of both views except i and i', and additional negatives.

    Gradient: dissipation GD = 1; weight W_ij = sigmoid(s_ij/tau) / (tau M); the pull of the
    positive is sigmoid(-s_ii'/tau) / tau. The pull and each push fade separately. No factor is
    common to all of them, so GD is 1. An anchor also gets a gradient as the positive and as a
    negative of other anchors. GD, W and the pull do not include this gradient.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over 2n).

    Reference: Manna et al., 2023, eq. 4, expanded in eq. 11; supplement, eq. 3 and 14. In eq. 11,
    the positive has two terms: -s/tau attracts it, and log(1 + e^{s/tau}) repels it. Their sum
    falls as s rises, so positives always attract each other.

    Example:
        >>> import torch
        >>> round(float(MIOv1(temperature=1.0)(torch.eye(2), torch.eye(2))), 6)
        1.006409
    """

    temperature: Temperature = 0.2

    def attraction(self, pairs: Pairs) -> Tensor:
        return softplus(-pairs.positive / self.temperature)

    def components(self, pairs: Pairs) -> Terms:
        return _terms(pairs, self.temperature, lambda x: torch.sigmoid(-x), torch.sigmoid)


class MIOv2(_Binary, Objective, paper=Paper(*_TITLE, "Manna et al., 2023, eq. 12, 13")):
    r"""MIOv1 with a linear attraction, whose pull does not fade.

    Loss: The mean over 2N anchors of L_i = -s_ii'/tau + mean_j log(1 + e^{s_ij/tau}). s_ii' and
    s_ij are the cosines of anchor i with its positive i' and with a negative j. There are M
    negatives: the 2N - 2 rows of both views except i and i', and additional negatives.

    Gradient: dissipation GD = 1; weight W_ij = sigmoid(s_ij/tau) / (tau M); the pull of the
    positive is 1/tau. An anchor also gets a gradient as the positive and as a negative of other
    anchors. GD, W and the pull do not include this gradient.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over 2n).

    Reference: Manna et al., 2023, eq. 12 and 13; supplement, eq. 5 and 27.

    Example:
        >>> import torch
        >>> round(float(MIOv2(temperature=1.0)(torch.eye(2), torch.eye(2))), 6)
        -0.306853
    """

    temperature: Temperature = 0.2


class MIOv3(_Binary, Objective, paper=Paper(*_TITLE, "Manna et al., 2023, eq. 17, 18")):
    r"""MIOv2 with an exponential repulsion: x, the upper bound of log(1 + x), replaces log(1 + x).

    Loss: The mean over 2N anchors of L_i = -s_ii'/tau + mean_j e^{s_ij/tau}. s_ii' and s_ij are the
    cosines of anchor i with its positive i' and with a negative j. There are M negatives: the 2N -
    2 rows of both views except i and i', and additional negatives.

    Gradient: dissipation GD = 1; weight W_ij = e^{s_ij/tau} / (tau M); the pull of the positive is
    1/tau. An anchor also gets a gradient as the positive and as a negative of other anchors. GD, W
    and the pull do not include this gradient.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over 2n).

    In float32, the exponential overflows at tau < 0.0113, and its derivative at tau < 0.0119. At
    such a temperature, an ``Overflow`` error is raised.

    Reference: Manna et al., 2023, eq. 18 (the second line of eq. 17 has sums in place of means);
    supplement, eq. 32 and 33.

    Example:
        >>> import torch
        >>> float(MIOv3(temperature=1.0)(torch.eye(2), torch.eye(2)))
        0.0
    """

    temperature: Temperature = 0.2

    def repulsion(self, pairs: Pairs) -> Tensor:
        self._refuse_overflow(pairs.positive.dtype)
        return (pairs.logsumexp(self.temperature, "both") - _number(pairs).log()).exp()

    def components(self, pairs: Pairs) -> Terms:
        self._refuse_overflow(pairs.positive.dtype)
        return _terms(pairs, self.temperature, torch.ones_like, torch.exp)

    def _refuse_overflow(self, dtype: torch.dtype) -> None:
        bound = coldest(dtype)
        if self.temperature < bound:
            raise Overflow(
                f"raise the temperature to at least {bound:g}, or use MIOv2, which does not "
                f"overflow: at temperature {float(self.temperature):g}, e^(1/tau) in MIOv3 or its "
                f"derivative overflows {dtype}"
            )


def coldest(dtype: torch.dtype) -> float:
    """Return the lowest temperature that MIOv3 allows: 0.01188 in float32, 0.00143 in float64.

    At this temperature, e^{1/tau} / tau is still finite. The loss and its gradient with respect to
    normalised embeddings are never larger than e^{1/tau} / tau. Embeddings of norm r get a gradient
    of at most e^{1/tau} / (r tau). The limit of float32 also applies to half precision, whose
    embeddings are compared in float32. But their gradient is rounded to half precision: at
    temperatures of 0.11 and below, derivatives exceed 65504, the largest number of float16.
    """
    top = math.log(torch.finfo(dtype).max)
    # x e^x < max for x = log(max / log(max)); rounded up, so that the printed bound is accepted
    return math.ceil(1e5 / (top - math.log(top))) / 1e5


def _number(pairs: Pairs) -> Tensor:
    """The number of negatives per anchor, 2N - 2 without groups and additional ones; at least 1."""
    return pairs.count("both").clamp_min(1)


def _terms(
    pairs: Pairs,
    temperature: float | Tensor,
    pull: Callable[[Tensor], Tensor],
    push: Callable[[Tensor], Tensor],
) -> Terms:
    """Return the components of both directions; ``pull``, ``push``: derivatives by s / tau."""

    def one_way(pairs: Pairs) -> Terms:
        slope = push(pairs.similarity("both") / temperature) / (
            temperature * _number(pairs)[:, None]
        )
        terms = Terms(
            dissipation=torch.ones_like(pairs.positive),
            weight=slope.where(pairs.negative("both"), 0.0),
            pull=pull(pairs.positive / temperature) / temperature,
            against="both",
            scale=1 / len(slope),
        )
        return dataclasses.replace(terms, residual=received(terms, pairs.views, "anchors"))

    swapped = pairs.swapped()
    return averaged(one_way(pairs), one_way(swapped), swapped.views)
