"""Evaluates the ratio and the norm of the gradient at given angles, without random draws."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from isotrope.core.errors import InputError
from isotrope.diagnostics.simulation.angle_draws import Angles, Floats
from isotrope.diagnostics.simulation.angle_pairs import AnglePairs
from isotrope.diagnostics.simulation.landscape import Landscape, check, components, landscapes
from isotrope.paradigm.anatomy import DEAD
from isotrope.paradigm.objective import Objective

_CHUNK = 2**20  # similarities held at once
_ANCHORS = 2048  # anchors held at once, because an objective may return as many columns


def ratio(objectives: Sequence[Objective], angles: Angles | None = None) -> list[Landscape]:
    """Return the ratio R with every angle at its mean (Li et al., 2024, figure 4).

    No angle is drawn: the paper's caption speaks of averages, but its figure shows the formula. The
    ratio is undefined where training never is: mu_pos > mu_neg, or GD < 0.01.

    Args:
        objectives: Objectives with one ratio for an anchor.
        angles: Means and number of negatives; the spreads are not used.

    Raises:
        InputError: an objective without components, or one that needs the embeddings themselves.
    """
    angles = angles or Angles()
    values, defined = [], []
    for objective in objectives:
        gd, pull, mass, _ = _at_means(objective, angles)
        pushed = (mass != 0) & (gd >= DEAD) & (angles.positive[:, None] <= angles.negative)
        values.append(np.divide(pull, mass, out=np.full_like(mass, np.nan), where=mass != 0))
        defined.append(pushed)
    return landscapes(objectives, angles, np.array(values), defined=defined)


def gradient_norm(
    objectives: Sequence[Objective],
    angles: Angles | None = None,
    *,
    part: Literal["alignment", "uniformity"] = "alignment",
) -> list[Landscape]:
    """Return the norm of a part of the gradient at the mean angles (Nie et al., 2023, fig. 2, 4).

    ``alignment`` is the contribution of the positive, GD pull sin(theta_ii'). ``uniformity`` is the
    contribution of one negative, GD W_ij sin(theta_ij'), or of the hardest if only it counts. The
    sines are the lengths of h'_i and h'_j in the tangent space of the unit anchor (Nie et al.,
    2023, eq. 7-9, 11, 16-22). An objective with one number for a batch is evaluated on enough equal
    anchors to be each other's negatives, and its components include the 1/n.

    Args:
        objectives: Objectives whose pull is one number for each anchor.
        angles: Means and number of negatives; the spreads are not used.
        part: Part of the gradient.

    Raises:
        InputError: an objective without components, or one that needs the embeddings themselves.
    """
    angles = angles or Angles()
    values = []
    for objective in objectives:
        gd, pull, _, weight = _at_means(objective, angles)
        if part == "alignment":
            values.append(np.abs(gd * pull * np.sin(angles.positive)[:, None]))
        else:
            values.append(np.abs(gd * weight * np.sin(angles.negative)))
    return landscapes(objectives, angles, np.array(values))


def _at_means(objective: Objective, angles: Angles) -> Floats:
    """GD, pull, sum of the weights and weight of the first negative at the mean angles.

    Each is p x q. The negatives of an anchor are equal, so the first is also the hardest.
    """
    check(objective)
    grid = np.meshgrid(np.cos(angles.positive), np.cos(angles.negative), indexing="ij")
    positive, negative = (torch.from_numpy(x.ravel()) for x in grid)
    # a statistic of the batch takes one cell at a time, as that many equal anchors
    by_batch = objective.batch_level or objective.reduction == "sum"
    anchors = angles.negatives + 1 if by_batch else 1
    step = 1 if by_batch else min(_ANCHORS, max(1, _CHUNK // angles.negatives))
    components_at = np.empty((4, len(positive)))
    for start in range(0, len(positive), step):
        cells = slice(start, start + step)
        to_positive = positive[cells].repeat(anchors)
        to_negatives = negative[cells].repeat(anchors)[:, None].expand(-1, angles.negatives)
        terms = components(objective, AnglePairs(to_positive, to_negatives))
        if terms.pull.ndim != 1:
            raise InputError(
                f"the positive of {type(objective).__name__} pulls each coordinate separately, "
                "so neither its ratio nor its norm is a function of the angles"
            )
        numbers = (terms.dissipation, terms.pull, terms.mass, terms.weight[:, 0])
        for row, number in zip(components_at, numbers, strict=True):
            row[cells] = number[: len(row[cells])].numpy()
    return components_at.reshape(4, *grid[0].shape)
