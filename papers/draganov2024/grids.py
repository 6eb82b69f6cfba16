"""Accuracies over cut-constants and weight decays, for tables 5 and 6."""

from collections.abc import Mapping, Sequence

from papers.draganov2024.logged import format_spread, last, listed, verdict
from papers.draganov2024.trainings import cut_name, paper
from papers.machinery.artifact import Results, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Ruling, ahead, negated
from papers.paper_numbers import printed

CUTS = (1, 2, 4, 8)
"""Of the paper's grids."""

Grid = Mapping[float, Mapping[str, Sequence[PaperJob]]]
"""Trainings by cut-constant and weight decay."""


def of_paper(name: str, data: str, decays: Sequence[str]) -> Grid:
    """Return the paper's grid of a method: 100 epochs each."""
    return {
        c: {
            decay: paper(name, data=data, epochs=100, cut=c, weight_decay=float(decay))
            for decay in decays
        }
        for c in CUTS
    }


def theirs(table: str) -> Sheet:
    """Return a grid as the paper prints it."""
    table_of_paper = printed("cosine-pitfalls", table)
    rows = [
        [row.partition("/")[2], *map(str, values)] for row, values in table_of_paper.rows.items()
    ]
    return Sheet(["decay", *table_of_paper.columns], rows, "paper: kNN after 100 epochs")


def trained(results: Results, grid: Grid, title: str) -> Sheet:
    """Return a grid as it was measured; an empty cell is none of it."""
    decays = list(dict.fromkeys(decay for row in grid.values() for decay in row))
    rows = [
        [
            f"c={cut_name(c)}",
            *(format_spread(last(results, row[d], "knn")) if d in row else "" for d in decays),
        ]
        for c, row in grid.items()
    ]
    return Sheet(["decay", *decays], rows, title)


def cut_helps(results: Results, grid: Grid, name: str) -> Ruling:
    """Return whether at every decay the best of the cuts above 1 is above none."""
    answers, evidence = [], []
    for decay, trainings in grid[1].items():
        plain = last(results, trainings, "knn")
        cuts = {c: last(results, row[decay], "knn") for c, row in grid.items() if decay in row}
        cut_accuracies = {c: level for c, level in cuts.items() if c > 1 and level is not None}
        if not any(c > 1 for c in cuts):
            continue
        best = max(cut_accuracies, key=lambda c: cut_accuracies[c].mean, default=None)
        answers.append(None if best is None else ahead(cut_accuracies[best], plain))
        if best is not None and plain is not None:
            evidence.append(
                f"decay {decay}: c={cut_name(best)} {format_spread(cut_accuracies[best])}, "
                f"1 {format_spread(plain)}"
            )
    claim = f"{name}: weights divided by some c > 1 learn faster than those that are not"
    return verdict(claim, answers, "; ".join(evidence))


def helps(results: Results, row: Mapping[str, Sequence[PaperJob]], claim: str) -> Ruling:
    """Return whether the largest of the decays in a row is better than the smallest."""
    ends = max(row, key=float), min(row, key=float)
    more, less = (last(results, row[decay], "knn") for decay in ends)
    evidence = listed({f"{ends[0]}:": format_spread(more), f"{ends[1]}:": format_spread(less)})
    return verdict(claim, [ahead(more, less)] if ends[0] != ends[1] else [], evidence)


def flat(results: Results, row: Mapping[str, Sequence[PaperJob]], claim: str) -> Ruling:
    """Return whether no decay of a row is above another."""
    knn = {decay: last(results, trainings, "knn") for decay, trainings in row.items()}
    pairs = [ahead(knn[a], knn[b]) for a in knn for b in knn if a != b]
    evidence = listed({f"{decay}:": format_spread(level) for decay, level in knn.items()})
    return verdict(claim, [negated(pair) for pair in pairs], evidence)
