"""Decomposes any loss of two views into dissipation GD, weight W and ratio R by autograd.

If a loss L is a function of the similarities s_ij' = h_i . h'_j, the gradient of anchor i is
sum_j (dL/ds_ij') h'_j. So dL/ds_ij' is the push from negative j, and -dL/ds_ii' is the pull of the
positive. This is exact.

If a loss is a function of embeddings and compares only products or cosines of the rows, these
derivatives are read in its autograd graph (:mod:`isotrope.paradigm.graph_reading`). They are exact,
too. For any other loss, only the gradient g_i of each anchor is known. The pushes w_ij and the pull
are the least-norm solution of

    sum_j w_ij x_j - pull_i h'_i = g_i    in the tangent plane at h_i,

and the residual is the part of g_i that no solution reaches. Two facts limit the conclusions:

- the solution is unique if the rank of the system is the number of unknowns, as usual for d > n;
  if the rank is smaller, other pushes give the same gradient;
- if the rank is d - 1, the vectors span the tangent plane: every gradient fits, and a small
  residual proves nothing (``testable``). Test with few rows in many dimensions.

Then the pushes on each anchor are divided by their sum. The sum is GD, and the quotients are the
weights W, which sum to 1. GD contains the 1/tau of a softmax. If pushes of both signs cancel, GD is
the sum of their magnitudes, and |W| sums to 1. If there is only a pull, GD is 1. ``normalised``
marks the anchors whose W sums to 1. GD x W and GD x pull do not depend on this choice of GD.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from isotrope.core.errors import InputError
from isotrope.core.rounding import rounding
from isotrope.core.terms import Against, Terms
from isotrope.core.views import Views
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.assemble import tangent
from isotrope.paradigm.compared import Compared
from isotrope.paradigm.graph_reading import GraphReading

Of = Literal["embeddings", "similarities"]
Reduction = Literal["mean", "sum"]

_ROUNDINGS = 32  # eps that cosines, logarithms and weights may be off (softmax: 7)
_MUCH = 0.05  # share of gradient or push that the components of a reliable reading may leave over


@dataclass(frozen=True, repr=False)
class Decomposition:
    """The three components of a loss on one batch, and how reliable the components are.

    ``print`` shows a summary. If the components do not explain the gradient
    (``is_reliable``), it shows no numbers.

    Attributes:
        terms: GD, W and pull, detached; ``terms.scale * assemble(terms, views)`` equals
            ``gradient`` in the tangent space.
        gradient: Tangent part of the gradient with respect to the normalised anchors, n x d.
        normalised: n booleans, True if an anchor's weights sum to 1, False if they are 0 or cancel.
        unique: n booleans, True if no other weights give the anchor's gradient (within rounding).
            At least half of the digits of these weights are reliable.
        rank: n integers, the rank of the linear system that was solved for each anchor. None if no
            system was solved, because the loss compares similarities only.
        temperature: Temperature of the softmax that the weights are; None if they are no softmax.
    """

    terms: Terms
    gradient: Tensor
    normalised: Tensor
    unique: Tensor
    rank: Tensor | None
    temperature: float | None = None

    def __repr__(self) -> str:
        n, d = self.gradient.shape
        title = f"Decomposition of {n} anchors in {d} dimensions, against={self.terms.against!r}"
        if not self.is_reliable:
            return (
                f"{title}: unreliable\n"
                f"  GD, W and R leave over {self.misfit:.2g} of the gradient (misfit), or much of "
                "the push.\n  Try against='within' or 'both', and give the negatives of a queue as "
                "additional rows of positives; or the\n  loss does not compare rows with rows, but "
                "for example features (Barlow Twins), and has no GD, W and R"
            )
        moved = self.terms.dissipation * self.terms.pull
        softmax = f", a softmax of temperature {self.temperature:.3g}" if self.temperature else ""
        lines = [
            f"{title}: misfit {self.misfit:.2g}",
            f"  positives attract {int((moved > 0).sum())} anchors, repel {int((moved < 0).sum())}",
            f"  terms.dissipation (GD): {_range(self.terms.dissipation)}",
            f"  terms.weight (W): {' x '.join(map(str, self.terms.weight.shape))}{softmax}",
            f"  ratio (R): {_range(self.ratio[self.normalised])}",
        ]
        if unsure := int((~self.unique).sum()):
            lines.append(f"  unique: other W give the same gradient for {unsure} anchors")
        return "\n".join(lines)

    @property
    def is_reliable(self) -> bool:
        """Whether the rest of the gradient is small, compared with gradient and push.

        A rest that is small beside the pull of the positives can still be all of the push.
        """
        noise = math.sqrt(torch.finfo(self.gradient.dtype).eps)
        pushes = self.terms.scale * self.terms.dissipation[:, None] * self.terms.weight
        rest, push = (float(torch.linalg.vector_norm(x)) for x in (self.residual, pushes))
        return self.misfit <= noise or (self.misfit <= _MUCH and rest <= _MUCH * push)

    @property
    def ratio(self) -> Tensor:
        """Ratio R_i of pull and push, n values; NaN where the weights sum to 0."""
        return self.terms.pull.where(self.normalised, torch.nan)

    @property
    def residual(self) -> Tensor:
        """Norms of the parts of the gradients that the components do not explain, n values."""
        if self.terms.residual is None:
            return self.gradient.new_zeros(len(self.gradient))
        norms: Tensor = torch.linalg.vector_norm(self.terms.scale * self.terms.residual, dim=1)
        return norms

    @property
    def testable(self) -> Tensor:
        """Whether a small residual is evidence, n booleans: True if the rank is below d - 1."""
        if self.rank is None:
            return torch.ones_like(self.unique)
        return self.rank < self.gradient.shape[1] - 1

    @property
    def misfit(self) -> float:
        """Share of the batch's gradient that the components do not explain, from 0 to 1."""
        norm = float(torch.linalg.vector_norm(self.gradient))
        return float(torch.linalg.vector_norm(self.residual)) / norm if norm else 0.0


def _range(values: Tensor) -> str:
    if not len(values):
        return "undefined, because no weights sum to 1"
    return f"{float(values.min()):.3g} to {float(values.max()):.3g}"


def decompose(
    loss_fn: Callable[..., Tensor],
    anchors: Tensor,
    positives: Tensor,
    *,
    of: Of = "embeddings",
    against: Against = "cross",
    reduction: Reduction = "mean",
) -> Decomposition:
    """Return the components of ``loss_fn``'s gradient on the anchors (Li et al. 2024, sec. 2.3).

    The rows are normalised first. For each anchor, the positives and all other anchors are held
    constant. Parameters of the loss receive no gradient. If the loss keeps a queue, pass a copy of
    the loss, because the call advances the queue.

    Args:
        loss_fn: Function that returns a scalar, called as ``loss_fn(anchors, positives)`` with unit
            rows. If ``of="similarities"``, it is called as ``loss_fn(similarity)`` with the cosines
            (n x m, anchors in rows, their positives on the diagonal).
        anchors: Embeddings of the anchors, n x d, of any norm and dtype. Half precision is
            converted to float32.
        positives: Embeddings of the other view, m x d, m >= n. Row i is the positive of anchor i,
            and the other rows are its negatives.
        of: Arguments of the loss: ``embeddings`` of the two views, as for isotrope's objectives, or
            ``similarities`` of the two views. The choice is not inferred from the loss.
        against: View of the negatives: ``cross`` (the other view), ``within`` (the anchors' view),
            or ``both``. A wrong choice makes ``residual`` large.
        reduction: How the loss combines the losses of n anchors. ``terms`` belong to one anchor's
            loss, so ``terms.scale`` is 1/n for a mean, and 1 for a sum or a statistic of the batch.
            Only GD depends on this choice.

    Raises:
        InputError: The loss takes texts instead of embeddings.
        ValueError: ``of``, ``against`` or ``reduction`` is unknown; an embedding is zero; the loss
            does not take these arguments, is not a scalar or does not depend on the anchors; or
            its gradient is not finite.

    Example:
        >>> import torch
        >>> loss = lambda s: -s.diagonal().mean() + s.logsumexp(dim=1).mean()
        >>> parts = decompose(loss, torch.eye(3), torch.eye(3), of="similarities")
        >>> [round(r, 3) for r in parts.ratio.tolist()], parts.terms.weight[0].tolist()
        ([1.0, 1.0, 1.0], [0.0, 0.5, 0.5])
    """
    choices = (("of", of, Of), ("against", against, Against), ("reduction", reduction, Reduction))
    for name, value, choice in choices:
        if value not in get_args(choice):
            raise ValueError(
                f"give {name} as one of {', '.join(get_args(choice))}; found {value!r}"
            )
    if of == "similarities" and against != "cross":
        raise ValueError(
            f"leave out against={against!r}, or use of='embeddings': of='similarities' compares "
            "the anchors with the other view only"
        )
    _check_arguments(loss_fn, of)
    given = Views(anchors.detach(), positives.detach())
    for name, rows in (("anchors", given.anchors), ("positives", given.positives)):
        if bool((zero := ~rows.any(dim=1)).any()):
            raise ValueError(
                f"leave out row {int(zero.int().argmax())} of the {name}: it is zero and has no "
                "direction"
            )
    pairs = choose_pairs(_prepared(given))
    views, n = pairs.views, len(anchors)
    scale = 1 / n if reduction == "mean" else 1.0
    residual = rank = None
    if of == "similarities":
        slope, compared = _derivative(loss_fn, pairs.similarity())
        slope = slope / scale
        gradient = tangent(slope @ views.positives, views.anchors)
        push, pull = slope.where(pairs.negative(), 0.0), -slope.diagonal()
        unique = torch.ones_like(pull, dtype=torch.bool)
    else:
        slope, compared = _derivative(loss_fn, views.anchors, views.positives)
        weights = _read(slope, compared, views)
        gradient = tangent(slope / scale, views.anchors)
        if weights is None:
            push, pull, rank, unique = _least_norm(gradient, pairs, against)
        else:
            own = torch.arange(n, device=slope.device)
            pull = -weights[own, own + views.offset] / scale
            unique = torch.ones_like(pull, dtype=torch.bool)
            first = len(views.positives) if against == "within" else 0
            negative = pairs.negative(against)
            push = weights[:, first : first + negative.shape[1]].where(negative, 0.0) / scale
        fitted = push @ pairs.columns(against) - pull[:, None] * views.own
        residual = gradient - tangent(fitted, views.anchors)
    size, normalised = normalised_mass(push, pull)
    divisor = size.where(size != 0, 1.0)
    terms = Terms(
        size, push / divisor[:, None], pull / divisor, against, scale=scale, residual=residual
    )
    cosine = views.anchors @ pairs.columns(against).T
    # far from 0, the pushes of a sigmoid look like those of a softmax
    is_known = bool(unique.all()) and not any(table.has_sigmoids for table in compared)
    temperature = _temperature(terms.weight, cosine) if is_known else None
    return Decomposition(terms, scale * gradient, normalised, unique, rank, temperature)


def _temperature(weight: Tensor, cosine: Tensor) -> float | None:
    """Return the temperature if the weights of each anchor are a softmax of its cosines."""
    eps, most = torch.finfo(weight.dtype).eps, weight.amax(dim=1, keepdim=True)
    noise = math.sqrt(eps)
    known = weight > noise * most
    if bool((weight < -noise).any()) or int(known.sum(dim=1).max()) < 3:
        return None
    count = known.sum(dim=1, keepdim=True).clamp_min(1)
    x, y = (
        v.where(known, 0.0) - (v.where(known, 0.0).sum(1, keepdim=True) / count) * known
        for v in (cosine, weight.clamp_min(1e-300).log())
    )
    slope = float((x * y).sum() / x.square().sum().clamp_min(1e-300))
    allowed = _ROUNDINGS * eps * (slope + 1 + (most / weight).where(known, 0.0))
    return 1 / slope if slope > 0 and bool(((y - slope * x).abs() <= allowed).all()) else None


def _check_arguments(loss_fn: Callable[..., Tensor], of: Of) -> None:
    """Refuse a loss that requires more or fewer arguments than it is called with."""
    try:
        parameters = inspect.signature(getattr(loss_fn, "forward", loss_fn)).parameters.values()
    except ValueError:  # written in C
        return
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return
    if any(p.name == "sentence_features" for p in parameters):
        raise InputError(
            "give a function of embeddings, such as lambda a, b: "
            "loss.compute_loss_from_embeddings([a, b], None): this loss takes tokenized texts"
        )
    required = [p for p in parameters if p.default is inspect.Parameter.empty]
    if named := [p.name for p in required if p.kind is inspect.Parameter.KEYWORD_ONLY]:
        raise ValueError(f"wrap loss_fn, so that it needs no keyword argument: {named[0]}")
    count = sum(p.kind in positional for p in required)
    wanted = 1 if of == "similarities" else 2
    if count != wanted:
        raise ValueError(
            "use of='similarities' for a loss of one similarity matrix, of='embeddings' for a loss "
            f"of anchors and positives, or wrap loss_fn: of={of!r} passes {wanted} "
            f"argument{'s'[: wanted - 1]}, but loss_fn requires {count}"
        )


def _prepared(views: Views) -> Views:
    """The rows on the unit sphere, in float32 at least."""
    if views.anchors.dtype != torch.float64:
        views = replace(views, anchors=views.anchors.float(), positives=views.positives.float())
    return views.unit()


def _read(slope: Tensor, compared: list[Compared], views: Views) -> Tensor | None:
    """Return the derivatives of which the gradient on the anchors, ``slope`` (n x d), consists.

    These are the derivatives of the loss by the cosines of the n anchors with all positives and
    then with all anchors, n x (m + n). They are None if the loss compares other vectors.
    """
    known, m = torch.cat([views.positives, views.anchors]), len(views.positives)
    noise = math.sqrt(torch.finfo(known.dtype).eps)
    weights = slope.new_zeros(len(slope), len(known))
    if bool(((known @ known.T).triu(1) > 1 - noise).any()):  # equal rows cannot be told apart
        return None
    for table in compared:
        by_cosine = _by_cosine(table, noise)
        places = [_places(rows.to(known), known, noise) for rows in (table.anchors, table.columns)]
        if by_cosine is None or any(bool((place < 0).any()) for place in places):
            return None
        # the anchors of the batch may be the rows of the table, its columns, or both
        by_cosine = by_cosine.to(known)
        for mine, others, part in (
            (places[0], places[1], by_cosine),
            (places[1], places[0], by_cosine.T),
        ):
            is_anchor = mine >= m
            own = mine[is_anchor, None] - m
            weights.index_put_((own, others.expand(len(own), -1)), part[is_anchor], accumulate=True)
    rest = torch.linalg.vector_norm(tangent(weights @ known - slope, views.anchors))
    return weights if bool(rest <= noise * torch.linalg.vector_norm(slope)) else None


def _by_cosine(table: Compared, noise: float) -> Tensor | None:
    """Return the derivative by each cosine; None if the scores are neither products nor cosines."""
    lengths = [torch.linalg.vector_norm(rows, dim=1) for rows in (table.anchors, table.columns)]
    for size in (lengths[0][:, None] * lengths[1], torch.ones_like(table.scores)):
        if bool(((table.scores / size - table.cosine)[table.mask].abs() <= noise).all()):
            return (table.gradient * size).where(table.mask, 0.0)
    return None


def _places(rows: Tensor, known: Tensor, noise: float) -> Tensor:
    """Return the index of each row among the known unit vectors; -1 for the direction of none."""
    cosine, place = (F.normalize(rows, dim=1) @ known.T).max(dim=1)
    return place.where(cosine > 1 - noise, -1)


def _derivative(
    loss_fn: Callable[..., Tensor], variable: Tensor, *constants: Tensor
) -> tuple[Tensor, list[Compared]]:
    """The gradient of the loss for its first argument, and the similarities in its graph."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        # not inference tensors; the graph keeps both sides of a product if both need a gradient
        leaf, *others = (x.detach().clone().requires_grad_() for x in (variable, *constants))
        # copies: a loss may mask its arguments in place
        value = loss_fn(leaf.clone(), *(x.clone() for x in others))
        if not isinstance(value, Tensor) or value.ndim:
            kind = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                "return the mean or the sum of the losses, and pass reduction='mean' or 'sum': "
                f"loss_fn must return a scalar tensor; found {kind}"
            )
        slope = reading = None
        if value.requires_grad:
            reading = GraphReading(value) if others and value.grad_fn is not None else None
            (slope,) = torch.autograd.grad(value, leaf, allow_unused=True)
    if slope is None:
        raise ValueError(
            "check that loss_fn neither detaches the anchors nor returns a constant: the loss does "
            "not depend on the anchors"
        )
    broken = (~slope.isfinite()).any(dim=1)
    if bool(broken.any()):
        raise ValueError(
            f"clamp the divisors in loss_fn: its gradient is not finite for {int(broken.sum())} of "
            f"{len(slope)} anchors, first for anchor {int(broken.int().argmax())}"
        )
    if reading is None:
        return slope, []
    reading.end()
    return slope, reading.compared


def _least_norm(gradient: Tensor, pairs: Pairs, against: Against) -> tuple[Tensor, ...]:
    """Return pushes (n x c), pulls, ranks, and whether the pushes are unique, for each anchor."""
    views = pairs.views
    columns, negative = pairs.columns(against), pairs.negative(against)
    push = torch.zeros_like(negative, dtype=gradient.dtype)
    pull = torch.zeros_like(gradient[:, 0])
    rank = torch.zeros_like(pull, dtype=torch.long)
    unique = torch.zeros_like(rank, dtype=torch.bool)
    for i, anchor in enumerate(views.anchors):
        vectors = torch.cat([columns[negative[i]], -views.own[i : i + 1]])
        u, s, vt = torch.linalg.svd(tangent(vectors, anchor).T, full_matrices=False)
        # tangent parts of unit vectors are known to eps, however short they are
        noise, size = rounding(gradient.dtype, max(vectors.shape)), s[0].clamp(min=1.0)
        keep = s > noise * size
        unique[i] = len(s) == len(vectors) and bool(s[-1] > math.sqrt(noise) * size)
        solution = vt[keep].T @ ((u[:, keep].T @ gradient[i]) / s[keep])
        push[i, negative[i]], pull[i], rank[i] = solution[:-1], solution[-1], keep.sum()
    return push, pull, rank, unique


def normalised_mass(push: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
    """Return GD (n values), and whether GD is the signed sum of the pushes (n booleans).

    Args:
        push: Product of GD and W, n x c.
        pull: Product of GD and the pull, n values.
    """
    mass, magnitude = push.sum(dim=1), push.abs().sum(dim=1)
    noise = math.sqrt(torch.finfo(push.dtype).eps)
    pushed = magnitude > noise * pull.abs()
    normalised = pushed & (mass.abs() > noise * magnitude)
    only_pull = (pull != 0).to(push.dtype)
    return mass.where(normalised, magnitude.where(pushed, only_pull)), normalised
