"""Table 1: kNN accuracies and embedding norms with different weight decays."""

from itertools import pairwise

from papers.draganov2024.logged import format_spread, last, listed, verdict
from papers.draganov2024.trainings import CUT, DECAYS, ROW, decayed
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import RULE, Ruling, Spread, ahead, negated
from papers.paper_numbers import printed

CHANCE, NOTHING = 10.0, 0.05
"""Percent for ten classes; a norm that the paper prints as 0.0."""

Row = dict[str, Spread | None]


def jobs(scale: Scale) -> list[PaperJob]:
    """Every decay of every method."""
    return [job for name in CUT for decay in DECAYS[scale] for job in decayed(scale, name, decay)]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the table, and verdicts on the claims of the text, method by method."""
    paper = printed("cosine-pitfalls", "table1")
    rows, verdicts = [], []
    for name in CUT:
        measured = {decay: decayed(scale, name, decay) for decay in DECAYS[scale]}
        knn: Row = {decay: last(results, trainings, "knn") for decay, trainings in measured.items()}
        norm: Row = {
            decay: last(results, trainings, "norm") for decay, trainings in measured.items()
        }
        for decay in DECAYS[scale]:
            printed_row = dict(zip(paper.columns, paper.rows[decay], strict=True))
            row = [f"{printed_row[f'{ROW[name]}/{column}']}" for column in ("kNN", "norm")]
            rows.append(
                [name, decay, *row, format_spread(knn[decay]), format_spread(norm[decay], 3)]
            )
        verdicts += _verdicts(name, knn, norm)
    header = ["", "decay", "paper: kNN", "paper: norm", "ours: kNN", "ours: norm"]
    return Rendered(tables=[Sheet(header, rows)], verdicts=verdicts, notes=_notes(scale))


def _verdicts(name: str, knn: Row, norm: Row) -> list[Ruling]:
    decays = list(knn)
    largest, none = decays[0], decays[-1]
    steps = [ahead(norm[more], norm[less]) for more, less in pairwise(decays)]
    ends = ahead(norm[none], norm[largest])
    inner = [decay for decay in decays[1:-1] if knn[decay] is not None]
    best = max(inner, key=lambda decay: _mean(knn[decay]), default="")
    peaks = [ahead(knn.get(best), knn[end]) for end in (largest, none)]
    collapsed, shrunk = knn[largest], norm[largest]
    return [
        verdict(
            f"{name}: decay {largest} collapses training: accuracy of chance, norms of nothing",
            [
                None if collapsed is None else collapsed.mean < CHANCE + 2,
                None if shrunk is None else shrunk.mean < NOTHING,
            ],
            listed({"kNN": format_spread(collapsed), "norm": format_spread(shrunk, 3)}),
        ),
        verdict(
            f"{name}: norms rise as decay falls, and in no step clearly fall",
            [ends, *(negated(step) for step in steps)],
            listed({f"{decay}:": format_spread(norm[decay], 2) for decay in decays}),
        ),
        verdict(
            f"{name}: accuracy peaks at a decay inside, not at the largest and not at none",
            [*peaks, *(knn[decay] is not None or None for decay in decays[1:-1])],
            listed({f"{decay}:": format_spread(knn[decay]) for decay in decays}),
        ),
    ]


def _mean(spread: Spread | None) -> float:
    return -1.0 if spread is None else spread.mean


def _notes(scale: Scale) -> list[str]:
    shared = [
        "Norms are of what the objective sees, over the last epoch: projections of SimCLR, "
        "predictions of SimSiam and BYOL.",
        RULE,
    ]
    if scale == "paper":
        return [*shared, "The table does not say after which epoch; ours is 100."]
    if scale == "smoke":
        return shared
    return [
        "4 epochs of 5,000 images, ResNet-18 of 16 channels, learning rate .15: what decay does "
        "grows with learning rate times steps, so ours does far less of it than the paper's.",
        *shared,
    ]


ARTIFACT = Artifact(
    title="table 1: weight decay, kNN accuracy and embedding norm", jobs=jobs, render=render
)
