"""Measures one batch for the log: components of the gradient, and statistics of embeddings."""

import math

import torch
from torch import Tensor

from isotrope.core.rounding import at_least_float, exact
from isotrope.core.terms import Against, Terms
from isotrope.core.views import Views
from isotrope.diagnostics.metrics import MEASURED
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.kernels.pairs import Pairs
from isotrope.measures.alignment import alignment
from isotrope.measures.dimension_std import dimension_std
from isotrope.measures.effective_rank import effective_rank
from isotrope.measures.norms import mean_norm
from isotrope.measures.opposite_halves import opposite_halves
from isotrope.measures.uniformity import uniformity
from isotrope.paradigm.anatomy import DEAD, MOST, first_rows, summary
from isotrope.paradigm.assemble import tangent
from isotrope.paradigm.objective import Objective

SAME = 0.999  # cosine from which two embeddings count as equal
_SHOWN = 3  # false negatives that a diagnosis names
_COPY = 0.1  # a negative is a copy of the positive if their 1 - cos is below this share of the mean
NEAR = 0.25  # largest 1 - cos, as a share of the mean, of a negative that looks like a positive


def loss_column(dataset: str) -> str:
    """Return the column of metrics.csv for the loss of a data set; ``""`` means all data sets."""
    return f"loss_{dataset}" if dataset else "loss"


@torch.no_grad()
def measure(objective: Objective | None, views: Views) -> dict[str, float | None]:
    """Return the measurements of one batch: a number or None for each name in ``MEASURED``.

    Measures that compare rows with each other use the first 4,096 rows. An anchor's negatives are
    the rows of the other view, without its positive and the rows of its group. Angles are in
    radians, and standard deviations divide by the number of values.

    Args:
        objective: Objective of the training. None, or an objective whose formula does not use
            normalised embeddings: all numbers that need components are None. DINO, whose outputs
            are logits: only norm, rank and gradient are measured.
        views: Embeddings, not yet normalised, n x d.

    Returns:
        A dict from the metrics, which :mod:`isotrope.diagnostics.metrics` defines, to numbers.

        - ``dissipation`` and ``dead`` are None if no anchor has negatives.
        - ``above_bound`` assumes small steps, and that only the hardest negative pushes.
        - ``gradient_alignment`` and ``gradient_uniformity`` are eq. 7 to 22 of Nie et al. (2023)
          without 1/||h||.
        - ``embedding_gradient`` is the mean of ||n dL/dz_i|| over the rows z_i of ``views``
          (Draganov et al., 2024, Prop. 3.1).
        - ``negatives`` counts all vectors with which an anchor is compared, even if only one of
          them pushes.
        - ``positive_mean`` and ``negative_mean``: the angle to a zero row is pi/2.
        - ``false_negatives`` is the share of anchors with a negative that is near to the anchor or
          to the positive, by the distance 1 - cos. Near to the positive: at most a tenth of the
          mean distance from the positive to all negatives. Near to the anchor: at most a quarter of
          the mean distance from the anchor to all negatives, and the cosine is at least that of the
          positive or at least 0.999.
    """
    views = views.detached().map(at_least_float)
    numbers: dict[str, float | None] = dict.fromkeys(MEASURED)
    numbers["norm"] = float(mean_norm(views.anchors))
    if len(views.anchors) > 1:
        numbers["effective_rank"] = effective_rank(views.anchors)
    if objective is not None and not objective.has_terms:
        numbers["embedding_gradient"] = _embedding_gradient(objective, views)
    if objective is not None and objective.space == "logits":
        return numbers
    first = first_rows(views)
    if objective is not None and objective.has_terms:
        pairs = objective.compare(first)
        numbers |= _components(objective.components(pairs), pairs, first.anchors)
    else:
        pairs = choose_pairs(first.unit())
        numbers["negatives"] = _mean_count(pairs, "cross")
    return numbers | _spread(views) | angles(pairs)


@torch.no_grad()
def measure_pairs(pairs: Pairs, terms: Terms, raw: Tensor) -> dict[str, float | None]:
    """Return the numbers of :func:`measure`, except ``norm`` and ``effective_rank``.

    Args:
        pairs: Unit vectors of anchors and candidates, and their similarities.
        terms: Components of the gradient.
        raw: Anchors before they were normalised, n x d.
    """
    return _components(terms, pairs, raw) | _spread(pairs.views) | angles(pairs)


@torch.no_grad()
def measure_unpaired(embeddings: Tensor) -> dict[str, float | None]:
    """Return the numbers of :func:`measure` that need only unnormalised embeddings, n x d."""
    raw = at_least_float(embeddings.detach())
    numbers: dict[str, float | None] = dict.fromkeys(MEASURED)
    numbers["norm"] = float(mean_norm(raw))
    if len(raw) > 1:
        numbers["effective_rank"] = effective_rank(raw)
        numbers["uniformity"] = float(uniformity(raw[:MOST]))
        numbers["std"] = float(dimension_std(raw))
    return numbers


def _mean_count(pairs: Pairs, against: Against) -> float:
    return float(exact(pairs.negative(against).sum(dim=1)).mean())


def _components(terms: Terms, pairs: Pairs, raw: Tensor) -> dict[str, float | None]:
    """Return the summary of the components, and the mean lengths of gradient, pull and push."""
    views = pairs.views
    size = len(views.anchors) * terms.scale
    gd = terms.dissipation[:, None]
    pulled = gd * tangent(terms.pulls * views.own, views.anchors)
    pushed = gd * tangent(terms.weight @ pairs.columns(terms.against), views.anchors)
    whole = pushed - pulled
    if terms.extra is not None:
        whole = whole + gd * tangent(terms.extra, views.anchors)
    if terms.residual is not None:
        whole = whole + tangent(terms.residual, views.anchors)
    norm = torch.linalg.vector_norm(raw, dim=1, keepdim=True)
    # a row of (nearly) zero norm has a zero unit vector and no gradient
    reached = whole / norm.masked_fill(~views.anchors.any(dim=1, keepdim=True), torch.inf)
    return {
        **summary(terms, pairs),
        "above_bound": above_bound(terms, pairs),
        "gradient_alignment": size * float(mean_norm(pulled)),
        "gradient_uniformity": size * float(mean_norm(pushed)),
        "embedding_gradient": size * float(mean_norm(reached)),
        # a loss that only pulls pairs together compares an anchor with no negatives
        "negatives": _mean_count(pairs, terms.against) if bool(terms.weight.any()) else 0.0,
    }


def above_bound(terms: Terms, pairs: Pairs) -> float | None:
    """Return the share of anchors with GD >= 0.01 whose ratio R is above the bound of Lemma 1."""
    active = (terms.dissipation >= DEAD) & (terms.mass != 0)
    if terms.ratio is None or not bool(active.any()):
        return None
    views = pairs.views
    masked = pairs.similarity().masked_fill(~pairs.negative(), -torch.inf)
    p = tangent(views.own, views.anchors)
    q = tangent(pairs.columns()[masked.argmax(dim=1)], views.anchors)
    above = terms.ratio * p.square().sum(dim=1) > (p * q).sum(dim=1)
    return _share(above[active])


def _embedding_gradient(objective: Objective, views: Views) -> float:
    """Return the mean length of n dL/dz_i by autograd, for a loss without components."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        views = views.detached().map(Tensor.clone)  # no inference tensors
        leaf = views.anchors.requires_grad_()
        loss = objective.loss(views)
        (gradient,) = torch.autograd.grad(loss, leaf)
    return len(leaf) * float(mean_norm(gradient))


def _spread(views: Views) -> dict[str, float | None]:
    """Return the measures of the embeddings that need no negatives."""
    anchors, positives = views.anchors, views.own
    several = len(anchors) > 1  # one row has no spread
    return {
        "alignment": float(alignment(anchors, positives)),
        "uniformity": float(uniformity(anchors[:MOST])) if several else None,
        "opposite_halves": float(opposite_halves(anchors, positives)),
        "far_opposite": float(opposite_halves(anchors, positives, 7 * math.pi / 8)),
        "std": float(dimension_std(anchors)) if several else None,
    }


def angles(pairs: Pairs) -> dict[str, float | None]:
    """Return a dict: statistics of the angles, the distance gap, the share of false negatives."""
    views, negative, similarity = pairs.views, pairs.negative(), pairs.similarity()
    distance = torch.linalg.vector_norm(views.anchors - views.own, dim=1)
    sum_norm = torch.linalg.vector_norm(views.anchors + views.own, dim=1)
    to_positive = 2 * torch.atan2(distance, sum_norm)  # arccos loses half the digits near 0
    # a zero row counts as orthogonal to every row, another zero row included
    to_positive = to_positive.masked_fill((distance == 0) & (sum_norm == 0), math.pi / 2)
    numbers: dict[str, float | None] = {
        "positive_mean": float(to_positive.mean()),
        "positive_std": float(to_positive.std(correction=0)),
    }
    opposed = negative.any(dim=1)
    if not bool(opposed.any()):
        return numbers
    to_negative = similarity.clamp(-1, 1).arccos()[negative]
    # squared norms of anchors and columns are 1, or 0 for zero rows
    squares = [x.square().sum(dim=1) for x in (views.anchors, pairs.columns())]
    chord = (squares[0][:, None] + squares[1] - 2 * similarity).clamp_min(0).sqrt()
    mean_chord = chord.masked_fill(~negative, 0).sum(dim=1) / negative.sum(dim=1)
    return numbers | {
        "negative_mean": float(to_negative.mean()),
        "negative_std": float(to_negative.std(correction=0)),
        "distance_gap": float((mean_chord - distance)[opposed].mean()),
        "false_negatives": _share(false_negative(pairs)[opposed]),
    }


def false_negative(pairs: Pairs, among: Tensor | None = None) -> Tensor:
    """Return for each anchor whether a negative looks like its positive (see :func:`measure`).

    Args:
        pairs: Anchors, positives and negatives.
        among: Which negatives may look like a positive, n x m booleans. None: all negatives.
    """
    negative, similarity = pairs.negative(), pairs.similarity()
    of_positive = pairs.views.own @ pairs.columns().T
    among = negative if among is None else among
    looks_like_anchor = _nearest(similarity, negative, among, NEAR)
    hardest = similarity.masked_fill(~among, -torch.inf).amax(dim=1)
    same = (hardest >= pairs.positive) | (hardest >= SAME)
    return (same & looks_like_anchor) | _nearest(of_positive, negative, among, _COPY)


def places_of_false_negatives(
    pairs: Pairs, rows: int, among: Tensor
) -> tuple[tuple[int, int], ...]:
    """Return up to three pairs (row of an anchor, row of its likely false negative).

    Only the first ``rows`` anchors and the negatives in ``among`` (n x m booleans) are considered.
    """
    of_anchor, of_positive = pairs.similarity(), pairs.views.own @ pairs.columns().T
    nearest = torch.maximum(of_anchor, of_positive).masked_fill(~among, -torch.inf)
    has_one = pairs.negative().any(dim=1) & false_negative(pairs, among)
    shown = [int(i) for i in has_one[:rows].nonzero()[:_SHOWN]]
    return tuple((i, int(nearest[i].argmax())) for i in shown)


def _nearest(similarity: Tensor, negative: Tensor, among: Tensor, share: float) -> Tensor:
    """Return whether 1 - cos to some negative in ``among`` is at most ``share`` x the mean."""
    nearest = similarity.masked_fill(~among, -torch.inf).amax(dim=1)
    mean = similarity.masked_fill(~negative, 0).sum(dim=1) / negative.sum(dim=1)
    return 1 - nearest <= share * (1 - mean)


def _share(where: Tensor) -> float:
    return int(where.sum()) / len(where)
