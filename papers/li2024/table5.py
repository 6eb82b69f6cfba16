"""Table 5: from the ineffective losses to the modified ones, one component at a time."""

import functools
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from papers.li2024.backbone_results import BackboneResults, notes
from papers.li2024.figure1 import PAIRS
from papers.li2024.losses import BERT, TableLoss
from papers.li2024.simulated import PAPER
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table
from papers.machinery.job import PaperJob
from papers.machinery.over_seeds import format_change, format_changes, format_spread
from papers.machinery.verdicts import (
    UNDECIDED,
    Answer,
    BySeed,
    Spread,
    Verdict,
    above,
    all_of,
    minus,
    spread,
)
from papers.paper_numbers import printed

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

COLUMNS = ("original", "+GD", "+W", "+R")
BETWEEN = {"+GD": "GD", "+W": "GD+W"}  # settings of the modified loss

Walk = Mapping[str, BySeed]


def between(loss: TableLoss) -> dict[str, str]:
    """Return the steps to a modified loss; the weight of MHS needs no change."""
    return {k: v for k, v in BETWEEN.items() if k == "+GD" or loss.name != "mMHS"}


WORDS: Mapping[Answer, str | None] = {
    True: "helps",
    False: "hurts",
    UNDECIDED: UNDECIDED,
    None: None,
}


def jobs(scale: Scale) -> list[PaperJob]:
    """The original and the modified losses of table 3, and the steps between them."""
    jobs_of_pairs = [job for pair in PAIRS for loss in pair for job in loss.jobs(scale)]
    return jobs_of_pairs + [
        job
        for _, after in PAIRS
        for step in between(after).values()
        for job in after.jobs(scale, step=step)
    ]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the average by step, and which components help."""
    walks = _walks(BackboneResults(scale, results))
    return Rendered(
        tables=[_table(walks)],
        verdicts=[_verdict(name, walk) for name, walk in walks.items()],
        pictures={"table5": functools.partial(_draw, walks)},
        notes=[
            *notes(scale),
            "+W sets nu = 1 too, and for MHE r = 1, as the released code does",
            *printed(PAPER, "table5").notes,
        ],
    )


def _walks(of: BackboneResults) -> dict[str, Walk]:
    """Values at every step, by the name of the original."""
    return {
        before.name: {
            "original": of.of(before),
            **{column: of.of(after, step=step) for column, step in between(after).items()},
            "+R": of.of(after),
        }
        for before, after in PAIRS
    }


def _changes(walk: Walk) -> dict[str, Spread | None]:
    """The change that each further component makes."""
    return {after: minus(walk[after], walk[before]) for before, after in pairwise(walk)}


def _table(walks: Mapping[str, Walk]) -> Table:
    paper_table = printed(PAPER, "table5").rows
    rows: list[list[str | None]] = []
    for before, _ in PAIRS:
        walk = walks[before.name]
        paper = paper_table[f"{BERT}/{before.row}"]
        rows.append([before.name, "paper", *("-" if v is None else f"{v:.2f}" for v in paper)])
        means = [format_spread(spread(walk[c].values())) if c in walk else "-" for c in COLUMNS]
        rows.append([before.name, "ours", *means])
        added = [format_change(_changes(walk).get(c)) if c in walk else "-" for c in COLUMNS[1:]]
        rows.append([before.name, "ours, added", "-", *added])
        words = [_word(_changes(walk).get(c)) if c in walk else "-" for c in COLUMNS[1:]]
        rows.append([before.name, "verdict", "-", *words])
    return Table(["loss", "whose", *COLUMNS], rows, title="average of the seven STS tasks")


def _word(change: Spread | None) -> str | None:
    return WORDS[above(change)]


def _verdict(name: str, walk: Walk) -> Verdict:
    changes = _changes(walk)
    return Verdict(
        f"each component that is added to {name} raises STS",
        all_of(above(change) for change in changes.values()),
        format_changes(changes),
    )


def _draw(walks: Mapping[str, Walk]) -> "Picture":
    from papers.li2024.plots import series
    from papers.plots.charts import Chart, charts

    lines = [
        series(name, {column: spread(walk[column].values()) for column in walk})
        for name, walk in walks.items()
    ]
    return charts([Chart("components exchanged", lines, y="average of 7 STS tasks")])


ARTIFACT = Artifact(
    title="table 5: average STS as components are exchanged one by one", jobs=jobs, render=render
)
