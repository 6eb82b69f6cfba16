"""Measures a batch from the pairs that its loss compared, and the gradient of each pair."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from isotrope.core.terms import Against, Terms
from isotrope.core.views import Views
from isotrope.diagnostics.observe import (
    angles,
    false_negative,
    measure_pairs,
    measure_unpaired,
    places_of_false_negatives,
)
from isotrope.kernels.eager import EagerPairs
from isotrope.measures.norms import mean_norm
from isotrope.paradigm.anatomy import hardest_share, summary
from isotrope.paradigm.compared import BALANCED, Compared, SoftmaxEvidence, stacked

_ENOUGH = 24  # pairs of one batch that suffice to find the temperature
_EQUAL = 0.05  # relative difference allowed between a measured GD and InfoNCE's
_ALIKE, _FAR = 0.1, 1.5  # relative deviation of equal GDs; mean GD that is far from 1
_TEACHER = 0.5  # share of the variation of pushes that no temperature explains: a teacher's scores
_ONE = 0.02  # twice the GD from which an anchor counts for the ratio
_COPY = 0.01  # a pushed row within this share of the pushed rows' mean 1 - cos is a copy
_MOST_ROWS = 256
_SAME = 1e-5  # 1 - cosine of a row with itself
_FOLLOWS = 0.95  # rank correlation
_INVERTED = -1.0  # deviations by which pulled pairs are farther apart than pushed ones
_LEAST_PAIRS = 8  # pairs on either side for measuring the gap between pulled and pushed pairs


@dataclass(frozen=True)
class SeenBatch:
    """The measurements of the compared pairs of a batch.

    Attributes:
        kind: ``softmax``, ``other``, ``pairs`` (each anchor has one candidate), ``targets`` (rows
            are only pulled to constants), ``scores`` (of a teacher) or ``nothing`` (no gradient).
        numbers: Measurements, by column of metrics.csv.
        evidence: Sums from which the temperature follows.
        factor: Gradient of the loss divided by InfoNCE's; 1 for any other loss, None if unknown.
        places: Places in the batch of some anchors, each with its likely false negative.
    """

    kind: str
    numbers: dict[str, float | None]
    evidence: SoftmaxEvidence
    factor: float | None = 1.0
    places: tuple[tuple[int, int], ...] = ()


class _ComparedPairs(EagerPairs):
    """The similarities and negatives of a table, as the pairs that an objective reads."""

    def __init__(self, table: Compared, own: Tensor, scores: Tensor | None = None) -> None:
        anchors, self._candidates = table.units
        super().__init__(Views(anchors, self._candidates[own]))
        self._scores = scores if table.vectors else table.scores
        pulled = table.pulled.scatter(1, own[:, None], True)
        self._pushed = table.mask & ~pulled

    def _similarity(self, against: Against) -> Tensor:
        return self._scores if self._scores is not None else self.views.anchors @ self._candidates.T

    def _negative(self, against: Against) -> Tensor:
        return self._pushed

    def _columns(self, against: Against) -> Tensor:
        return self._candidates


@torch.no_grad()
def measure_compared(
    tables: list[Compared],
    *,
    earlier: SoftmaxEvidence,
    temperature: float | None = None,
    factor: float = 1.0,
) -> SeenBatch:
    """Return the measurements of a batch, as :func:`isotrope.diagnostics.observe.measure` does.

    Args:
        tables: The similarities that the loss compared.
        earlier: Sums of earlier batches from which the temperature follows.
        temperature: Temperature of the loss, if it states one.
        factor: Known factor of the gradient, for example 1/k with k accumulated batches.
    """
    table = stacked(tables)
    evidence = SoftmaxEvidence.of(table)
    enough = evidence if evidence.pairs >= _ENOUGH else evidence + earlier
    tau = enough.temperature
    stated = None if table.scale is None else 1 / table.scale
    numbers = _geometry(tables)
    gradient = table.gradient * (table.rows / factor)
    pull = -torch.where(table.pulled, gradient, 0).sum(dim=1)
    push = torch.where(table.pushed, gradient, 0)
    live = (pull > 0) | push.any(dim=1)
    numbers |= _reached(table, gradient)
    if not bool(live.any()) and _alone(table, tables):
        return SeenBatch("nothing", numbers | _of_no_negatives(table), evidence)
    kind = _kind(table, push, live, known=(tau or stated) is not None)
    if kind in ("softmax", "nothing"):
        tau = tau or stated
    sure = enough.pairs >= _ENOUGH and not table.rounded
    if kind == "softmax" and enough.temperature is None and sure and enough.misfit > _TEACHER:
        return SeenBatch("scores", numbers, evidence)  # it fits a teacher's softmax
    if kind in ("pairs", "targets"):
        return SeenBatch(kind, numbers | _of_pairs(table, pull, push, live), evidence)
    own = torch.where(
        pull > 0,
        torch.where(table.pulled, gradient, torch.inf).argmin(dim=1),
        table.scores.masked_fill(~_others(table), -torch.inf).argmax(dim=1),
    )
    # as with a teacher, the pulled candidate or its pull does not follow from place and scores
    if (table.blocks and not _of_one_column(table, own, pull > 0)) or any(map(_taught, tables)):
        return SeenBatch("scores", numbers, evidence)
    pairs = _ComparedPairs(table, own)
    unit = tau if kind == "softmax" and tau is not None else temperature or tau or 1.0
    times: float | None = 1.0
    force = unit * push.sum(dim=1)
    if kind == "softmax" and tau is not None:
        force, times = _of_infonce(table, own, pairs.negative(), tau, force)
    some = push.sum(dim=1) > 0
    # W of InfoNCE sums to 1 / temperature
    weight = push / (unit * push.sum(dim=1, keepdim=True)).where(some[:, None], 1.0)
    pulled = (pull / (unit * push.sum(dim=1)).where(some, 1.0)).where(some, 0.0)
    terms = Terms(force, weight, pulled, scale=1 / table.rows)
    if table.vectors:
        measured = measure_pairs(pairs, terms, table.anchors)
        numbers = {**measured, **{k: v for k, v in numbers.items() if v is not None}}
        numbers |= _of_vectors(table, own, terms, pull > 0, mined=kind != "softmax")
    else:
        ahead = _lead(table.scores.gather(1, own[:, None]), table.scores[pairs.negative()])
        numbers |= {**summary(terms, pairs), "label_gap": ahead}
    if numbers.get("hardest_share") is None and tau is not None and bool(pairs.negative().any()):
        numbers["hardest_share"] = _sharpest(table, pairs.negative(), tau)
    active = some & (force >= _ONE / 2)
    ratio = (pull / push.sum(dim=1))[active]
    numbers["ratio"] = float(ratio.mean()) if len(ratio) else None
    if times is None:
        numbers |= {"dissipation": None, "dead": None}
    numbers["negatives"] = float(pairs.negative().sum(dim=1).double().mean())
    numbers["temperature"] = tau
    shown = bool(numbers.get("false_negatives")) and table.rows == len(table.anchors)
    places = places_of_false_negatives(pairs, len(tables[0].anchors), table.pushed) if shown else ()
    return SeenBatch(kind, numbers, evidence, times, places)


def _of_vectors(
    table: Compared, own: Tensor, terms: Terms, pulled: Tensor, *, mined: bool
) -> dict[str, float | None]:
    """Return the measurements that depend on which pairs were pulled and pushed."""
    numbers: dict[str, float | None] = {}
    some = (pairs := _ComparedPairs(table, own)).negative().any(dim=1)
    if mined and bool(some.any()):  # rows that are not pushed may be of the anchor's label
        numbers["false_negatives"] = float(
            false_negative(pairs, table.pushed)[some].double().mean()
        )
    numbers |= _of_labels(table, own, pulled, terms.mass > 0, mined=mined)
    numbers |= {} if table.both else _as_new(table, own)
    # texts of tokens are nearest by their scores, not by the means of their tokens
    by_scores = _ComparedPairs(table, own, table.scores)
    return numbers | {"hardest_share": hardest_share(terms, by_scores)}


def _kind(table: Compared, push: Tensor, live: Tensor, *, known: bool) -> str:
    """Return the kind of a loss; ``known``: whether its temperature is known."""
    if not bool(live.any()):
        return "pairs" if table.single else "nothing"
    if not bool(push.any()):
        return "pairs" if table.both else "targets"
    if table.single:
        return "pairs"
    return "softmax" if known and (table.balanced or table.rounded) else "other"


def _of_labels(
    table: Compared, own: Tensor, pulled: Tensor, pushed: Tensor, *, mined: bool
) -> dict[str, float | None]:
    """Return other measurements of the positives if an anchor has no positive of its own.

    Such a loss pulls rows of one label together. If a row is pulled to several others, the angles
    to these count equally. If the loss picked one of several, its angle is left out, because it is
    not typical. Rows of one label are no false negatives.
    """
    several = bool((table.pulled.sum(dim=1) > 1).any())
    chosen = not several and not table.blocks and len(own[pulled].unique()) < int(pulled.sum())
    numbers: dict[str, float | None] = {}
    if several:
        near = table.cosine.clamp(-1, 1).arccos().where(table.pulled, torch.inf)
        # the nearest of several may be another view of the anchor, which says nothing on the labels
        more = table.pulled.sum(dim=1) > 1
        angles = near.scatter(1, near.argmin(dim=1, keepdim=True), torch.inf)[more]
        angles = angles[angles < torch.inf]
        numbers["positive_mean"] = float(angles.mean())
        numbers["positive_std"] = float(angles.std(correction=0))
    if chosen:
        numbers |= {"positive_mean": None, "positive_std": None, "alignment": None}
    if mined and (several or chosen):
        numbers["label_gap"] = _by_labels(table)
    if several and mined:  # negatives that the loss picks are not typical
        numbers |= dict.fromkeys(("false_negatives", "negative_mean", "negative_std"))
    elif several:
        numbers["false_negatives"] = _copies_apart(table)
    elif chosen or bool((pushed & ~pulled).any()):
        numbers["false_negatives"] = None
    return numbers


def _as_new(table: Compared, own: Tensor) -> dict[str, float | None]:
    """Return the angles to the positives of other anchors, if candidates get no gradient.

    They may come from a queue, whose older embeddings are not comparable with new positives.
    """
    columns = table.columns[own]
    apart = ~torch.eye(len(own), dtype=torch.bool, device=own.device)
    scores = table.anchors @ columns.T
    pulled = -(~apart).to(scores)
    batch = replace(table, columns=columns, scores=scores, gradient=pulled, mask=apart)
    pairs = _ComparedPairs(batch, torch.arange(len(own), device=own.device))
    names = ("negative_mean", "negative_std", "false_negatives")
    return {name: angles(pairs)[name] for name in names} if bool(pairs.negative().any()) else {}


def _lead(near: Tensor, far: Tensor, *, least: int = 2) -> float | None:
    """Return how much larger the scores ``near`` are than ``far``, in standard deviations."""
    if min(near.numel(), far.numel()) < least:
        return None
    spread = max(float(side.std(correction=0)) for side in (near, far))
    return float(near.mean() - far.mean()) / spread if spread else None


def _by_labels(table: Compared) -> float | None:
    """Return how much nearer rows of one label are than others, in deviations; None if unknown.

    A loss that selects its pairs shows labels: rows that it pulls together have equal labels, and
    rows that it pushes apart have different ones. The labels of other pairs follow.
    """
    cosine = table.cosine
    itself = torch.eye(len(cosine), dtype=torch.bool, device=cosine.device)
    if cosine.shape != itself.shape or not bool((cosine[itself] > 1 - _SAME).all()):
        return None
    pulled, pushed = (((x | x.T) & ~itself).float() for x in (table.pulled, table.pushed))
    same = pulled + itself
    for _ in range(len(cosine).bit_length()):
        same = ((same @ same) > 0).float()
    apart = same @ pushed @ same > 0
    near, far = (same > 0) & ~itself, apart
    if bool((near & far).any()):
        return None
    angle = cosine.clamp(-1, 1).arccos()
    return _lead(-angle[near], -angle[far])


def _copies_apart(table: Compared) -> float | None:
    """Return the share of anchors that push a copy of a row that they pull, or of themselves."""
    cosine, among, copies = table.cosine, table.units[1] @ table.units[1].T, 0
    rows = [i for i in range(min(_MOST_ROWS, len(cosine))) if bool(table.pushed[i].any())]
    for i in rows:
        pushed, pulled = table.pushed[i], table.pulled[i]
        own = among[pulled][:, pushed].amax() if bool(pulled.any()) else cosine.new_tensor(-1)
        far = _COPY * (1 - cosine[i][pushed].mean())
        copies += bool(1 - torch.maximum(own, cosine[i][pushed].amax()) <= far)
    return copies / len(rows) if rows else None


def _sharpest(table: Compared, negative: Tensor, tau: float) -> float:
    """Return the hardest negative's mean share of the softmax, finished anchors included."""
    scores = (table.scores / tau).masked_fill(~negative, -torch.inf)
    return float(scores[negative.any(dim=1)].softmax(dim=1).amax(dim=1).mean())


def _alone(table: Compared, tables: list[Compared]) -> bool:
    """Whether a batch without a gradient has none because no anchor has a negative.

    A triplet beyond its margin has no gradient either, but it has a negative.
    """
    softmax_of_one = table.single and table.scale is not None
    return softmax_of_one or all(len(t.gradient) == 1 for t in tables)


def _of_no_negatives(table: Compared) -> dict[str, float | None]:
    numbers: dict[str, float | None] = {"negatives": 0.0, "embedding_gradient": 0.0}
    if table.vectors:
        cosine = torch.where(table.mask, table.cosine, -1).amax(dim=1).clamp(-1, 1)
        numbers["positive_mean"] = float(cosine.arccos().mean())
    return numbers


def _others(table: Compared) -> Tensor:
    """The candidates that are not pushed, n x m; an unpulled positive is among them."""
    rest = ~table.pushed & (table.scores > -torch.inf)
    some = rest.any(dim=1, keepdim=True) & table.pushed.any(dim=1, keepdim=True)
    return torch.where(some, rest & table.mask if table.blocks else rest, table.mask)


def _of_one_column(table: Compared, own: Tensor, pulled: Tensor) -> bool:
    """Whether each anchor's positive has the same place among its candidates."""
    place = own - table.mask.int().argmax(dim=1)
    return len(place[pulled].unique()) < 2


def _taught(table: Compared) -> bool:
    """Whether some anchor is pulled less than another although its pulled candidate leads by less.

    A loss with positives pulls less the more a positive leads. A loss that fits its scores to those
    of a teacher pulls every candidate whose score is too low, negatives included.
    """
    if not table.blocks or not table.balanced:
        return False
    pull, own = torch.where(table.mask, -table.gradient, -torch.inf).max(dim=1)
    others = table.scores.masked_fill(~table.mask, -torch.inf).scatter(1, own[:, None], -torch.inf)
    most = int(table.mask.sum(dim=1).max()) - 1
    leads = table.scores.gather(1, own[:, None]) - others.topk(most, dim=1).values
    size = torch.finfo(torch.bfloat16 if table.rounded else leads.dtype).eps
    near = size * table.scores.where(table.mask, 0).abs().max()
    behind = (leads[:, None] < leads - near).all(dim=2) & (pull[:, None] > 0)
    return bool((behind & (pull[:, None] < pull - BALANCED * pull.max())).any())


def _of_infonce(
    table: Compared, own: Tensor, negative: Tensor, tau: float, force: Tensor
) -> tuple[Tensor, float | None]:
    """Return GD and the factor of the loss: InfoNCE's GD if it fits, otherwise the measured GD.

    InfoNCE's GD follows from the similarities alone, without the unknown factor of the loss. If GD
    is equal for all anchors but far from 1, as in DCL, the factor is None, and GD is relative.
    """
    scores = table.scores.double() / tau
    other = scores.masked_fill(~negative, -torch.inf).logsumexp(dim=1)
    expected = torch.sigmoid(other - scores.gather(1, own[:, None])[:, 0])
    shown = force.double()
    multiple = float((shown * expected).sum() / expected.square().sum().clamp_min(1e-300))
    apart = float(torch.linalg.vector_norm(shown - multiple * expected))
    fits = apart < _EQUAL * float(torch.linalg.vector_norm(shown))
    if fits:
        # the exponent is a rounded cosine divided by tau
        near = _EQUAL + (torch.finfo(torch.bfloat16).eps / tau if table.rounded else 0.0)
        return expected.to(force), 1.0 if abs(multiple - 1) < near else multiple
    mean = float(force.mean())
    alike = float(force.std(correction=0)) < _ALIKE * mean
    return (force / mean, None) if alike and not 1 / _FAR < mean < _FAR else (force, 1.0)


def _geometry(tables: list[Compared]) -> dict[str, float | None]:
    """Return measures of the anchors; those of a table for the other direction are left out."""
    if not tables[0].vectors:
        return {}
    first = [t for i, t in enumerate(tables) if not i or not t.mirrors(tables[:i])]
    anchors = torch.cat([t.anchors for t in first])
    numbers = measure_unpaired(anchors)
    known = [t.lengths for t in first if t.lengths is not None]
    if known:
        numbers["norm"] = float(torch.cat(known).mean())
    return numbers


def _reached(table: Compared, gradient: Tensor) -> dict[str, float | None]:
    """Return the mean length of the gradient on an anchor, and its share that changes the norm."""
    if table.distance or not table.vectors:
        return {}
    whole = gradient @ table.columns
    unit = F.normalize(table.anchors, dim=1)
    along = (whole * unit).sum(dim=1, keepdim=True)
    if table.cosines:
        length = 1.0 if table.lengths is None else max(float(table.lengths.mean()), 1e-30)
        return {
            "embedding_gradient": float(mean_norm(whole - along * unit)) / length,
            "radial": 0.0,
        }
    size = float(torch.linalg.vector_norm(whole))
    share = float(torch.linalg.vector_norm(along)) / size if size else 0.0
    return {"embedding_gradient": float(mean_norm(whole)), "radial": share}


def _of_pairs(table: Compared, pull: Tensor, push: Tensor, live: Tensor) -> dict[str, float | None]:
    """Return the measurements of a loss that compares an anchor with at most one candidate."""
    numbers: dict[str, float | None] = {"negatives": 0.0}
    pushed = push.sum(dim=1) > 0
    if bool(live.any()):
        numbers["pulled"] = float((pull > 0)[live].double().mean()) if table.both else None
    angle = torch.where(table.mask, table.cosine.clamp(-1, 1), -2).amax(dim=1).clamp(-1, 1).arccos()
    near, far = angle[pull > 0], angle[pushed]
    if len(near) and not len(far):
        numbers |= {
            "positive_mean": float(near.mean()),
            "positive_std": float(near.std(correction=0)),
        }
    gap = _lead(-near, -far, least=_LEAST_PAIRS)
    if gap is not None and _of_two_labels(angle, pull, pull > 0):
        done = ~(pull > 0) & ~pushed & (angle >= far.max())  # beyond the margin
        numbers["label_gap"] = _lead(-near, -angle[pushed | done])
    elif gap is not None and gap < _INVERTED:  # with graded labels, only a clear inversion counts
        numbers["label_gap"] = gap
    return numbers


def _of_two_labels(angle: Tensor, pull: Tensor, pulled: Tensor) -> bool:
    """Whether the angle of a pair determines its pull, so that all labels are 0 or 1."""
    x, y = angle[pulled].double(), pull[pulled].double()
    x, y = x.argsort().argsort().double(), y / y.amax()
    if float(y.std(correction=0)) < _EQUAL:
        return True
    both = torch.stack([x, y.argsort().argsort().double()])
    return abs(float(torch.corrcoef(both)[0, 1])) > _FOLLOWS
