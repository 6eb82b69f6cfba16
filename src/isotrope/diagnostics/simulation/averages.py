"""Averages GD and weights over drawn angles (Li et al., 2024, section 3.1).

The angle between an anchor and its positive is drawn from N(mu_pos, 0.05^2), and the angles between
the anchor and its 127 negatives from N(mu_neg, 0.10^2). A component is averaged over 1,000 such
batches for every pair of means. The objective's own ``components`` are evaluated, so every
objective that needs only angles can be simulated.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from isotrope.core.rounding import same
from isotrope.diagnostics.simulation.angle_draws import Angles, Progress, means
from isotrope.diagnostics.simulation.angle_pairs import RowPairs, probe
from isotrope.diagnostics.simulation.landscape import Landscape, check, components, landscapes
from isotrope.kernels.pairs import Pairs
from isotrope.objectives.modified import Modified
from isotrope.paradigm.anatomy import DEAD
from isotrope.paradigm.compose import Paradigm
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Dissipation


def dissipation(
    objectives: Sequence[Objective],
    angles: Angles | None = None,
    *,
    seed: int = 0,
    common: bool = True,
    progress: Progress | None = None,
) -> list[Landscape]:
    """Return the mean gradient dissipation (Li et al., 2024, figures 2 and 10).

    Args:
        objectives: Objectives, which all see the same draws.
        angles: Distributions; by default those of the paper.
        seed: Seed; equal seeds give equal numbers on any number of threads.
        common: Whether to draw one set of batches and shift it to every pair of means. A value has
            the same distribution and error as with separate batches (False, as in the paper).
            Neighbouring errors are alike, which keeps the landscape smooth, and the statistics of
            the negatives are computed once for each mu_neg instead of once for each pair.
        progress: Called with the number of pairs of means done since the last call.

    Raises:
        InputError: an objective without components, or one that needs the embeddings themselves.
    """

    def measure(objective: Objective, pairs: Pairs) -> tuple[Tensor, Tensor]:
        value = _dissipation(objective, pairs)
        return value, torch.ones_like(value, dtype=torch.bool)

    angles = angles or Angles()
    for objective in objectives:
        if _part(objective) is None:
            check(objective)
    of_rows = [_is_of_rows(objective) for objective in objectives]
    sums = means(measure, objectives, of_rows, angles, seed, common=common, progress=progress)
    return landscapes(objectives, angles, *sums)


def hardest_share(
    objectives: Sequence[Objective],
    angles: Angles | None = None,
    *,
    gated: bool = False,
    seed: int = 0,
    common: bool = True,
    progress: Progress | None = None,
) -> list[Landscape]:
    """Return the mean share of the hardest negative in the weights (Li et al., 2024, figure 3).

    A batch without a push (in MET and MAT the hardest negative is closer than 0.01) does not count;
    if no batch pushes, the share is undefined.

    Args:
        objectives: Objectives, which all see the same draws.
        angles: Distributions; by default mu_pos = 0.5 as in the paper's released code (its text
            says pi/6). Without the gate the positive makes no difference to a softmax.
        gated: Whether to leave out batches in which the objective's own GD is below 0.01; if no
            batch is left, the value is 1 and its error 0. The shape of the printed figure comes
            from this gate of the released code, which the text does not mention.
        seed: See :func:`dissipation`.
        common: See :func:`dissipation`; here it saves only the drawing.
        progress: Called with the number of pairs of means done since the last call.

    Raises:
        InputError: an objective without components, or one that needs the embeddings themselves.
    """

    def measure(objective: Objective, pairs: Pairs) -> tuple[Tensor, Tensor]:
        terms = components(objective, pairs)
        weight = terms.weight.abs()
        hardest = pairs.similarity(terms.against).argmax(dim=1, keepdim=True)
        if not weight.any():  # no column is pushed
            hardest = torch.zeros_like(hardest)
        mass = weight.sum(dim=1)
        share = weight.gather(1, hardest).squeeze(1) / mass
        # a clamped negative is not pushed: 0/0 is left out unless all values are
        pushed = (mass != 0) | (mass == 0).all()
        return share, pushed & (terms.dissipation >= (DEAD if gated else -torch.inf))

    angles = angles or Angles(positive=np.array([0.5]))
    for objective in objectives:
        check(objective)
    of_rows = [False] * len(objectives)
    sums = means(measure, objectives, of_rows, angles, seed, common=common, progress=progress)
    return landscapes(objectives, angles, *sums)


def _dissipation(objective: Objective, pairs: Pairs) -> Tensor:
    """Return GD; a composition has it as a part and needs no weights for it."""
    part = _part(objective)
    if part is None:
        return components(objective, pairs).dissipation
    value: Tensor = part(pairs)
    return value


def _part(objective: Objective) -> Dissipation | None:
    composed = objective.paradigm if isinstance(objective, Modified) else objective
    return composed.dissipation if isinstance(composed, Paradigm) else None


def _is_of_rows(objective: Objective) -> bool:
    """Return whether the dissipation depends only on row statistics, tested on many angles.

    ``coupling`` does not declare this: an uncoupled anchor may still use each of its similarities.
    """
    rows, _ = probe()
    alone = RowPairs(rows.positive[None], rows)
    if _part(objective) is None and components(objective, alone).weight.shape[1] > 1:
        return False  # its weights belong to other columns, as many as there are anchors
    return same(_dissipation(objective, rows), _dissipation(objective, alone))
