"""Averages GD and weights over random angles; computes ratios and gradients at given angles.

A batch is one anchor. Its angle to the positive is drawn from a normal distribution with mean
mu_pos and standard deviation 0.05, and the angles to its 127 negatives with mean mu_neg and
standard deviation 0.10. For every pair of means, GD or the hardest negative's share of the weights
is averaged over 1,000 batches. Every objective that needs only angles can be simulated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.errors import InputError, NoTerms
from isotrope.core.legible import csv_text
from isotrope.core.rounding import same
from isotrope.core.terms import Terms
from isotrope.diagnostics.simulation.angle_draws import USUAL, Angles, Draws, Floats, means
from isotrope.diagnostics.simulation.angle_pairs import AnglePairs, check_computable, probe
from isotrope.kernels.pairs import Pairs
from isotrope.objectives.modified import Modified
from isotrope.paradigm.anatomy import DEAD
from isotrope.paradigm.compose import Paradigm
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Dissipation

_CHUNK = 2**20  # similarities held at once
_ANCHORS = 2048  # anchors held at once, because an objective may return as many columns


@dataclass(frozen=True)
class Landscape:
    """One quantity of one objective (such as gradient dissipation) for all pairs of mean angles.

    Attributes:
        positive: Mean angles mu_pos to the positive in radians, p values.
        negative: Mean angles mu_neg to the negatives in radians, q values.
        value: Value for each pair of mean angles, p x q.
        error: Standard error of each value, p x q; 0 if no angles were drawn.
        defined: Whether each value is defined, p x q booleans.
    """

    objective: Objective
    positive: Floats
    negative: Floats
    value: Floats
    error: Floats
    defined: NDArray[np.bool_]

    def crossing(self, positive: float, level: float = 0.5) -> float | None:
        """Return the mu_neg (radians) at which the value first falls below ``level``.

        The result is None if the value is below ``level`` nowhere, or at the smallest mu_neg.

        Args:
            positive: Mean angle mu_pos in radians, interpolated between the angles of the grid.
            level: Value below which the quantity of the landscape must fall.
        """
        row = np.array([np.interp(positive, self.positive, column) for column in self.value.T])
        below = np.flatnonzero(row < level)
        if not below.size or below[0] == 0:
            return None
        step = slice(below[0] - 1, below[0] + 1)
        return float(np.interp(level, row[step][::-1], self.negative[step][::-1]))


def dissipation(
    objectives: Sequence[Objective], angles: Angles | None = None, draws: Draws = USUAL
) -> list[Landscape]:
    """Return the mean gradient dissipation (Li et al., 2024, figures 2 and 10).

    Raises:
        InputError: An objective has no components, or needs more than the angles of an anchor.
    """

    def measure(objective: Objective, pairs: Pairs) -> tuple[Tensor, Tensor]:
        value = _dissipation(objective, pairs)
        return value, torch.ones_like(value, dtype=torch.bool)

    angles = angles or Angles()
    for objective in objectives:
        if _part(objective) is None:
            check(objective)
    of_rows = [_is_of_rows(objective) for objective in objectives]
    sums = means(measure, objectives, of_rows, angles, draws)
    return landscapes(objectives, angles, *sums)


def hardest_share(
    objectives: Sequence[Objective],
    angles: Angles | None = None,
    *,
    gated: bool = False,
    draws: Draws = USUAL,
) -> list[Landscape]:
    """Return the hardest negative's mean share of the weights (Li et al., 2024, figure 3).

    Batches in which no negative pushes are skipped. With MET and MAT, this happens if the distance
    to the hardest negative is below 0.01. If all batches are skipped, the share is undefined.

    Args:
        objectives: Objectives, which all see the same draws.
        angles: Distributions of the angles. By default, mu_pos is 0.5, as in the authors' released
            code; the paper says pi/6. For a softmax, mu_pos has an effect only if ``gated``.
        gated: Whether to leave out batches in which the gradient dissipation (GD) is below 0.01. If
            no batch is left, the share is reported as 1 with error 0. The released code and the
            figure leave these batches out; the text of the paper does not mention this.
        draws: How the batches are drawn.

    Raises:
        InputError: An objective has no components, or needs more than the angles of an anchor.
    """

    def measure(objective: Objective, pairs: Pairs) -> tuple[Tensor, Tensor]:
        terms = components(objective, pairs)
        weight = terms.weight.abs()
        hardest = pairs.similarity(terms.against).argmax(dim=1, keepdim=True)
        if not weight.any():  # no column is pushed
            hardest = torch.zeros_like(hardest)
        mass = weight.sum(dim=1)
        share = weight.gather(1, hardest).squeeze(1) / mass
        # a share of 0/0 (no negative is pushed) is left out, unless all shares are
        pushed = (mass != 0) | (mass == 0).all()
        return share, pushed & (terms.dissipation >= (DEAD if gated else -torch.inf))

    angles = angles or Angles(positive=np.array([0.5]))
    for objective in objectives:
        check(objective)
    of_rows = [False] * len(objectives)
    sums = means(measure, objectives, of_rows, angles, draws)
    return landscapes(objectives, angles, *sums)


def _dissipation(objective: Objective, pairs: Pairs) -> Tensor:
    """Return GD; an objective composed of parts has GD as a part, without the weights."""
    part = _part(objective)
    if part is None:
        return components(objective, pairs).dissipation
    value: Tensor = part(pairs)
    return value


def _part(objective: Objective) -> Dissipation | None:
    composed = objective.paradigm if isinstance(objective, Modified) else objective
    return composed.dissipation if isinstance(composed, Paradigm) else None


def _is_of_rows(objective: Objective) -> bool:
    """Test on many angles whether the dissipation depends only on statistics of the negatives."""
    # ``coupling`` does not tell this: an uncoupled anchor may still use each of its similarities.
    rows, _ = probe()
    alone = AnglePairs(rows.positive, rows.similarity(), whole=False)
    if _part(objective) is None and components(objective, alone).weight.shape[1] > 1:
        return False  # its weights are for other columns, as many as there are anchors
    return same(_dissipation(objective, rows), _dissipation(objective, alone))


def ratio(objectives: Sequence[Objective], angles: Angles | None = None) -> list[Landscape]:
    """Return the ratio of pull to push if all angles equal their means (Li et al., 2024, figure 4).

    No angles are drawn: the paper's caption mentions averages, but the figure shows the formula.
    The ratio is undefined if mu_pos > mu_neg, or if the gradient dissipation (GD) is below 0.01.

    Raises:
        InputError: An objective has no components, or needs more than the angles of an anchor.
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
    """Return the norm of a part of the gradient at the mean angles (Nie et al., 2023, figs 2, 4).

    The part ``alignment`` comes from the positive: GD x pull x sin(angle to the positive), where GD
    is the gradient dissipation. The part ``uniformity`` comes from one negative: GD x weight x
    sin(angle to the negative). If only one negative pushes, this is the hardest negative. The sines
    project on the tangent space of the unit anchor (eq. 7-9, 11, 16-22). An objective with one loss
    for a whole batch is evaluated on n equal anchors, and its components include the factor 1/n.

    Args:
        objectives: Objectives whose pull is one number for each anchor.
        angles: Mean angles, and number of negatives. The standard deviations are not used.
        part: Part of the gradient whose norm is returned.

    Raises:
        InputError: An objective has no components, or needs more than the angles of an anchor.
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
    """Return GD, pull, sum of the weights and weight of the first negative at the mean angles."""
    # Each is p x q. The negatives of an anchor are equal, so the first is also the hardest.
    check(objective)
    grid = np.meshgrid(np.cos(angles.positive), np.cos(angles.negative), indexing="ij")
    positive, negative = (torch.from_numpy(x.ravel()) for x in grid)
    # anchors that depend on each other take one cell at a time, as a batch of equal anchors
    by_batch = _mixes_anchors(objective)
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
                f"choose another objective: {type(objective).__name__} pulls coordinates with "
                "different strengths, so ratio and gradient norm do not follow from the angles"
            )
        numbers = (terms.dissipation, terms.pull, terms.mass, terms.weight[:, 0])
        for row, number in zip(components_at, numbers, strict=True):
            row[cells] = number[: len(row[cells])].numpy()
    return components_at.reshape(4, *grid[0].shape)


def _mixes_anchors(objective: Objective) -> bool:
    """Test whether the components of an anchor change with the other anchors of its batch."""
    rows, _ = probe()
    half = AnglePairs(rows.positive[:128], rows.similarity()[:128])
    whole, alone = (components(objective, pairs) for pairs in (rows, half))
    parts = [(x.dissipation[:128], x.pull[:128], x.weight[:128]) for x in (whole, alone)]
    return not all(map(same, *parts))


def landscapes(
    objectives: Sequence[Objective],
    angles: Angles,
    values: Floats,
    errors: Floats | None = None,
    defined: Sequence[NDArray[np.bool_]] | None = None,
) -> list[Landscape]:
    """Return a list with one landscape for each objective; the arrays are objectives x p x q."""
    errors = np.zeros_like(values) if errors is None else errors
    known = [np.isfinite(value) for value in values] if defined is None else defined
    return [
        Landscape(objective, angles.positive, angles.negative, value, error, is_known)
        for objective, value, error, is_known in zip(objectives, values, errors, known, strict=True)
    ]


def as_csv(landscapes: Sequence[tuple[str, Landscape]]) -> str:
    """Return CSV text with one line for each landscape and pair (mu_pos, mu_neg)."""
    rows = []
    for name, landscape in landscapes:
        for i, mu_pos in enumerate(landscape.positive):
            for j, mu_neg in enumerate(landscape.negative):
                numbers = (mu_pos, mu_neg, landscape.value[i, j], landscape.error[i, j])
                columns = [f"{number:.7g}" for number in numbers]
                rows.append([name, *columns, str(bool(landscape.defined[i, j])).lower()])
    header = ["objective", "mu_pos", "mu_neg", "value", "standard_error", "defined"]
    return csv_text(header, rows)


def components(objective: Objective, pairs: Pairs) -> Terms:
    """Return the components of an objective's gradient, detached from autograd's graph."""
    name = type(objective).__name__
    if not objective.has_terms:
        raise InputError(str(NoTerms(name, objective.space)))
    try:
        with torch.no_grad():
            terms = objective.components(pairs)
        check_computable(terms.dissipation, terms.weight, terms.pull)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    return terms


def check(objective: Objective) -> None:
    """Raise an error if an objective needs more than the angles of an anchor.

    The test reverses the order of the negatives. GD, pull and weights must not depend on the order.
    """
    rows, other = probe()
    terms, other_terms = (components(objective, pairs) for pairs in (rows, other))
    alike = same(terms.dissipation, other_terms.dissipation) and same(terms.pull, other_terms.pull)
    alike = alike and len(terms.dissipation) == len(rows.positive)
    if terms.weight.any() or other_terms.weight.any():
        alike = alike and terms.weight.shape == rows.similarity().shape
        alike = alike and same(terms.weight.flip(1), other_terms.weight)
    if not alike:
        raise InputError(
            f"measure {type(objective).__name__} on embeddings (`objective.terms`): it cannot be "
            "simulated from angles, because it depends on the order of the rows"
        )
