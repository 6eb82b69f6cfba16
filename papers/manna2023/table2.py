"""Table 2: accuracy of nearest neighbours of nine frameworks on four sets."""

import functools
from typing import TYPE_CHECKING

from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import RULE, Ruling, Spread
from papers.manna2023.accuracy import is_ahead, knn, shown
from papers.manna2023.frameworks import NAMES, PRINTED, run_at, trained
from papers.manna2023.table1 import DATA
from papers.paper_numbers import printed

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

PAPER = printed("mio", "table2")
GAINS = printed("mio", "claims")
CONTRASTIVE = ("SimCLR", "MoCo v2", "DCL", "DCLW")
CONSTANT = "DCLW, constant weights"
_AFTER = NAMES.index("DCLW") + 1
ROWS = (*NAMES[:_AFTER], CONSTANT, *NAMES[_AFTER:])
"""The paper's nine, and DCLW as the library that the paper used trains it."""


def _sets(scale: Scale) -> dict[str, str | None]:
    """The paper's names of the data sets; None is the recipes' own, CIFAR-10."""
    sets: dict[str, str | None] = {**DATA, "CIFAR-10": None}
    return sets if scale == "paper" else {"CIFAR-10": None}


def jobs(scale: Scale) -> list[PaperJob]:
    """Every framework on every set that is there."""
    return [
        job
        for data in _sets(scale).values()
        for name in run_at(scale, ROWS)
        for job in trained(scale, name, data=data)
    ]


def render(scale: Scale, results: Results) -> Rendered:
    """Return a table for each set, and verdicts on MIOv3."""
    tables, verdicts = [], []
    first: dict[str, Spread | None] = {}
    for place, (title, data) in enumerate(_sets(scale).items()):
        levels = {name: knn(results, trained(scale, name, data=data)) for name in ROWS}
        first = first or levels
        column = PAPER.columns.index(title)
        rows = [
            [n, f"{PAPER.rows[PRINTED.get(n, PRINTED['DCLW'])][column]:.2f}", shown(levels[n])]
            for n in ROWS
        ]
        best = [levels[n] for n in CONTRASTIVE]
        gain = None
        if levels["MIOv3"] and all(best):
            gain = f"{levels['MIOv3'].mean - max(s.mean for s in best if s):+.2f}"
        printed_gain = GAINS.rows["gain over the best contrastive"][column]
        rows.append(["MIOv3 over the best contrastive", f"{printed_gain:+.2f}", gain])
        tables.append(Sheet(("framework", "paper", "ours"), rows, title))
        verdicts += _verdicts(title, levels, first=place == 0)
    return Rendered(
        tables=tables,
        verdicts=verdicts,
        pictures={"table2": functools.partial(_bars, first)},
        notes=_notes(scale),
    )


def _verdicts(title: str, levels: dict[str, Spread | None], *, first: bool) -> list[Ruling]:
    def over(claim: str, name: str, other: str) -> Ruling:
        return is_ahead(f"{title}: {claim}", levels, name, other)

    verdicts = [
        over("MIOv2 falls behind MIOv1", "MIOv1", "MIOv2"),
        *(
            over(f"MIOv3 is ahead of {other}", "MIOv3", other)
            for other in ("MIOv1", "MIOv2", *CONTRASTIVE, CONSTANT, "Barlow Twins")
        ),
    ]
    if first:
        verdicts.append(over("BYOL is ahead of MIOv3", "BYOL", "MIOv3"))
    else:
        verdicts.append(over("MIOv3 is ahead of BYOL", "MIOv3", "BYOL"))
    return verdicts


def _notes(scale: Scale) -> list[str]:
    lines = [
        "accuracy in percent of 200 nearest neighbours after the last epoch, mean and standard "
        "deviation over seeds. The benchmark that the paper used reports the best epoch, by the "
        "test images",
        "STL-10: the printed gain of 2.00 is over DCLW; over SimCLR, the best contrastive row, "
        "it is 1.84",
        RULE,
    ]
    if scale == "cpu":
        lines += [
            "paper: 50,000 images, ResNet-18 of 64 channels, batch 128, 200 epochs; here 5,000, 16 "
            "channels, batch 64, 8 epochs, gradients of MIO and Barlow Twins clipped, BYOL's "
            "predictor ten times as fast: order can be compared, accuracies cannot",
            "CIFAR-100, STL-10 and Tiny-ImageNet are not here",
            "DCLW as printed has a gradient through its weights; the library that the paper used "
            "holds them constant, so that the printed accuracy stands beside both",
        ]
    return lines


def _bars(levels: dict[str, Spread | None]) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    def series(values: list[Spread | None]) -> Series:
        means = [None if s is None else s.mean for s in values]
        deviations = [None if s is None else s.deviation for s in values]
        return Series("", NAMES, means, spread=deviations)

    paper = Series("", NAMES, [float(PAPER.rows[PRINTED[n]][0] or 0) for n in NAMES])
    label = "accuracy, percent"
    return charts(
        [
            Chart("paper", [paper], y=label, kind="bars"),
            Chart("ours", [series([levels.get(n) for n in NAMES])], y=label, kind="bars"),
        ]
    )


ARTIFACT = Artifact(
    title="table 2: nearest neighbours of nine frameworks", jobs=jobs, render=render
)
