"""Recognises a loss by its gradient: its kind, its components and its temperature."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.paradigm.softmax_fit import SoftmaxFit, fit_pairs, fit_softmax

Kind = Literal["softmax", "other", "pairs", "scores", "unknown", "nothing"]

MISFIT = 0.05  # share of the gradient; components that leave out more are not reported
_SURE = 0.01  # share that a softmax may leave out; with more, a loss is only close to a softmax
_PROOF = 1e-4  # share that pairs may leave out, unless the dtype rounds by more
_ROUNDING = 1e-5
_BETTER = 3  # a softmax with a push leaves out that many times less than the own pair alone


@dataclass(frozen=True)
class Recognised:
    """A loss, recognised from its gradient.

    Attributes:
        kind: ``softmax``: a softmax over the batch. ``other``: other rows are pushed in a different
            way (margins). ``pairs``: an anchor is compared only with its own positive, so there
            are no in-batch negatives. ``scores``: similarities are fitted to labels, and components
            do not describe the loss. ``unknown``: no description fits. ``nothing``: the gradient is
            zero.
        terms: GD, W and pull; None if unknown, and for ``pairs``, which has none. GD includes the
            1/tau of a softmax.
        temperature: Temperature of the softmax, if only one fits; for ``other``, the temperature
            of the nearest softmax, which misses at most 5% and whose 1/tau is in GD.
        misfit: Share of the gradient that the best description leaves out.
        pulled: For ``pairs``, the share of pairs with a gradient that are pulled together; the
            others are pushed apart.
        even: True if softmaxes of several high temperatures fit, whose 1/tau is in GD: the push is
            even over the negatives, or there is only one negative.
    """

    kind: Kind
    terms: Terms | None
    temperature: float | None
    misfit: float
    pulled: float | None = None
    even: bool = False

    def in_units_of(self, unit: float) -> "Recognised":
        """Return a copy with GD measured in ``unit``, such as the 1/tau of a softmax."""
        terms = self.terms
        if terms is None:
            return self
        residual = None if terms.residual is None else terms.residual / unit
        size, scale = terms.dissipation / unit, terms.scale * unit
        return replace(self, terms=replace(terms, dissipation=size, scale=scale, residual=residual))


def recognise(
    gradient: Tensor,
    views: Views,
    *,
    against: Literal["cross", "both"] | None = None,
    labelled: bool = False,
    near: float | None = None,
) -> Recognised:
    """Recognise a loss, as far as its gradient on the anchors shows it.

    It serves for losses whose pairs the graph does not show
    (:mod:`isotrope.paradigm.similarities`). The components are those of a softmax
    (:mod:`isotrope.paradigm.softmax_fit`). They are None if the softmax leaves out more than 5%, or
    not much less than the pair of an anchor and its positive alone.

    Args:
        gradient: n x d. Row i is the gradient of anchor i's own loss with respect to the raw
            anchor: n times the gradient of a mean over n anchors.
        views: Raw embeddings.
        against: View of the negatives: the other, or both; None tries them in this order.
        labelled: Whether the loss has labels. Then only a softmax and pairs are recognised.
        near: Temperature to start from, such as that of the previous reading.
    """
    choices: tuple[Literal["cross", "both"], ...] = (
        ("cross", "both") if against is None else (against,)
    )
    if not bool(gradient.any()):
        zero = gradient.new_zeros(len(views.anchors), _columns(views, choices[0]))
        terms = Terms(zero.sum(dim=1), zero, zero.sum(dim=1), choices[0], scale=1 / len(zero))
        return Recognised("nothing", None if labelled else terms, None, 0.0)
    pairs = fit_pairs(gradient, views)
    soft = _softmax(gradient, views, choices, near)
    proof = max(_PROOF, torch.finfo(gradient.dtype).eps)
    if soft is not None:
        proof = min(proof, max(_ROUNDING, 2 * soft.misfit))
    if not bool(choose_pairs(views).negative().any()):
        proof = MISFIT
    if pairs.misfit <= proof:
        moved = pairs.pull[pairs.pull.abs() > _PROOF * pairs.pull.abs().max()]
        pulled = float((moved > 0).double().mean()) if len(moved) else None
        return Recognised("pairs", None, None, pairs.misfit, pulled)
    temperature = soft.temperature if soft is not None and soft.misfit <= MISFIT else None
    kind: Kind = "other"
    if soft is not None and temperature is not None and soft.misfit <= _SURE:
        kind = "softmax"
    if labelled and kind == "other":
        return Recognised("scores", None, None, pairs.misfit if soft is None else soft.misfit)
    misfit = 1.0 if soft is None else soft.misfit
    even = soft is not None and soft.even and soft.misfit <= _SURE
    if soft is not None and soft.misfit <= min(MISFIT, pairs.misfit / _BETTER):
        return Recognised(kind, soft.terms, temperature, soft.misfit, even=even)
    return Recognised("unknown", None, None, misfit)


def _softmax(
    gradient: Tensor,
    views: Views,
    choices: tuple[Literal["cross", "both"], ...],
    near: float | None,
) -> SoftmaxFit | None:
    """The first softmax that fits, else the best."""
    fits: list[SoftmaxFit] = []
    for choice in choices:
        fit = fit_softmax(gradient, views, choice, near=near)
        if fit is not None and fit.misfit <= _SURE:
            return fit
        fits += [] if fit is None else [fit]
    return min(fits, key=lambda fit: fit.misfit) if fits else None


def _columns(views: Views, against: str) -> int:
    further = 0 if views.negatives is None else len(views.negatives)
    return len(views.positives) + (against == "both") * len(views.anchors) + further
