"""Computes the loss of each process, such that their mean is the loss of the whole batch."""

from torch import Tensor

from isotrope.core.distributed import GlobalBatch, all_reduce_sum, world_size
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.separable import of_rows

__all__ = ["shared_loss"]


def shared_loss(objective: Objective, batch: GlobalBatch, *, backend: str = "auto") -> Tensor:
    """Return a scalar: its value is the loss of the whole batch, its gradient this process's part.

    Let L be the loss of the whole batch, and let each of W processes backpropagate W s_p, where the
    s_p add up to L. Through the gather a row h of process p receives sum_q W ds_q/dh = W dL/dh, so
    its parameters receive W (dL/dh_p) dh_p/dtheta: the mean over processes, which DDP takes, is
    dL/dtheta. It is so for a parameter of the objective too (a temperature). An objective that
    declares ``coupling="none"`` has s_p = the part of this process's anchors; any other is computed
    whole, s_p = L / W.

    Args:
        objective: any.
        batch: the raw embeddings of all processes, with history (isotrope.core.distributed).
        backend: as for ``objective.loss``.

    Raises:
        WrongCoupling: the anchors are coupled, against the declaration.
    """
    processes = world_size()
    few = batch.fewest < objective.least_rows
    if processes == 1 or few or objective.coupling != "none":
        return objective.loss(batch.views, backend=backend)
    share = of_rows(objective, batch.views, batch.rows, backend=backend)
    scaled = processes * share
    return all_reduce_sum(share) + (scaled - scaled.detach())
