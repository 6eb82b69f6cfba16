"""Figure 3a: STS and transfer over the final distance gap, which the margin of MPT sets."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table
from papers.machinery.job import PaperJob
from papers.machinery.logged import at_end
from papers.machinery.over_seeds import by_seed, combine_by_seed, format_changes, format_spread
from papers.machinery.verdicts import RULE, BySeed, Spread, Verdict, above, all_of, minus, spread
from papers.nie2023.figure3b import gap
from papers.nie2023.losses import (
    DECOUPLED,
    MARGINS,
    NAMES,
    end,
    trained,
    with_margin,
)

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

AXES = {"gap": "d_ij", "average": "STS", "transfer": "transfer"}
MUCH = 2  # times: how much more STS must vary than transfer

Points = Mapping[str, Mapping[str, BySeed]]
"""By training, and by axis."""


def trainings(scale: Scale) -> dict[str, list[PaperJob]]:
    """Return MPT at three margins; to stand beside them, InfoNCE and what is decoupled of it."""
    margins = {f"MPT, m = {m:.2f}": with_margin(scale, m) for m in MARGINS}
    return margins | {NAMES[name]: trained(scale, name) for name in ("infonce", *DECOUPLED)}


def jobs(scale: Scale) -> list[PaperJob]:
    """All of them; but for two margins they are those of table 1."""
    return [job for jobs_of_name in trainings(scale).values() for job in jobs_of_name]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the scores by gap, and how much each of them depends on the margin."""
    points = {
        name: {
            "gap": at_end(results, jobs_of_name, gap),
            **{
                m: by_seed(results, jobs_of_name, f"{m} {end(scale)}")
                for m in ("average", "transfer")
            },
        }
        for name, jobs_of_name in trainings(scale).items()
    }
    rows = [
        [name, *(format_spread(spread(values.values())) for values in point.values())]
        for name, point in points.items()
    ]
    tasks = [name for name in jobs(scale)[0].settings["scores"] if name != "sts"]
    return Rendered(
        tables=[Table(["training", *AXES.values()], rows)],
        verdicts=_verdicts([points[f"MPT, m = {m:.2f}"] for m in MARGINS]),
        pictures={"figure3a": partial(_drawn, points)},
        notes=[
            "d_ij: mean distance to all negatives less that to the positive, at the last step, on "
            "sentences in two views by dropout; the paper's panel has no numbers in its text",
            f"STS: average of seven tasks; transfer: average of {', '.join(tasks)}",
            f"much more is {MUCH} times as much here; {RULE}",
        ],
    )


def _verdicts(margins: list[Mapping[str, BySeed]]) -> list[Verdict]:
    small, best, large = margins
    wider = {
        f"from {a:.2f} to {b:.2f}": minus(higher["gap"], lower["gap"])
        for a, b, lower, higher in zip(MARGINS, MARGINS[1:], margins, margins[1:], strict=False)
    }
    ahead = {
        f"over {m:.2f}": minus(best["average"], higher["average"])
        for m, higher in zip((MARGINS[0], MARGINS[2]), (small, large), strict=True)
    }
    reach = {name: _reach(margins, metric) for metric, name in list(AXES.items())[1:]}
    more = minus(reach["STS"], {seed: MUCH * values for seed, values in reach["transfer"].items()})
    sizes: dict[str, Spread | None] = {
        name: spread(values.values()) for name, values in reach.items()
    }
    return [
        Verdict(
            "a larger margin ends with a wider gap",
            all_of(above(change) for change in wider.values()),
            format_changes(wider, 3),
        ),
        Verdict(
            f"STS is higher at m = {MARGINS[1]:.2f} than at the margins on both sides",
            all_of(above(change) for change in ahead.values()),
            format_changes(ahead),
        ),
        Verdict(
            "STS depends on the margin much more than transfer does",
            above(more),
            f"highest less lowest: {format_changes(sizes)}" if more else "",
        ),
    ]


def _reach(margins: list[Mapping[str, BySeed]], metric: str) -> dict[int, float]:
    """The highest score of the margins less the lowest, by seed."""
    levels = [point[metric] for point in margins]
    high, low = combine_by_seed(max, levels), combine_by_seed(min, levels)
    return {seed: high[seed] - low[seed] for seed in high}


def _drawn(points: Points) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    panels = []
    for metric, name in list(AXES.items())[1:]:
        drawn = []
        for title, point in points.items():
            x, y = (spread(point[axis].values()) for axis in ("gap", metric))
            if x and y:
                drawn.append(Series(title, [x.mean], [y.mean], [y.deviation]))
        panels.append(Chart(name, drawn, AXES["gap"], f"{name}, average", kind="points"))
    return charts(panels, columns=2)


ARTIFACT = Artifact(
    title="figure 3a: STS and transfer averages over the final distance gap, by margin",
    jobs=jobs,
    render=render,
)
