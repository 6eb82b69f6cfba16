"""The landscape: one quantity of an objective as a function of the mean angles."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from isotrope.core.errors import InputError, NoTerms
from isotrope.core.legible import csv_text
from isotrope.core.rounding import same
from isotrope.core.terms import Terms
from isotrope.diagnostics.simulation.angle_draws import Angles, Floats
from isotrope.diagnostics.simulation.angle_pairs import check_computable, probe
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.forms import Part
from isotrope.paradigm.objective import Objective


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


def landscapes(
    objectives: Sequence[Objective],
    angles: Angles,
    values: Floats,
    errors: Floats | None = None,
    defined: Sequence[NDArray[np.bool_]] | None = None,
) -> list[Landscape]:
    """Return a list with one landscape for each objective; the arrays are objectives x p x q."""
    return [
        Landscape(
            objective,
            angles.positive,
            angles.negative,
            values[i],
            np.zeros_like(values[i]) if errors is None else errors[i],
            np.isfinite(values[i]) if defined is None else defined[i],
        )
        for i, objective in enumerate(objectives)
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
    if objective.space == "sphere" and not (objective.has_terms or isinstance(objective, Part)):
        raise InputError(
            f"write the components of {name} (see CONTRIBUTING.md), or compute them for a batch "
            f"with isotrope.decompose({name}(), anchors, positives): a simulation needs "
            "components, not only the loss"
        )
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
    alike = terms.weight.shape == other_terms.weight.shape
    alike = alike and len(terms.dissipation) == len(rows.positive)
    for a, b in ((terms.dissipation, other_terms.dissipation), (terms.pull, other_terms.pull)):
        alike = alike and same(a, b)
    if terms.weight.shape == rows.similarity().shape:
        alike = alike and same(terms.weight.flip(1), other_terms.weight)
    elif terms.weight.any():
        alike = False
    if not alike:
        raise InputError(
            f"measure {type(objective).__name__} on embeddings (`objective.terms`): it cannot be "
            "simulated from angles, because it depends on the order of the rows"
        )
