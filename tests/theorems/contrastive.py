"""Bounds of Nie et al. 2023: InfoNCE under DCL+ and a triplet loss, uniformity over the distances.

Temperatures stand inside the exponentials and h'_j is of the other view, which the printed
equations (1, 5, 12, 43 to 46, 50) leave to be guessed.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from isotrope import Pairs, Views, softplus
from isotrope.objectives.infonce import InfoNCE
from tests.theorems.bound import Bound


class InfoNCEBounds(NamedTuple):
    """The two steps of eq. 12, n values on each side.

    Attributes:
        dcl_plus: InfoNCE <= log 2 + DCL+.
        triplet: log 2 + DCL+ <= log 2 + MPT at the margin tau log(N - 1), over tau.
    """

    dcl_plus: Bound
    triplet: Bound


def infonce_bounds(anchors: Tensor, positives: Tensor, temperature: float) -> InfoNCEBounds:
    """Return both sides of Nie et al. 2023, eq. 12, for every anchor.

    N is the size of the batch there, so that N - 1 counts the negatives.

    Args:
        anchors: n x d raw embeddings.
        positives: m x d raw embeddings, row i the positive of anchor i.
        temperature: tau.

    Raises:
        ValueError: shapes that do not fit, or no negatives.
    """
    pairs = _with_negatives(anchors, positives)
    excess = pairs.logsumexp(temperature) - pairs.positive / temperature
    infonce = softplus(excess)
    dcl_plus = math.log(2) + excess.relu()
    triplet = _triplet(pairs, pairs.hardest(), temperature, len(positives) - 1)
    return InfoNCEBounds(Bound(infonce, dcl_plus), Bound(dcl_plus, triplet))


def spread(anchors: Tensor, positives: Tensor) -> Tensor:
    """Return the mean of ||h_i - h'_j||^2 over all i != j, in 0..4.

    It is what both lower bounds of uniformity have in common (Nie et al. 2023, appendix D):
    minimising either loss maximises it.
    """
    pairs = _with_negatives(anchors, positives)
    return 2 - 2 * pairs.similarity()[pairs.negative()].mean()


def uniformity_bound(anchors: Tensor, positives: Tensor, t: float = 2.0) -> Bound:
    """Return -t spread <= log mean_{i != j} exp(-t ||h_i - h'_j||^2) (Nie et al. 2023, eq. 44).

    Args:
        anchors: n x d raw embeddings.
        positives: m x d raw embeddings, row i the positive of anchor i.
        t: inverse temperature.
    """
    pairs = _with_negatives(anchors, positives)
    exponents = t * (2 * pairs.similarity()[pairs.negative()] - 2)
    return Bound(
        -t * spread(anchors, positives),
        exponents.logsumexp(dim=0) - math.log(len(exponents)),
    )


def dcl_uniformity_bound(anchors: Tensor, positives: Tensor, temperature: float) -> Bound:
    """Return -spread / (2 tau) + 1/tau <= mean_i log mean_{j != i} e^{s_ij'/tau} (eq. 46).

    The right side is DCL's uniformity less log(N - 1). The constant is 1/tau; the printed
    1/(2 tau M (N - 1)) divides what was already a mean.

    Args:
        anchors: n x d raw embeddings.
        positives: m x d raw embeddings, row i the positive of anchor i.
        temperature: tau.
    """
    pairs = _with_negatives(anchors, positives)
    count = math.log(len(positives) - 1)
    return Bound(
        (1 - spread(anchors, positives) / 2) / temperature,
        (pairs.logsumexp(temperature) - count).mean(),
    )


def mixed_negatives_bound(
    anchors: Tensor,
    positives: Tensor,
    first: Tensor,
    second: Tensor,
    share: float,
    temperature: float,
    *,
    renormalise: bool = False,
) -> Bound:
    """Return both sides of eq. 50: InfoNCE with mixtures of two negatives each (eq. 47).

    L_mix <= log 2 + max(s_n - s_ii' + tau log(N + M), 0) / tau, with N negatives and M mixtures
    share h'_first + (1 - share) h'_second for every anchor, which are as similar to it as their
    parts on average, and so never more than the hardest negative.

    Args:
        anchors: n x d raw embeddings.
        positives: m x d raw embeddings, row i the positive of anchor i.
        first: n x M rows of ``positives``, none of them the anchor's own.
        second: the same.
        share: lambda, 0 to 1.
        temperature: tau.
        renormalise: must be False: mixtures put back on the sphere come closer to the anchor
            than their parts, and the inequality is false.

    Raises:
        ValueError: renormalised mixtures, an anchor's own positive among the parts, a share
            outside 0..1, or shapes that do not fit.
    """
    pairs = _with_negatives(anchors, positives)
    _check_mixtures(pairs, share, first, second, renormalise=renormalise)
    s = pairs.similarity()
    mixed = share * s.gather(1, first) + (1 - share) * s.gather(1, second)
    left, terms = _mixed_infonce(pairs, mixed, temperature)
    return Bound(left, _triplet(pairs, pairs.hardest(), temperature, terms))


def mixed_positive_bound(
    anchors: Tensor,
    positives: Tensor,
    partners: Tensor,
    share: float,
    temperature: float,
    *,
    renormalise: bool = False,
) -> Bound:
    """Return both sides of eq. 50 or 51: mixtures of the positive with negatives (eq. 48).

    Where the largest similarity is that of a negative, eq. 50 holds; where it is that of a mixture
    share h'_i + (1 - share) h'_k, eq. 51: L_mix <= log 2 + (1 - share) / tau
    max(max_k s_ik' - s_ii' + tau/(1 - share) log(N + M), 0), k over the partners.

    Args:
        anchors: n x d raw embeddings.
        positives: m x d raw embeddings, row i the positive of anchor i.
        partners: n x M rows of ``positives``, none of them the anchor's own.
        share: lambda, the positive's part, 0 to 1.
        temperature: tau.
        renormalise: must be False, as in :func:`mixed_negatives_bound`.

    Raises:
        ValueError: as :func:`mixed_negatives_bound`.
    """
    pairs = _with_negatives(anchors, positives)
    _check_mixtures(pairs, share, partners, partners, renormalise=renormalise)
    own = pairs.positive[:, None]
    mixed = share * own + (1 - share) * pairs.similarity().gather(1, partners)
    left, terms = _mixed_infonce(pairs, mixed, temperature)
    largest = torch.maximum(pairs.hardest(), mixed.amax(dim=1))
    return Bound(left, _triplet(pairs, largest, temperature, terms))


def _with_negatives(anchors: Tensor, positives: Tensor) -> Pairs:
    """The similarities that InfoNCE compares, which refuses a batch without negatives."""
    return InfoNCE().compare(Views(anchors, positives))


def _triplet(pairs: Pairs, largest: Tensor, temperature: float, terms: int) -> Tensor:
    """What eq. 12, 50 and 51 end in: log 2 + max(largest - s_ii' + tau log(terms), 0) / tau."""
    excess = (largest - pairs.positive) / temperature + math.log(terms)
    return math.log(2) + excess.relu()


def _mixed_infonce(pairs: Pairs, mixed: Tensor, temperature: float) -> tuple[Tensor, int]:
    """InfoNCE with n x M further similarities, and the number of terms N + M."""
    further = (mixed / temperature).logsumexp(dim=1)
    excess = torch.logaddexp(pairs.logsumexp(temperature), further) - pairs.positive / temperature
    terms = len(pairs.views.positives) - 1 + mixed.shape[1]
    return softplus(excess), terms


def _check_mixtures(
    pairs: Pairs, share: float, first: Tensor, second: Tensor, *, renormalise: bool
) -> None:
    if renormalise:
        raise ValueError(
            "eq. 50 and 51 hold for mixtures as they are; found renormalise=True, for which they "
            "are false: leave it out"
        )
    if not 0 <= share <= 1:
        raise ValueError(f"share must be between 0 and 1; found {share:g}")
    n = len(pairs.views.anchors)
    if first.ndim != 2 or len(first) != n or first.shape != second.shape or first.shape[1] == 0:
        raise ValueError(
            f"mixtures need {n} x M rows of the positives each; found {tuple(first.shape)} and "
            f"{tuple(second.shape)}"
        )
    own = torch.arange(n, device=first.device)[:, None]
    if bool(((first == own) | (second == own)).any()):
        raise ValueError(
            "mixtures are made of negatives; found an anchor's own positive among them"
        )
