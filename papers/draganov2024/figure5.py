"""Figure 5: kNN accuracy and embedding norms of weights divided by any c, above and below 1."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from papers.draganov2024.cuts import Cuts, cut_groups
from papers.draganov2024.logged import at, curve, first, format_spread, listed, verdict
from papers.draganov2024.trainings import CUT, EPOCHS, cut_name
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.over_seeds import format_change
from papers.machinery.verdicts import RULE, Ruling, ahead, all_of, each, minus

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture


def jobs(scale: Scale) -> list[PaperJob]:
    """Everything that is drawn."""
    all_cuts = [cuts for group in cut_groups(scale).values() for cuts in group.values()]
    return [job for cuts in all_cuts for trainings in cuts.values() for job in trainings]


def render(scale: Scale, results: Results) -> Rendered:
    """Return pictures, and verdicts on the claims of the text."""
    early = EPOCHS[scale][0]
    header = ["", "c", "ours: norm in epoch 1", f"ours: kNN after epoch {early}"]
    tables: list[Sheet] = []
    verdicts: list[Ruling] = []
    pictures: dict[str, Callable[[], Picture]] = {}
    for rates, group in cut_groups(scale).items():
        rows = [
            [
                name,
                cut_name(c),
                format_spread(first(results, trainings, "norm"), 2),
                format_spread(at(results, trainings, "knn", early)),
            ]
            for name, cuts in group.items()
            for c, trainings in cuts.items()
        ]
        tables.append(Sheet(header, rows, rates))
        # at the recipes' rates the comparisons are those of table 3
        verdicts += [] if verdicts else _verdicts(results, group, early)
        pictures["figure5-recipes" if pictures else "figure5"] = partial(_drawn, results, group)
    return Rendered(tables=tables, verdicts=verdicts, pictures=pictures, notes=_notes(scale))


def _verdicts(results: Results, group: Cuts, early: int) -> list[Ruling]:
    knn = {
        name: {c: at(results, trainings, "knn", early) for c, trainings in cuts.items()}
        for name, cuts in group.items()
    }
    ends = {name: (row[CUT[name]], row[1]) for name, row in knn.items()}
    gain = {name: minus(a.by_seed, b.by_seed) for name, (a, b) in ends.items() if a and b}
    gains = ", ".join(f"{name} {format_change(level, 1)}" for name, level in gain.items())
    slower = listed(
        {
            f"{name}, c = {cut_name(c)}:": format_spread(level)
            for name, row in knn.items()
            for c, level in row.items()
            if min(row) < 1
        }
    )
    lower = [ahead(row[1], level) for row in knn.values() for c, level in row.items() if c < 1]
    norms = {
        name: {c: first(results, trainings, "norm") for c, trainings in sorted(cuts.items())}
        for name, cuts in group.items()
    }
    falling = {
        name: (
            all_of(ahead(a, b) for a, b in pairwise(row.values())),
            listed({f"c = {cut_name(c)}:": format_spread(level, 2) for c, level in row.items()}),
        )
        for name, row in norms.items()
    }
    more = {n: (ahead(gain.get(n), gain.get("SimCLR")), gains) for n in ("SimSiam", "BYOL")}
    graceful = "it degrades gracefully: c < 1 learns more slowly"
    return [
        *([verdict(graceful, lower, slower)] if lower else []),
        *each("{}: the larger c, the smaller the norms in the first epoch", falling),
        *each("{}, which only attracts, gains more by c > 1 than SimCLR", more),
    ]


def _drawn(results: Results, group: Cuts) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    panels = []
    for name, label in (("knn", "kNN accuracy, percent"), ("norm", "norm of the embeddings")):
        for method, cuts in group.items():
            lines = [
                Series(f"c = {cut_name(c)}", *curve(results, trainings, name))
                for c, trainings in cuts.items()
            ]
            log = name == "norm"
            panels.append(Chart(method, lines, "epoch", label, log_x=True, log_y=log))
    return charts(panels)


def _notes(scale: Scale) -> list[str]:
    seen = "Norms are means over the epoch that ends there; weight decay is 5e-4 throughout."
    if scale != "cpu":
        return [seen, RULE]
    return [
        seen,
        RULE,
        "Ours: 5,000 images of CIFAR-10, 78 steps an epoch. c below 1 was run for SimCLR alone, at "
        "the small learning rate.",
    ]


ARTIFACT = Artifact(title="figure 5: cut-initialization by any constant", jobs=jobs, render=render)
