"""Figure 5: kNN accuracy and embedding norms of weights divided by any c, above and below 1."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from papers.draganov2024.cuts import Cuts, cut_groups
from papers.draganov2024.logged import at, course, first, listed, told, verdict
from papers.draganov2024.trainings import CUT, EPOCHS, cut_name
from papers.machinery.artifact import Artifact, Found, Scale, Shown, Table
from papers.machinery.job import Cell
from papers.machinery.over_seeds import signed
from papers.machinery.verdicts import RULE, Verdict, ahead, minus

if TYPE_CHECKING:
    from isotrope.report.surfaces import Picture


def cells(scale: Scale) -> list[Cell]:
    """Everything that is drawn."""
    every = [cuts for group in cut_groups(scale).values() for cuts in group.values()]
    return [cell for cuts in every for own in cuts.values() for cell in own]


def show(scale: Scale, found: Found) -> Shown:
    """Return pictures, and what the text sees in its own."""
    early = EPOCHS[scale][0]
    header = ["", "c", "ours: norm in epoch 1", f"ours: kNN after epoch {early}"]
    tables, verdicts = [], []
    pictures: dict[str, Callable[[], Picture]] = {}
    for rates, group in cut_groups(scale).items():
        rows = [
            [
                name,
                cut_name(c),
                told(first(found, own, "norm"), 2),
                told(at(found, own, "knn", early)),
            ]
            for name, cuts in group.items()
            for c, own in cuts.items()
        ]
        tables.append(Table(header, rows, rates))
        verdicts += _verdicts(found, group, early, rates)
        pictures["figure5-recipes" if pictures else "figure5"] = partial(_drawn, found, group)
    return Shown(tables=tables, verdicts=verdicts, pictures=pictures, notes=_notes(scale))


def _verdicts(found: Found, group: Cuts, early: int, rates: str) -> list[Verdict]:
    knn = {
        name: {c: at(found, own, "knn", early) for c, own in cuts.items()}
        for name, cuts in group.items()
    }
    ends = {name: (row[CUT[name]], row[1]) for name, row in knn.items()}
    gain = {name: minus(a.by_seed, b.by_seed) for name, (a, b) in ends.items() if a and b}
    gains = ", ".join(f"{name} {signed(one, 1)}" for name, one in gain.items())
    slower = listed(
        {
            f"{name}, c = {cut_name(c)}:": told(one)
            for name, row in knn.items()
            for c, one in row.items()
            if min(row) < 1
        }
    )
    lower = [ahead(row[1], one) for row in knn.values() for c, one in row.items() if c < 1]
    norms = {
        name: {c: first(found, own, "norm") for c, own in sorted(cuts.items())}
        for name, cuts in group.items()
    }
    falling = [ahead(a, b) for row in norms.values() for a, b in pairwise(row.values())]
    lengths = listed(
        {
            f"{n}, c = {cut_name(c)}:": told(one, 2)
            for n, row in norms.items()
            for c, one in row.items()
        }
    )
    more = [ahead(gain.get(name), gain.get("SimCLR")) for name in ("SimSiam", "BYOL")]
    graceful = f"it degrades gracefully: c < 1 learns more slowly ({rates})"
    return [
        verdict(
            f"c > 1 learns faster from the first epochs on ({rates})",
            [ahead(one, row[1]) for row in knn.values() for c, one in row.items() if c > 1],
            gains,
        ),
        *([verdict(graceful, lower, slower)] if lower else []),
        verdict(
            f"the larger c, the smaller the norms in the first epoch ({rates})", falling, lengths
        ),
        verdict(f"methods that only attract gain more by it than SimCLR ({rates})", more, gains),
    ]


def _drawn(found: Found, group: Cuts) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    panels = []
    for name, label in (("knn", "kNN accuracy, percent"), ("norm", "norm of the embeddings")):
        for method, cuts in group.items():
            lines = [
                Series(f"c = {cut_name(c)}", *course(found, own, name)) for c, own in cuts.items()
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


ARTIFACT = Artifact(title="figure 5: cut-initialization by any constant", cells=cells, show=show)
