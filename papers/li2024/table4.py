"""Table 4: transfer tasks after the same trainings as in table 3."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from isotrope.data.text.transfer_sets import TASKS
from papers.li2024.backbone_results import (
    AVERAGE,
    BackboneResults,
    averages,
    backbone_results,
    notes,
    tasks,
)
from papers.li2024.losses import MODIFIED, ORIGINAL, TRANSFER, trainings
from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.over_seeds import format_change
from papers.machinery.verdicts import Verdict, ahead, below, negated, spread

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

METRIC = "transfer"  # mean of the tasks that a scale has


def render(scale: Scale, results: Results) -> Rendered:
    """Return averages and single tasks, and how much less than STS they depend on the loss."""
    backbones = backbone_results(scale, results)
    here = [of for of in backbones if of.here]
    names = ", ".join(TRANSFER[scale])
    return Rendered(
        tables=[
            table
            for of in backbones
            for table in (averages(of, METRIC, "table4", "TR"), tasks(of, TASKS, "table4"))
        ],
        verdicts=[verdict for of in here for verdict in _verdicts(of)],
        pictures={of.named("table4"): functools.partial(_draw, of) for of in here},
        notes=[
            f"our average is that of {names}; the paper's, of {', '.join(TASKS)}",
            *notes(scale),
        ],
    )


def _verdicts(of: BackboneResults) -> Iterator[Verdict]:
    level = of.level(MODIFIED, ORIGINAL, METRIC)
    yield Verdict(
        f"{of.who}modification costs no transfer, on average over the four",
        negated(below(level)),
        f"modified minus original {format_change(level)}" if level else "",
    )
    transfer, sts = of.reach(METRIC), of.reach(AVERAGE)
    half = spread({seed: reach / 2 for seed, reach in sts.by_seed.items()}) if sts else None
    yield Verdict(
        f"{of.who}the choice of the loss matters to transfer less than half as much as to STS",
        ahead(half, transfer),
        f"highest minus lowest of twelve: transfer {transfer}, STS {sts}"
        if transfer and sts
        else "",
    )


def _draw(of: BackboneResults) -> "Picture":
    from papers.li2024.plots import gains
    from papers.plots.charts import charts

    panels = {"transfer tasks": METRIC, "seven STS tasks": AVERAGE}
    return charts([gains(of, title, metric) for title, metric in panels.items()], columns=2)


ARTIFACT = Artifact(
    title="table 4: transfer tasks after the trainings of table 3", jobs=trainings, render=render
)
