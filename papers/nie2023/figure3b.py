"""Figure 3b: how much farther the negatives lie than the positive, while each loss trains."""

from functools import partial
from typing import TYPE_CHECKING

from papers.machinery.artifact import Artifact, Found, Scale, Shown, Table
from papers.machinery.job import Cell
from papers.machinery.logged import after, before, curve, shown, steps
from papers.machinery.over_seeds import signed, told
from papers.machinery.verdicts import Spread, Verdict, above, all_of, minus
from papers.nie2023.losses import DECOUPLED, NAMES, trained
from papers.nie2023.probes import notes

if TYPE_CHECKING:
    from isotrope.report.surfaces import Picture
    from papers.machinery.logged import Row


HEADER = ("loss", "d_ij before", "d_ij at the end", "against InfoNCE", "margin gap at the end")


def gap(row: "Row") -> float | None:
    """Return d_ij of the caption: mean distance to all negatives less that to the positive."""
    return row.get("train distance gap")


def margin_gap(row: "Row") -> float | None:
    """Return d_ij of section 4.3: how far the hardest negative is from being as near."""
    return row.get("train margin gap")


def cells(scale: Scale) -> list[Cell]:
    """All losses of table 1."""
    return [cell for objective in NAMES for cell in trained(scale, objective)]


def show(scale: Scale, found: Found) -> Shown:
    """Return the gap at both ends of training, and whose grows beyond InfoNCE's."""
    ends = {objective: after(found, trained(scale, objective), gap) for objective in NAMES}
    rows = [
        [
            name,
            shown(before(found, trained(scale, objective), gap), 3),
            shown(ends[objective], 3),
            signed(minus(ends[objective], ends["infonce"]), 3),
            shown(after(found, trained(scale, objective), margin_gap), 3),
        ]
        for objective, name in NAMES.items()
    ]
    beyond = {NAMES[one]: minus(ends[one], ends["infonce"]) for one in DECOUPLED}
    grown = {NAMES[one]: _late(scale, found, one) for one in DECOUPLED}
    return Shown(
        tables=[Table(HEADER, rows)],
        verdicts=[
            Verdict(
                "both decoupled losses end with a wider gap than InfoNCE",
                all_of(above(change) for change in beyond.values()),
                told(beyond, 3),
            ),
            Verdict(
                "their gap is still growing in the last part of training",
                all_of(above(change) for change in grown.values()),
                told(grown, 3),
            ),
        ],
        pictures={"figure3b": partial(_drawn, scale, found)},
        notes=[
            *notes(scale, cells(scale)),
            "the margin gap is d_ij of section 4.3, |rho_pos - min rho_neg| of distances; the "
            "caption's, which is drawn, has the mean over all negatives",
            "which losses the paper's panel shows is not in its text: here are all seven",
        ],
    )


def _late(scale: Scale, found: Found, objective: str) -> Spread | None:
    """The change between the last two looks."""
    trainings = trained(scale, objective)
    last = after(found, trainings, gap)
    rows = {cell.seed: result.details["looks"] for cell in trainings if (result := found.get(cell))}
    earlier = {seed: gap(looks[-2]) for seed, looks in rows.items() if len(looks) > 1}
    return minus(last, {seed: value for seed, value in earlier.items() if value is not None})


def _drawn(scale: Scale, found: Found) -> "Picture":
    from papers.plots.charts import Chart, charts

    lines = [
        curve(name, steps(found, trained(scale, objective), gap))
        for objective, name in NAMES.items()
    ]
    return charts([Chart("distance gap", lines, x="step", y="d_ij")])


ARTIFACT = Artifact(
    title="figure 3b: the distance gap d_ij over training, of every loss",
    cells=cells,
    show=show,
)
