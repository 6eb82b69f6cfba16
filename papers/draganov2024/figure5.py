"""Figure 5: kNN accuracy and embedding norms of weights divided by any c, above and below 1."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from papers.draganov2024.cuts import Cuts, cut_groups
from papers.draganov2024.logged import at, curve, first, format_spread, listed, verdict
from papers.draganov2024.trainings import CUT, EPOCHS, cut_name
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table
from papers.machinery.job import PaperJob
from papers.machinery.over_seeds import format_change
from papers.machinery.verdicts import RULE, Verdict, ahead, minus

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
    tables, verdicts = [], []
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
        tables.append(Table(header, rows, rates))
        verdicts += _verdicts(results, group, early, rates)
        pictures["figure5-recipes" if pictures else "figure5"] = partial(_drawn, results, group)
    return Rendered(tables=tables, verdicts=verdicts, pictures=pictures, notes=_notes(scale))


def _verdicts(results: Results, group: Cuts, early: int, rates: str) -> list[Verdict]:
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
    falling = [ahead(a, b) for row in norms.values() for a, b in pairwise(row.values())]
    lengths = listed(
        {
            f"{n}, c = {cut_name(c)}:": format_spread(level, 2)
            for n, row in norms.items()
            for c, level in row.items()
        }
    )
    more = [ahead(gain.get(name), gain.get("SimCLR")) for name in ("SimSiam", "BYOL")]
    graceful = f"it degrades gracefully: c < 1 learns more slowly ({rates})"
    return [
        verdict(
            f"c > 1 learns faster from the first epochs on ({rates})",
            [ahead(level, row[1]) for row in knn.values() for c, level in row.items() if c > 1],
            gains,
        ),
        *([verdict(graceful, lower, slower)] if lower else []),
        verdict(
            f"the larger c, the smaller the norms in the first epoch ({rates})", falling, lengths
        ),
        verdict(f"methods that only attract gain more by it than SimCLR ({rates})", more, gains),
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
