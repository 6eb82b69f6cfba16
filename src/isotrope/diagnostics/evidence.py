"""Evidence: all that is known of a run or a model, as the one record that the doctor reasons on.

It comes from a run folder (settings, metrics.csv, result.json), from the rows of somebody's own
loop (``isotrope.Anatomy``), and from a probe: embeddings of data under the saved model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isotrope.paradigm.objective import Objective

__all__ = ["Case", "of_rows"]

Row = Mapping[str, float | None]


@dataclass(frozen=True)
class Case:
    """What the doctor is shown.

    Attributes:
        rows: one a logged step, by column of metrics.csv, in the order of steps.
        settings: of the run, as config.yaml spells them (hyphens); empty without a run.
        objective: what was trained with, or None where nobody said.
        details: of result.json; empty where there is none.
        notes: what was looked at and what could not be.
    """

    rows: Sequence[Row] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    objective: Objective | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def of_rows(
    rows: Sequence[Row],
    *,
    objective: Objective | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Case:
    """Return the case of somebody's own loop.

    Args:
        rows: as :class:`Case` has them; a missing column is a number that was not measured.
        objective: what was trained with, if it is one of ours.
        settings: what is known of the loop, in the words of the command line:
            ``{"batch-size": 64, "learning-rate": 3e-5}``.
    """
    ordered = sorted(rows, key=lambda row: row["step"] or 0)
    return Case(rows=ordered, settings=settings or {}, objective=objective)
