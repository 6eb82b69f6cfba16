"""Figure 3b: how much farther the negatives lie than the positive, while each loss trains."""

from functools import partial
from typing import TYPE_CHECKING

from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.logged import at_end, at_start, by_step, curve, format_by_seed
from papers.machinery.over_seeds import format_change, format_changes
from papers.machinery.verdicts import Ruling, Spread, above, all_of, minus
from papers.nie2023.losses import DECOUPLED, NAMES, trained
from papers.nie2023.probes import notes

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture
    from papers.machinery.logged import Row


HEADER = ("loss", "d_ij before", "d_ij at the end", "against InfoNCE", "margin gap at the end")


def gap(row: "Row") -> float | None:
    """Return d_ij of the caption: mean distance to all negatives less that to the positive."""
    return row.get("train distance gap")


def margin_gap(row: "Row") -> float | None:
    """Return d_ij of section 4.3: how far the hardest negative is from being as near."""
    return row.get("train margin gap")


def jobs(scale: Scale) -> list[PaperJob]:
    """All losses of table 1."""
    return [job for objective in NAMES for job in trained(scale, objective)]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the gap at both ends of training, and whose grows beyond InfoNCE's."""
    ends = {objective: at_end(results, trained(scale, objective), gap) for objective in NAMES}
    rows = [
        [
            name,
            format_by_seed(at_start(results, trained(scale, objective), gap), 3),
            format_by_seed(ends[objective], 3),
            format_change(minus(ends[objective], ends["infonce"]), 3),
            format_by_seed(at_end(results, trained(scale, objective), margin_gap), 3),
        ]
        for objective, name in NAMES.items()
    ]
    beyond = {NAMES[loss]: minus(ends[loss], ends["infonce"]) for loss in DECOUPLED}
    grown = {NAMES[loss]: _late(scale, results, loss) for loss in DECOUPLED}
    return Rendered(
        tables=[Sheet(HEADER, rows)],
        verdicts=[
            Ruling(
                "both decoupled losses end with a wider gap than InfoNCE",
                all_of(above(change) for change in beyond.values()),
                format_changes(beyond, 3),
            ),
            Ruling(
                "their gap is still growing in the last part of training",
                all_of(above(change) for change in grown.values()),
                format_changes(grown, 3),
            ),
        ],
        pictures={"figure3b": partial(_drawn, scale, results)},
        notes=[
            *notes(scale, jobs(scale)),
            "the margin gap is d_ij of section 4.3, |rho_pos - min rho_neg| of distances; the "
            "caption's, which is drawn, has the mean over all negatives",
            "which losses the paper's panel shows is not in its text: here are all seven",
        ],
    )


def _late(scale: Scale, results: Results, objective: str) -> Spread | None:
    """The change between the last two looks."""
    trainings = trained(scale, objective)
    last = at_end(results, trainings, gap)
    rows = {job.seed: result.details["looks"] for job in trainings if (result := results.get(job))}
    earlier = {
        seed: gap(rows_of_seed[-2]) for seed, rows_of_seed in rows.items() if len(rows_of_seed) > 1
    }
    return minus(last, {seed: value for seed, value in earlier.items() if value is not None})


def _drawn(scale: Scale, results: Results) -> "Picture":
    from papers.plots.charts import Chart, charts

    lines = [
        curve(name, by_step(results, trained(scale, objective), gap))
        for objective, name in NAMES.items()
    ]
    return charts([Chart("distance gap", lines, x="step", y="d_ij")])


ARTIFACT = Artifact(
    title="figure 3b: the distance gap d_ij over training, of every loss",
    jobs=jobs,
    render=render,
)
