"""Measures embeddings by the labels that a loss shows: by the rows that it pulls and pushes."""

import torch
from torch import Tensor

from isotrope.core.rounding import exact
from isotrope.diagnostics.observe import NEAR
from isotrope.paradigm.compared import Compared

_COPY = 0.01  # a pushed row is a copy if its 1 - cos is below this share of the pushed rows' mean
_MOST_ROWS = 256  # anchors among which copies are counted
SAME = 1e-5  # 1 - cosine of a row with itself
_SLACK, _SLACK_OF_HALF = 1e-3, 0.1  # share of a pull that rounding may change
_INVERTED = -1.0  # label gap (in deviations) from which labels count as inverted
_ERROR = 0.02  # relative difference from a mean squared error; half precision rounds
_LEAST_PAIRS = 8  # pairs on either side for measuring the gap between pulled and pushed pairs
_ONE_LABEL = 1e-7  # variance of equal labels, which is due to rounding


def measure_labels(
    table: Compared, own: Tensor, pulled: Tensor, pushed: Tensor, *, mined: bool
) -> dict[str, float | None]:
    """Return measurements of the positives for a loss whose anchors have none of their own."""
    # Such a loss pulls rows of one label together; these are not false negatives. If it pulls a row
    # to several others, their angles count equally. A pair that it selects is not typical.
    several = bool((table.pulled.sum(dim=1) > 1).any())
    shared = len(own[pulled].unique()) < int(pulled.sum())
    chosen = shared and not several and not table.has_own_candidates
    # a loss with a margin may push an anchor and leave its near positive alone
    hidden = mined and not table.has_own_candidates and bool((pushed & ~pulled).any())
    numbers = _angles_of_several(table) if several else {}
    if chosen or hidden:
        unknown = ("positive_mean", "positive_std", "alignment", *["above_bound"] * hidden)
        numbers |= dict.fromkeys(unknown)
    if mined and (several or chosen or hidden):
        numbers["label_gap"] = _by_labels(table)
    if several and mined:  # negatives that the loss selects are not typical
        numbers |= dict.fromkeys(("false_negatives", "negative_mean", "negative_std"))
    elif several:
        numbers["false_negatives"] = _copies_apart(table)
    elif chosen or bool((pushed & ~pulled).any()):
        numbers["false_negatives"] = None
    return numbers


def _angles_of_several(table: Compared) -> dict[str, float | None]:
    """Return the angles between the rows of a label, for anchors that are pulled to several."""
    near = table.cosine.clamp(-1, 1).arccos().where(table.pulled, torch.inf)
    # the nearest of several may be another view of the anchor, and is therefore left out
    far = near.scatter(1, near.argmin(dim=1, keepdim=True), torch.inf)
    angles = far[(table.pulled.sum(dim=1) > 1)[:, None] & (far < torch.inf)]
    return {"positive_mean": float(angles.mean()), "positive_std": float(angles.std(correction=0))}


def _by_labels(table: Compared) -> float | None:
    """Return how much nearer equal labels are, in standard deviations; None if unknown."""
    # A loss that selects its pairs shows labels: rows that it pulls together have equal labels, and
    # rows that it pushes apart have different ones. The labels of other pairs follow. If they
    # contradict each other, but not with pull and push exchanged, the labels are inverted.
    cosine = table.cosine
    itself = torch.eye(len(cosine), dtype=torch.bool, device=cosine.device)
    if cosine.shape != itself.shape or not bool((cosine[itself] > 1 - SAME).all()):
        return None
    angle = cosine.clamp(-1, 1).arccos()
    pulled, pushed = ((x | x.T) & ~itself for x in (table.pulled, table.pushed))
    for sign, near, far in ((-1, pulled, pushed), (1, pushed, pulled)):
        same = linked(near | itself)
        apart = (same.float() @ far.float() @ same.float()) > 0
        if bool((same & apart).any()):
            continue
        rest = (~apart).float()
        if bool(((rest @ rest) > 0).equal(~apart)):
            same = ~apart  # all pairs of different labels are known
        same = same & ~itself
        gap = gap_in_deviations(sign * angle[same], sign * angle[apart])
        nearest = angle[pulled].amin() if bool(pulled.any()) else torch.inf
        hidden = bool((angle < nearest)[~(same | apart | itself)].any())
        # a loss with a margin skips near positives, so the pulled ones are the farthest
        return max(gap, _INVERTED) if hidden and gap is not None else gap
    return None


def _pushed_others(table: Compared) -> Tensor:
    """Return which rows an anchor pushes, n x m, except rows of its label (of a softmax)."""
    pulled, cosine = table.pulled, table.cosine
    if len(cosine) == cosine.shape[1] and bool((cosine.diagonal() > 1 - SAME).all()):
        pulled = (pulled | pulled.T).fill_diagonal_(True)
    return table.pushed & ~linked(pulled)


def _copies_apart(table: Compared) -> float | None:
    """Return the share of anchors that push a copy of themselves or of a row that they pull."""
    cosine, among, copies = table.cosine, table.units[1] @ table.units[1].T, 0
    others = _pushed_others(table)
    rows = [i for i in range(min(_MOST_ROWS, len(cosine))) if bool(others[i].any())]
    for i in rows:
        pushed, pulled = others[i], table.pulled[i]
        own = among[pulled][:, pushed].amax() if bool(pulled.any()) else cosine.new_tensor(-1)
        far = _COPY * (1 - cosine[i][pushed].mean())
        copies += bool(1 - torch.maximum(own, cosine[i][pushed].amax()) <= far)
    return copies / len(rows) if rows else None


def share_alike_twice(table: Compared, own: Tensor) -> float:
    """Return the share of anchors near another anchor, if the positives of both are near too."""
    # Two encoders that have not learnt the pairs yet show copies only in this way.
    some = own[:_MOST_ROWS]
    among = _pushed_others(table)[: len(some), some]
    both = torch.zeros_like(among, dtype=table.scores.dtype)
    for rows in (table.anchors[: len(some)], table.columns[some]):
        apart = torch.cdist(rows, rows).square()
        mean = torch.where(among, apart, 0).sum(dim=1) / among.sum(dim=1)
        both += apart / mean[:, None]
    return float(exact(((both <= 2 * NEAR) & among).any(dim=1)).mean())


def measure_single_pairs(
    table: Compared, pull: Tensor, push: Tensor, pool: list[Tensor]
) -> dict[str, float | None]:
    """Return the measurements of a loss that compares an anchor with at most one candidate.

    The pairs of a batch are added to ``pool``, because few pairs do not show how labels separate.
    Each tensor of the pool has the angles, the pulls and whether they are pushed, 3 x n.
    """
    left = (table.mask & ~table.pulled & ~table.pushed).sum(dim=1)  # for example, beyond a margin
    numbers: dict[str, float | None] = {"negatives": float(exact(left).mean())}
    pushed, live = push.sum(dim=1) > 0, (pull > 0) | push.any(dim=1)
    if bool(live.any()):
        numbers["pulled"] = float(exact((pull > 0)[live]).mean()) if table.is_two_sided else None
    angle = torch.where(table.mask, table.cosine.clamp(-1, 1), -2).amax(dim=1).clamp(-1, 1).arccos()
    near, far = angle[pull > 0], angle[pushed]
    if len(near) and not len(far) and table.has_vectors:
        mean, spread = float(near.mean()), float(near.std(correction=0))
        numbers |= {"positive_mean": mean, "positive_std": spread}
    batch = torch.stack([angle, pull, pushed.to(pull)])
    # the first batch, which may be kept as graded, and the newest; each may have only one pair
    pool[:] = [*pool[:1], *pool[1:][2 - _LEAST_PAIRS :], batch]
    angle, pull, pushed = torch.cat(pool, dim=1)
    pushed = pushed > 0
    near, far = angle[pull > 0], angle[pushed]
    gap = gap_in_deviations(-near, -far, least=_LEAST_PAIRS)
    if gap is None:
        return numbers
    slack = _SLACK_OF_HALF if table.is_rounded else _SLACK
    pool[:] = [pairs for pairs in pool if _is_graded(pairs, slack)][:1]  # labels stay graded
    if pool:
        numbers["graded_gap"] = gap
    else:
        done = ~(pull > 0) & ~pushed & (angle >= far.max())  # beyond the margin
        numbers["label_gap"] = gap_in_deviations(-near, -angle[pushed | done])
    return numbers


def measure_margin(tables: list[Compared]) -> dict[str, float | None]:
    """Return as ``dead`` the share of pulled pairs that are nearer than all pairs beyond a margin.

    The share is 0 while the loss pushes pairs apart, and unknown if it leaves no pair alone.
    """
    near = torch.cat([t.cosine[t.pulled] for t in tables])
    far = torch.cat([t.cosine[t.mask & (t.gradient == 0)] for t in tables])
    if not all(t.has_vectors for t in tables) or not len(near) or not len(far):
        return {}
    pushed = any(bool(t.pushed.any()) for t in tables)
    return {"dead": 0.0 if pushed else float(exact(near > far.max()).mean())}


def measure_scored(tables: list[Compared], loss: float, factor: float) -> dict[str, float | None]:
    """Return how well the cosines fit the labels, if the loss is their mean squared error.

    The gradient of this loss shows the labels. A gradient is divided by ``factor``.
    """
    if len(tables) != 1 or not tables[0].has_single_pairs:
        return {}
    table, size = tables[0], float(tables[0].rows)
    cosine, gradient = table.scores[table.mask], table.gradient[table.mask]
    error = size / 2 * gradient / factor  # cosine - label, times the factor of the loss
    times = float(error.square().mean()) / loss if loss else 0.0
    known = next((x for x in (1.0, 0.5, size) if abs(times / x - 1) < _ERROR), None)
    if known is None or len(cosine) < _LEAST_PAIRS:
        return {}
    label = cosine - error / known
    high, angle = label > label.mean(), cosine.clamp(-1, 1).arccos()
    gap = gap_in_deviations(-angle[high], -angle[~high])
    variance = float(label.var())
    if variance < _ONE_LABEL or gap is None:
        return {"label_gap": None, "graded_gap": None}
    unexplained = float((error / known).square().mean()) / variance
    within = float(label.abs().median()) <= 1  # cosines cannot follow other labels
    return {"label_gap": gap if within else None, "graded_gap": None, "unexplained": unexplained}


def _is_graded(pairs: Tensor, slack: float) -> bool:
    """Whether a pair is pulled less than a nearer one, which labels of 0 and 1 exclude."""
    angle, pull, _ = pairs[:, pairs[1] > 0]
    pull = pull[angle.argsort()]
    least = (1 - slack) * pull.cummax(dim=0).values - 0.1 * slack * pairs[1].amax()
    return bool((pull < least).any())


def gap_in_deviations(near: Tensor, far: Tensor, *, least: int = 2) -> float | None:
    """Return how much larger the mean of ``near`` is, in units of the larger deviation."""
    if min(near.numel(), far.numel()) < least:
        return None
    spread = max(float(side.std(correction=0)) for side in (near, far))
    return float(near.mean() - far.mean()) / spread if spread else None


def linked(pairs: Tensor) -> Tensor:
    """Return whether a chain of pairs connects each row and column, n x m."""
    if int(pairs.sum(dim=1).max()) < 2:
        return pairs
    near = pairs.float()
    far = ((near @ near.T @ near) > 0).float()
    return far > 0 if far.equal(near) else linked(far > 0)
