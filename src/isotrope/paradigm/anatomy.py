"""Summarises dissipation GD, weights W and ratio R of a batch in four numbers."""

import dataclasses

import torch
from torch import Tensor

from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.objective import Objective

MOST = 4096
"""Largest number of rows whose components (matrices) are computed."""
DEAD = 0.01  # below this GD an anchor hardly moves


def hardest_share(terms: Terms, pairs: Pairs, least: float = DEAD) -> float | None:
    """Return the hardest negative's share of an anchor's weights, averaged over active anchors.

    An anchor is active if its dissipation GD is at least ``least``, and not all its weights are 0.
    The result is None if no anchor is active. The hardest negative is the negative most similar to
    the anchor. Weights count by absolute value, because some objectives (VICRegGrad) have negative
    weights.
    """
    masked = pairs.similarity(terms.against).masked_fill(~pairs.negative(terms.against), -torch.inf)
    weight = terms.weight.abs()
    share = weight.gather(1, masked.argmax(dim=1, keepdim=True)).squeeze(1)
    mass = weight.sum(dim=1)
    active = (terms.dissipation >= least) & (mass > 0)
    return _mean(share[active] / mass[active])


@torch.no_grad()
def anatomy(objective: Objective, views: Views) -> dict[str, float | None]:
    """Summarise the gradient components of a batch in four numbers.

    Args:
        objective: Any objective. If it has no gradient components, the four values are None.
        views: Embeddings of any norm, n x d each. Only the first 4,096 rows are used.

    Returns:
        A dict. ``dissipation``: the mean dissipation GD. ``dead``: the share of anchors with GD <
        0.01. These two values leave out anchors without negatives, and are None if no anchor is
        left. ``hardest_share``: the result of :func:`hardest_share`. ``ratio``: the mean ratio R of
        the anchors whose weights do not sum to 0. ``ratio`` is None if there are no such anchors,
        or if the pull is a matrix (Barlow Twins).
    """
    if not objective.has_terms:
        return dict.fromkeys(("dissipation", "dead", "hardest_share", "ratio"))
    pairs = objective.compare(first_rows(views))
    return summary(objective.components(pairs), pairs)


def summary(terms: Terms, pairs: Pairs) -> dict[str, float | None]:
    """Return the dict of :func:`anatomy` for components that are already computed."""
    ratio = terms.ratio
    has_negatives = pairs.negative(terms.against).any(dim=1)
    dissipation = terms.dissipation[has_negatives]
    return {
        "dissipation": _mean(dissipation),
        "dead": _mean((dissipation < DEAD).to(dissipation.dtype)),
        "hardest_share": hardest_share(terms, pairs),
        "ratio": None if ratio is None else _mean(ratio[terms.mass != 0]),
    }


def _mean(values: Tensor) -> float | None:
    """Return the mean; None if there are no values."""
    return float(values.mean()) if len(values) else None


def first_rows(views: Views) -> Views:
    """Return the first 4,096 anchors of a batch, so that matrices stay small.

    Positives of later anchors and of other processes are dropped, so they are no negatives either.
    A batch with at most 4,096 positives is returned unchanged.
    """
    if len(views.positives) <= MOST:
        return views
    groups = None if views.groups is None else views.groups[views.rows][:MOST]
    return dataclasses.replace(
        views, anchors=views.anchors[:MOST], positives=views.own[:MOST], offset=0, groups=groups
    )
