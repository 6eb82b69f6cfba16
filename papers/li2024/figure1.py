"""Figure 1: STS average of the four ineffective losses before and after modification."""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from papers.li2024.backbone_results import BackboneResults, backbone_results, notes
from papers.li2024.losses import BACKBONES, MODIFIED, ORIGINAL
from papers.li2024.simulated import PAPER
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table
from papers.machinery.job import PaperJob
from papers.machinery.over_seeds import format_change, format_changes, format_spread
from papers.machinery.verdicts import UNDECIDED, Answer, Verdict, above, all_of, minus, spread
from papers.paper_numbers import printed

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

PAIRS = tuple(zip(ORIGINAL, MODIFIED, strict=True))


WORDS: Mapping[Answer, str | None] = {
    True: "higher",
    False: "lower",
    UNDECIDED: UNDECIDED,
    None: None,
}


def jobs(scale: Scale) -> list[PaperJob]:
    """Trainings of table 3."""
    losses = [loss for pair in PAIRS for loss in pair]
    return [job for base in BACKBONES for loss in losses for job in loss.jobs(scale, base)]


def render(scale: Scale, results: Results) -> Rendered:
    """Return before and after, paper beside ours."""
    backbones = backbone_results(scale, results)
    here = [of for of in backbones if of.here]
    return Rendered(
        tables=[_table(of) for of in backbones],
        verdicts=[_verdict(of) for of in here],
        pictures={"figure1": functools.partial(_draw, here)},
        notes=[*notes(scale), *printed(PAPER, "figure1").notes],
    )


def _table(of: BackboneResults) -> Table:
    rows: list[list[str | None]] = []
    for before, after in PAIRS:
        paper = printed(PAPER, "figure1").rows[f"{of.base}/{before.row}"]
        measured = [format_spread(spread(of.of(loss).values())) for loss in (before, after)]
        change = minus(of.of(after), of.of(before))
        word = WORDS[above(change)]
        rows.append(
            [before.name, *(f"{v:.2f}" for v in paper), *measured, format_change(change), word]
        )
    header = ["loss", "paper: before", "after", "ours: before", "after", "change", "verdict"]
    return Table(header, rows, title=of.title)


def _verdict(of: BackboneResults) -> Verdict:
    changes = {after.name: minus(of.of(after), of.of(before)) for before, after in PAIRS}
    return Verdict(
        f"{of.who}each of the four losses ends with higher STS after modification",
        all_of(above(change) for change in changes.values()),
        format_changes(changes),
    )


def _draw(here: list[BackboneResults]) -> "Picture":
    from papers.li2024.plots import series
    from papers.plots.charts import Chart, charts

    panels = []
    for of in here:
        bars = [
            series(title, {pair[0].name: spread(of.of(pair[i]).values()) for pair in PAIRS})
            for i, title in enumerate(("original", "modified"))
        ]
        start = of.start()
        marks = {} if start is None else {"untrained": start}
        panels.append(Chart(of.title, bars, y="average of 7 STS tasks", kind="bars", marks=marks))
    return charts(panels)


ARTIFACT = Artifact(
    title="figure 1: ineffective losses before and after modification", jobs=jobs, render=render
)
