"""Table 3: the seven STS tasks after training with each loss, before and after modification."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from isotrope.data.text.sts_sets import TASKS
from papers.li2024.backbone_results import (
    AVERAGE,
    BackboneResults,
    averages,
    backbone_results,
    notes,
    tasks,
)
from papers.li2024.longer_trainings import TRIED, longer, tried
from papers.li2024.losses import (
    EFFECTIVE,
    MODIFIED,
    ORIGINAL,
    TableLoss,
    trainings,
)
from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.machinery.over_seeds import format_change
from papers.machinery.verdicts import Answer, Verdict, above, all_of, any_of, below, negated

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

WORKING = (*EFFECTIVE, *MODIFIED)
LARGER = ((EFFECTIVE[1], EFFECTIVE[0]), (EFFECTIVE[3], EFFECTIVE[2]))


def jobs(scale: Scale) -> list[PaperJob]:
    """The encoder before training, all losses, and the longer trainings."""
    return trainings(scale) + [job for loss in TRIED for job in longer(scale, loss)]


def render(scale: Scale, results: Results) -> Rendered:
    """Return averages and single tasks, and verdicts on their order."""
    backbones = backbone_results(scale, results)
    here = [of for of in backbones if of.here]
    tables = [
        table
        for of in backbones
        for table in (averages(of, AVERAGE, "table3", "STS"), tasks(of, TASKS, "table3"))
    ]
    return Rendered(
        tables=[*tables, *(tried(of) for of in here if scale == "cpu")],
        verdicts=[verdict for of in here for verdict in _verdicts(of)],
        pictures={of.named("table3"): functools.partial(_draw, of) for of in here},
        notes=[
            *notes(scale),
            "paper's untrained encoders: printed in paper 002 only, without saying how they pool",
        ],
    )


def _verdicts(of: BackboneResults) -> Iterator[Verdict]:
    for kind, losses in (("effective", EFFECTIVE), ("modified", MODIFIED)):
        yield Verdict(
            f"{of.who}each of the four {kind} losses keeps or raises STS",
            all_of(negated(below(of.gain(loss))) for loss in losses),
            of.evidence(losses),
        )
    yield Verdict(
        f"{of.who}each of the four originals loses STS, or stays behind all eight others",
        all_of(_loses_or_behind(of, loss) for loss in ORIGINAL),
        of.evidence(ORIGINAL),
    )
    order = of.ahead(WORKING, ORIGINAL)
    yield Verdict(
        f"{of.who}all eight, effective and modified, end above all four originals",
        above(order),
        f"lowest of the eight minus highest of the four {format_change(order)}" if order else "",
    )
    level = of.level(MODIFIED, EFFECTIVE)
    yield Verdict(
        f"{of.who}the modified losses are not behind the effective ones on average",
        negated(below(level)),
        f"mean of four minus mean of four {format_change(level)}" if level else "",
    )
    larger = [of.ahead([high], [low]) for high, low in LARGER]
    yield Verdict(
        f"{of.who}ArcCon ends above InfoNCE and MET above MPT, as their ratios are larger",
        all_of(above(change) for change in larger),
        ", ".join(text for change in larger if (text := format_change(change))),
    )


def _loses_or_behind(of: BackboneResults, loss: TableLoss) -> Answer:
    return any_of([below(of.gain(loss)), above(of.ahead(WORKING, [loss]))])


def _draw(of: BackboneResults) -> "Picture":
    from papers.li2024.plots import courses, gains
    from papers.plots.charts import charts

    groups = {"effective": EFFECTIVE, "original": ORIGINAL, "modified": MODIFIED}
    panels = [courses(of, name, losses) for name, losses in groups.items()]
    return charts([*panels, gains(of, "average of seven STS tasks", AVERAGE)], columns=2)


ARTIFACT = Artifact(
    title="table 3: seven STS tasks after training with each loss", jobs=jobs, render=render
)
