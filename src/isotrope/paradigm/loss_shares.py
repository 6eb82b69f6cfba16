"""Computes the share of a batch's loss that belongs to some anchors, or to one process of several.

The loss of an objective with ``coupling="none"`` is a sum over anchors. Each anchor needs the whole
other view but no other anchor (InfoNCE, triplets, and their means of both directions).
"""

from dataclasses import replace

import torch
from torch import Tensor

from isotrope.core.autograd import marked
from isotrope.core.distributed import GlobalBatch, all_reduce_sum, world_size
from isotrope.core.errors import WrongCoupling
from isotrope.core.rounding import same
from isotrope.core.views import Views
from isotrope.paradigm.forms import OneWay
from isotrope.paradigm.objective import Objective

_FEW = 8  # rows of the batch on which a declaration is tested
_separable: set[tuple[object, ...]] = set()
"""Objectives and settings whose shares were verified to add up in this process."""


def rows_loss(objective: Objective, views: Views, rows: slice, *, backend: str = "auto") -> Tensor:
    """Return the part of ``objective.loss(views)`` that is the loss of some anchors.

    If both views serve as anchors, the same rows are taken from each view.

    Args:
        objective: Objective with ``coupling="none"``. The results of all slices add up to its loss.
        views: Embeddings of the batch, of any norm, with one positive for every anchor.
        rows: Slice of consecutive anchors.
        backend: Name of a backend, see ``objective.loss``. Here ``"auto"`` never takes ``"eager"``,
            which cannot notice that ``coupling`` is wrong.
    """
    one_way = OneWay(objective=objective) if objective.two_directions else objective
    directions = [views, views.swapped()] if objective.two_directions else [views]
    blocks = [replace(d, anchors=d.anchors[rows], offset=rows.start) for d in directions]
    how = "rowblock" if backend == "auto" else backend
    value = torch.stack([one_way.loss(block, backend=how) for block in blocks]).mean()
    if objective.reduction == "sum":
        return value
    return value * (len(blocks[0].anchors) / len(views.anchors))


def shared_loss(objective: Objective, batch: GlobalBatch, *, backend: str = "auto") -> Tensor:
    """Return the loss of the whole batch; backpropagate it in every process under DDP.

    Each process p of P backpropagates P s_p, where the shares s_p add up to the loss L of the
    batch. If the objective declares ``coupling="none"``, s_p is the part of the anchors of process
    p. If not, s_p is L / P. An embedding h of process p receives, through the gather, sum_q P
    ds_q/dh = P dL/dh. The parameters of process p receive P (dL/dh_p) dh_p/dtheta, and DDP takes
    the mean over processes, which is dL/dtheta. The same holds for a learnt temperature.
    """
    processes = world_size()
    few = batch.fewest < objective.least_rows
    if processes == 1 or few or objective.coupling != "none":
        return objective.loss(batch.views, backend=backend)
    _check_separable(objective, batch.views)
    share = rows_loss(objective, batch.views, batch.rows, backend=backend)
    scaled = processes * share
    total = all_reduce_sum(share) + (scaled - scaled.detach())
    return marked(total, (objective, batch.views))


def _check_separable(objective: Objective, views: Views) -> None:
    """Test the declaration on a few rows, once for each objective and its choices."""
    # A formula that computes its own product, without the statistics of the pairs, may mistake the
    # first rows of the other view for the positives of every share of the anchors.
    choices = [v for v in objective.hyperparameters().values() if isinstance(v, (str, bool))]
    kind = (objective.name, *choices)
    if kind in _separable or len(views.anchors) < 2 * objective.least_rows:
        return
    few = min(_FEW, len(views.anchors))
    first = replace(
        views,
        anchors=views.anchors[:few],
        positives=views.positives[:few],
        negatives=None if views.negatives is None else views.negatives[:few],
        groups=None if views.groups is None else views.groups[:few],
    )
    first = first.detached().map(Tensor.double)
    with torch.no_grad():
        whole = objective.loss(first, backend="eager")
        rows = (slice(0, few // 2), slice(few // 2, few))
        halves = [rows_loss(objective, first, half) for half in rows]
        total = torch.stack(halves).sum()
    if not same(torch.stack([*halves, total]), torch.stack([*halves, whole])):
        raise WrongCoupling(
            "declare coupling='batch', or compute similarities with `pairs` only: "
            f"{objective.name} declares coupling='none', but the loss of {few} anchors is "
            f"{float(whole):.6g}, and the losses of two halves sum to {float(total):.6g}"
        )
    _separable.add(kind)
