"""Measures a batch from its objective, or from the gradient of each pair that its loss compared."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from isotrope.core.rounding import exact
from isotrope.core.terms import Against, Terms
from isotrope.core.views import Views
from isotrope.diagnostics import observe, seen_labels
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.readings import objective_temperature
from isotrope.kernels.eager import EagerPairs
from isotrope.measures.norms import mean_norm
from isotrope.paradigm.anatomy import DEAD, first_rows, hardest_share, summary
from isotrope.paradigm.compared import BALANCED, Compared, SoftmaxEvidence, stacked
from isotrope.paradigm.objective import Objective

_ENOUGH = 24  # pairs of one batch that suffice to find the temperature
_EQUAL = 0.05  # relative difference allowed between a measured GD and InfoNCE's
_ROUGHLY = 0.2  # the same difference if anchors have weights, or positives a margin
_EXACT = 0.01  # share of the pushes' variation that a temperature may leave unexplained
_TEACHER = 0.5  # the same share; above it, the targets of a softmax are a teacher's scores
_FEW, _ALIKE = 8, 0.75  # anchors, correlation and power that show a power of InfoNCE's GD
_LEAST_FORCE = 1e-6  # GD below which a softmax has rounded the pull of an anchor

Kind = Literal["softmax", "reversed", "pairs", "targets", "scores", "nothing", "other"]


@dataclass(frozen=True)
class SeenBatch:
    """The measurements of the compared pairs of a batch.

    Attributes:
        kind: Kind of the loss. ``softmax``: a softmax of similarities; ``reversed``: a softmax with
            the opposite sign; ``pairs``: a loss of single pairs; ``targets``: rows are only pulled,
            towards constants; ``scores``: a loss that imitates a teacher's scores; ``nothing``: no
            gradient; ``other``: any other loss.
        numbers: A dict from columns of metrics.csv to measurements.
        evidence: Sums over pairs, from which the temperature of a softmax is computed.
        factor: Gradient of a softmax loss, divided by the gradient of InfoNCE; None if it is
            unknown, and 1 for other losses.
        over_guess: InfoNCE of the pairs of a softmax, divided by that of guessing; 0 if unknown.
        places: Pairs (row of an anchor in the batch, row of its false negative).
    """

    kind: Kind
    numbers: dict[str, float | None]
    evidence: SoftmaxEvidence
    factor: float | None = 1.0
    over_guess: float = 0.0
    places: tuple[tuple[int, int], ...] = ()


def measure_known(objective: Objective, views: Views) -> dict[str, float | None] | None:
    """Return the measurements of an objective of isotrope; None if an embedding is not finite."""
    views = views.detached()
    parts = views.anchors, views.positives, views.negatives
    if not all(part is None or bool(part.isfinite().all()) for part in parts):
        return None
    with torch.autocast(views.anchors.device.type, enabled=False):
        numbers = observe.measure(objective, views)
        tau = objective_temperature(RunEvidence(objective=objective))
        if numbers["hardest_share"] is None and tau is not None and objective.has_terms:
            pairs = objective.compare(first_rows(views))  # all anchors are done
            share = hardest_share(objective.components(pairs), pairs, least=0.0)
            numbers["hardest_share"] = share
    radial = 0.0 if objective.space == "sphere" else None
    limit = min(len(views.anchors) - 1, views.anchors.shape[1])
    return {**numbers, "temperature": tau, "radial": radial, "rank_limit": limit}


class _ComparedPairs(EagerPairs):
    """The similarities (cosines, or else scores) and negatives of a table."""

    def __init__(self, table: Compared, own: Tensor, *, by_scores: bool = False) -> None:
        anchors, self._candidates = table.units
        super().__init__(Views(anchors, self._candidates[own]))
        self.table, self.positive_places = table, own
        self._scores = table.scores if by_scores or not table.has_vectors else None
        pulled = table.pulled.scatter(1, own[:, None], True)
        self._pushed = table.mask & ~pulled

    def similarity(self, against: Against = "cross") -> Tensor:
        return self._scores if self._scores is not None else self.views.anchors @ self._candidates.T

    def negative(self, against: Against = "cross") -> Tensor:
        return self._pushed

    def columns(self, against: Against = "cross") -> Tensor:
        return self._candidates


@dataclass(frozen=True)
class _Forces:
    """The forces of a loss on the n anchors of a table, each for the anchor's own loss.

    Attributes:
        gradient: Derivative with respect to the score of each candidate, n x m.
        pull: Pull on each anchor by all candidates together, n.
        push: Push of each candidate, n x m; 0 for candidates that are not pushed.
    """

    gradient: Tensor
    pull: Tensor
    push: Tensor

    @classmethod
    def of(cls, table: Compared, factor: float) -> "_Forces":
        """Return the forces of a loss whose gradient has a known ``factor``."""
        gradient = table.gradient * (table.rows / factor)
        pull = -torch.where(table.pulled, gradient, 0).sum(dim=1)
        return cls(gradient, pull, torch.where(table.pushed, gradient, 0))

    @property
    def live(self) -> Tensor:
        """Whether each anchor is pulled or pushed, n."""
        return (self.pull > 0) | self.push.any(dim=1)


@torch.no_grad()
def measure_compared(
    tables: list[Compared],
    pool: list[Tensor],
    *,
    earlier: SoftmaxEvidence,
    temperature: float | None = None,
    factor: float = 1.0,
) -> SeenBatch:
    """Return the measurements of the pairs that the loss compared in one batch.

    Args:
        tables: Tables of similarities, with the loss's gradient for each similarity.
        pool: Pairs of earlier batches (see ``measure_single_pairs``); the list is changed.
        earlier: Sums (``SeenBatch.evidence``) of earlier batches.
        temperature: Temperature that the user gave; used only if the gradient shows none.
        factor: Known factor in the gradient, for example 1/k if k batches are accumulated.
    """
    table = stacked(tables)
    forces, evidence = _Forces.of(table, factor), SoftmaxEvidence.of(table)
    sums = evidence if evidence.pairs >= _ENOUGH else evidence + earlier
    stated = None if table.scale is None else 1 / table.scale
    sigmoid, own = _has_no_softmax(table), _own_candidates(table, forces)
    fitted = None if sigmoid else _fitted_temperature(sums, stated)
    of_softmax = None if sigmoid else fitted or stated
    kind = _kind_of_batch(tables, table, forces, own, sums, of_softmax)
    numbers = _geometry(tables) | _gradient_on_anchors(table, forces)
    seen = SeenBatch(kind, numbers, evidence)
    if kind in ("scores", "reversed"):
        return seen
    if kind in ("pairs", "targets"):
        of_pairs = seen_labels.measure_single_pairs(table, forces.pull, forces.push, pool)
        return replace(seen, numbers=numbers | of_pairs)
    if kind == "nothing" and _has_no_negatives(tables, table):
        return replace(seen, numbers=numbers | _without_negatives(table))
    tau = fitted if sums.misfit <= _EXACT else None  # other pushes may happen to rise with scores
    if kind != "other":
        tau = of_softmax
    unit = tau if kind == "softmax" else temperature or tau or (stated if sigmoid else None)
    return _measure_batch(seen, tables, _ComparedPairs(table, own), forces, tau, unit or 1.0)


def _has_no_softmax(table: Compared) -> bool:
    """Whether a loss is of sigmoids; far from 0, their pushes look like those of a softmax."""
    return table.has_sigmoids and not (table.is_balanced and bool(table.gradient.any()))


def _fitted_temperature(sums: SoftmaxEvidence, stated: float | None) -> float | None:
    """Return the temperature that the pushes show: the stated one if only rounding differs."""
    fitted = sums.temperature
    return stated if fitted and stated and abs(fitted / stated - 1) < _EQUAL else fitted


def _kind_of_batch(
    tables: list[Compared],
    table: Compared,
    forces: _Forces,
    own: Tensor,
    sums: SoftmaxEvidence,
    tau: float | None,
) -> Kind:
    """Return the kind of a loss; ``tau`` is its temperature if it is a softmax."""
    is_live = bool(forces.live.any())
    # nothing: the positive is the only candidate of a softmax
    if not is_live and _has_no_negatives(tables, table):
        return "nothing"
    # scores: the softmax itself shows the soft targets of a teacher or mixture
    if any(t.has_soft_targets for t in tables):
        return "scores"
    if _is_reversed(table):
        return "reversed"
    # pairs, or targets if the candidates are constants: anchors are only pulled
    if is_live and not bool(forces.push.any()):
        return "pairs" if table.is_two_sided else "targets"
    # pairs: an anchor has at most one candidate, which may be pushed
    if table.has_single_pairs:
        return "pairs"
    is_softmax = is_live and tau is not None and _balances(table, forces, tau)
    if is_softmax and _is_unexplained(table, sums):
        return "scores"
    if _pulls_several_places(table, forces, own) or any(_is_taught(t) for t in tables):
        return "scores"
    if is_softmax:
        return "softmax"
    # nothing: all negatives are beyond a margin, or the loss is rounded to 0
    return "other" if is_live else "nothing"


def _balances(table: Compared, forces: _Forces, tau: float) -> bool:
    """Whether pull and push balance, as in a softmax, except for rounding."""
    excess = tau * float(forces.gradient.sum(dim=1).abs().max())
    return table.is_balanced or table.is_rounded or excess < _LEAST_FORCE


def _is_unexplained(table: Compared, sums: SoftmaxEvidence) -> bool:
    """Whether no temperature explains the pushes of a softmax, although there are enough."""
    is_misfit = sums.misfit > _TEACHER and not table.is_rounded
    return sums.pairs >= _ENOUGH and is_misfit and sums.temperature is None


def _pulls_several_places(table: Compared, forces: _Forces, own: Tensor) -> bool:
    """Whether neither place nor similarity determines which of its own candidates is pulled."""
    places = (own - table.mask.int().argmax(dim=1))[forces.pull > 0]
    return table.has_own_candidates and len(places.unique()) > 1


def _is_reversed(table: Compared) -> bool:
    """Whether anchors push at most one candidate, and pull the others as a softmax pushes them."""
    opposite = replace(table, gradient=-table.gradient)
    tau = SoftmaxEvidence.of(opposite).temperature
    most = int((table.mask & (table.gradient > 0)).sum(dim=1).max())
    # towards a teacher of another temperature, the candidates below the first are pulled, too
    if most != 1 or not tau or abs(tau * (table.scale or 1 / tau) - 1) >= 2 * _EQUAL:
        return False
    # the only negative beside several positives is pushed more, the nearer it is
    push, own = torch.where(table.mask, exact(table.gradient), 0).max(dim=1)
    lead = _leads(_ComparedPairs(opposite, own), tau)
    (_, rise), (_, spread) = torch.stack([push, lead]).cov(correction=0)
    return bool(rise <= _EXACT * push.mean() * spread.sqrt())


def _has_no_negatives(tables: list[Compared], table: Compared) -> bool:
    """Whether each anchor of a softmax has only its positive.

    A triplet beyond its margin has no gradient either, but it has a negative.
    """
    is_alone = table.has_single_pairs and table.scale is not None
    return is_alone or all(len(t.gradient) == 1 for t in tables)


def _measure_batch(
    seen: SeenBatch,
    tables: list[Compared],
    pairs: _ComparedPairs,
    forces: _Forces,
    tau: float | None,
    unit: float,
) -> SeenBatch:
    """Add the measurements of positives and negatives; ``unit`` replaces an unknown ``tau``."""
    table, is_softmax = pairs.table, seen.kind == "softmax"
    terms, factor = _components(pairs, forces, unit, by_temperature=unit == tau)
    if table.has_vectors:
        pulled = forces.pull > 0
        numbers = _measure_vectors(tables, pairs, terms, pulled, selects=not is_softmax)
    else:
        positive = table.scores.gather(1, pairs.positive_places[:, None])
        lead = seen_labels.gap_in_deviations(positive, table.scores[pairs.negative()])
        numbers = {**summary(terms, pairs), "label_gap": lead}
    # measured on unnormalised anchors, each of them once, and with the whole gradient
    numbers |= {name: value for name, value in seen.numbers.items() if value is not None}
    if numbers.get("hardest_share") is None and tau is not None:
        numbers["hardest_share"] = _hardest_in_softmax(pairs, tau)
    numbers |= _corrections(pairs, forces, terms, unit, is_softmax=is_softmax)
    if factor is None:
        numbers |= {"dissipation": None, "dead": _dead_by_similarities(pairs, forces, unit)}
    numbers["temperature"] = tau
    places: tuple[tuple[int, int], ...] = ()
    if numbers.get("false_negatives") and table.rows == len(table.anchors):  # not of a sample
        places = observe.places_of_false_negatives(pairs, len(tables[0].anchors), table.pushed)
    over = 0.0
    if is_softmax and (count := numbers["negatives"]):
        over = float(F.softplus(-_leads(pairs, unit)).mean()) / math.log1p(count)
    return replace(seen, numbers=numbers, factor=factor, over_guess=over, places=places)


def _components(
    pairs: _ComparedPairs, forces: _Forces, unit: float, *, by_temperature: bool
) -> tuple[Terms, float | None]:
    """Return the components of the gradient, and the factor of the loss (``SeenBatch.factor``).

    ``by_temperature`` says whether ``unit`` is the temperature that the weights show.
    """
    push = forces.push.sum(dim=1)
    factor: float | None = 1.0
    dissipation = unit * push
    if by_temperature:
        dissipation, factor = _of_infonce(pairs, dissipation, unit)
    each = (unit * push).where(push > 0, 1.0)  # as in InfoNCE, W sums to 1 / unit
    pull = (forces.pull / each).where(push > 0, 0.0)
    weight = forces.push / each[:, None]
    return Terms(dissipation, weight, pull, scale=1 / pairs.table.rows), factor


def _hardest_in_softmax(pairs: _ComparedPairs, tau: float) -> float | None:
    """Return the hardest negative's share of a softmax over the negatives, without a gradient."""
    negative = pairs.negative()
    opposed = negative.any(dim=1)
    if not bool(opposed.any()):
        return None
    scores = (pairs.table.scores / tau).masked_fill(~negative, -torch.inf)[opposed]
    return float(scores.softmax(dim=1).amax(dim=1).mean())


def _corrections(
    pairs: _ComparedPairs, forces: _Forces, terms: Terms, unit: float, *, is_softmax: bool
) -> dict[str, float | None]:
    """Return the measurements for which the forces are more exact than the components."""
    negative, push = pairs.negative(), forces.push.sum(dim=1)
    ratio = (forces.pull / push)[(push > 0) & (terms.dissipation >= DEAD)]
    numbers: dict[str, float | None] = {
        "ratio": float(ratio.mean()) if len(ratio) else None,
        "negatives": float(exact(negative.sum(dim=1)).mean()),
    }
    opposed = negative.any(dim=1)
    if not is_softmax and bool(opposed.any()):  # an anchor with a full pull is not dead
        still = unit * push.maximum(forces.pull) < DEAD
        numbers["dead"] = float(exact(still[opposed]).mean())
    return numbers


def _own_candidates(table: Compared, forces: _Forces) -> Tensor:
    """Return the column of each anchor's positive, n: the most pulled, else the nearest."""
    most = torch.where(table.pulled, forces.gradient, torch.inf).argmin(dim=1)
    # an unpulled positive is among the candidates that are not pushed
    rest = ~table.pushed & (table.scores > -torch.inf)
    some = rest.any(dim=1, keepdim=True) & table.pushed.any(dim=1, keepdim=True)
    others = torch.where(some, rest & table.mask if table.has_own_candidates else rest, table.mask)
    near = table.scores.masked_fill(~others, -torch.inf).argmax(dim=1)
    return torch.where(forces.pull > 0, most, near)


def _measure_vectors(
    tables: list[Compared], pairs: _ComparedPairs, terms: Terms, pulled: Tensor, *, selects: bool
) -> dict[str, float | None]:
    """Return the measurements of the embeddings.

    ``pulled`` says which anchors are pulled, and ``selects`` whether the loss may leave pairs out,
    unlike a softmax.
    """
    table, own, negative = pairs.table, pairs.positive_places, pairs.negative()
    numbers = observe.measure_pairs(pairs, terms, table.anchors)
    # if texts are compared token by token, the score shows the nearest, not the mean of the tokens
    by_scores = _ComparedPairs(table, own, by_scores=True)
    numbers["hardest_share"] = hardest_share(terms, by_scores)
    opposed = negative.any(dim=1)
    if selects and bool(opposed.any()):  # rows that are not pushed may have the anchor's label
        copied = observe.false_negative(pairs, table.pushed)[opposed]
        numbers["false_negatives"] = float(exact(copied).mean())
    labels = seen_labels.measure_labels(table, own, pulled, terms.mass > 0, mined=selects)
    numbers |= labels
    if not selects:
        numbers |= _with_passed_over(table, own, negative)
    if not table.is_two_sided:
        others = _among_positives(table, own, [len(t.anchors) for t in tables])
        if selects or "false_negatives" in labels:  # anchors of one label are no false negatives
            others.pop("false_negatives", None)
        numbers |= others
    copies = numbers.get("false_negatives")
    if copies is not None and not selects and table.has_even_norms:
        numbers["false_negatives"] = max(copies, seen_labels.share_alike_twice(table, own))
    return numbers


def _with_passed_over(table: Compared, own: Tensor, negative: Tensor) -> dict[str, float | None]:
    """Return the angles of negatives, and of rows left out because nearer than the positive."""
    # Any positive is nearer than the negatives that such a filter of false negatives leaves.
    near = table.scores > table.scores.gather(1, own[:, None])
    left = near & ~table.mask & (table.scores != 0)  # tables side by side have scores of 0
    left &= table.cosine < 1 - seen_labels.SAME
    if not bool(left.any()):
        return {}
    angle = table.cosine.clamp(-1, 1).arccos()[negative | left]
    return {"negative_mean": float(angle.mean()), "negative_std": float(angle.std(correction=0))}


def _among_positives(table: Compared, own: Tensor, sizes: list[int]) -> dict[str, float | None]:
    """Return measurements with the positives of other anchors of a table as the negatives."""
    # Candidates without a gradient may be from a queue, whose older embeddings are not comparable.
    columns = table.columns[own]
    of = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).to(own.device)
    alike = torch.eye(len(own), dtype=torch.bool, device=own.device)
    apart = (of[:, None] == of) & ~(alike | seen_labels.linked(table.pulled)[:, own])
    scores = table.anchors @ columns.T
    pulled = -alike.to(scores)
    batch = replace(table, columns=columns, scores=scores, gradient=pulled, mask=apart)
    pairs = _ComparedPairs(batch, torch.arange(len(own), device=own.device))
    if not bool(pairs.negative().any()):
        return {}
    measured = observe.angles(pairs)
    return {x: measured[x] for x in ("negative_mean", "negative_std", "false_negatives")}


def _without_negatives(table: Compared) -> dict[str, float | None]:
    """Return the measurements of anchors that are alone with their positives."""
    numbers: dict[str, float | None] = {"negatives": 0.0, "embedding_gradient": 0.0}
    if table.has_vectors:
        cosine = torch.where(table.mask, table.cosine, -1).amax(dim=1).clamp(-1, 1)
        numbers["positive_mean"] = float(cosine.arccos().mean())
    return numbers


def _is_taught(table: Compared) -> bool:
    """Whether some anchor is pulled less than another although its pulled candidate leads by less.

    A loss with positives pulls less the more a positive leads. A loss that fits its scores to those
    of a teacher pulls every candidate whose score is too low, negatives included.
    """
    if not table.has_own_candidates or not table.is_balanced:
        return False
    pull, own = torch.where(table.mask, -table.gradient, -torch.inf).max(dim=1)
    others = table.scores.masked_fill(~table.mask, -torch.inf).scatter(1, own[:, None], -torch.inf)
    most = int(table.mask.sum(dim=1).max()) - 1
    leads = table.scores.gather(1, own[:, None]) - others.topk(most, dim=1).values
    size = torch.finfo(torch.bfloat16 if table.is_rounded else leads.dtype).eps
    near = size * table.scores.where(table.mask, 0).abs().max()
    behind = (leads[:, None] < leads - near).all(dim=2) & (pull[:, None] > 0)
    return bool((behind & (pull[:, None] < pull - BALANCED * pull.max())).any())


def _of_infonce(pairs: _ComparedPairs, measured: Tensor, tau: float) -> tuple[Tensor, float | None]:
    """Return GD and the factor of the loss: InfoNCE's GD if it fits, otherwise the measured GD."""
    # InfoNCE's GD follows from the similarities alone, without the unknown factor of the loss. The
    # temperature of the weights need not be in the size of the gradient. If GD fits neither InfoNCE
    # nor a softmax whose positive lacks a margin (or is left out, as in DCL), the factor is None,
    # and GD is relative.
    table, lead = pairs.table, _leads(pairs, tau)
    expected, shown = torch.sigmoid(-lead), exact(measured)
    multiple = float((shown * expected).sum() / expected.square().sum().clamp_min(1e-300))
    # the exponent is a rounded cosine divided by tau
    near = _EQUAL + (torch.finfo(torch.bfloat16).eps / tau if table.is_rounded else 0.0)
    is_one, misfit = abs(multiple - 1) < near, torch.dist(multiple * expected, shown) / shown.norm()
    if misfit < _EQUAL:
        return expected.to(measured), 1.0 if is_one else multiple
    margin = (torch.logit(shown, 1e-6) + lead).median().clamp_min(0)
    with_margin = torch.dist(torch.sigmoid(margin - lead), shown) / shown.norm()
    if with_margin < _ROUGHLY or (is_one and misfit < _ROUGHLY):
        return measured, 1.0
    return measured / measured.max().clamp_min(1e-30), None


def _dead_by_similarities(pairs: _ComparedPairs, forces: _Forces, tau: float) -> float | None:
    """Return the share of anchors with a GD near 0; None if GD is not a power of InfoNCE's."""
    expected = F.logsigmoid(-_leads(pairs, tau))
    push = exact(forces.push.sum(dim=1)).clamp_min(1e-30).log()
    (xx, xy), (_, yy) = torch.stack([expected, push]).cov(correction=0).tolist()
    # the power is about 1 if anchors have weights, and larger in a focal loss
    alike = len(push) >= _FEW and xy > _ALIKE * max(xx, math.sqrt(xx * yy))
    return float(exact(xy / xx * expected < math.log(DEAD)).mean()) if alike else None


def _leads(pairs: _ComparedPairs, tau: float) -> Tensor:
    """Return how far the positive leads the log-sum-exp of the negatives, n; InfoNCE's exponent."""
    scores = exact(pairs.table.scores) / tau
    other = scores.masked_fill(~pairs.negative(), -torch.inf).logsumexp(dim=1)
    return scores.gather(1, pairs.positive_places[:, None])[:, 0] - other


def _geometry(tables: list[Compared]) -> dict[str, float | None]:
    """Return measures of the anchors; skip tables of the same pairs in the other direction."""
    if not tables[0].has_vectors:
        return {}
    first = [t for i, t in enumerate(tables) if not i or not t.mirrors(tables[:i])]
    anchors = torch.cat([t.anchors for t in first])
    numbers = observe.measure_unpaired(anchors)
    numbers["rank_limit"] = min(len(anchors) - 1, anchors.shape[1])
    known = [t.lengths for t in first if t.lengths is not None]
    if known:
        numbers["norm"] = float(torch.cat(known).mean())
    return numbers


def _gradient_on_anchors(table: Compared, forces: _Forces) -> dict[str, float | None]:
    """Return the mean length of the gradient on an anchor, and its share that changes the norm."""
    if table.has_distances or not table.has_vectors:
        return {}
    whole = forces.gradient @ table.columns
    unit = F.normalize(table.anchors, dim=1)
    along = (whole * unit).sum(dim=1, keepdim=True)
    if table.has_even_norms:
        length = 1.0 if table.lengths is None else max(float(table.lengths.mean()), 1e-30)
        turning = float(mean_norm(whole - along * unit)) / length
        return {"embedding_gradient": turning, "radial": 0.0}
    size = float(torch.linalg.vector_norm(whole))
    share = float(torch.linalg.vector_norm(along)) / size if size else 0.0
    return {"embedding_gradient": float(mean_norm(whole)), "radial": share}
