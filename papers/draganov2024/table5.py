"""Table 5: SimCLR over cut-constants and weight decays."""

from papers.draganov2024.cuts import small_cuts
from papers.draganov2024.grids import (
    Grid,
    cut_helps,
    flat,
    of_paper,
    theirs,
    trained,
)
from papers.draganov2024.trainings import decayed
from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import RULE

NAME = "SimCLR"
PAPER = ("1e-8", "1e-6", "5e-6", "1e-5")
SMALL: dict[Scale, tuple[str, ...]] = {"smoke": ("0",), "cpu": ("0", "5e-6")}
"""Decays of table 1 that are as small as those of this one."""


def grids(scale: Scale) -> dict[str, Grid]:
    """Return the trainings: the paper's grid, or a row and a column in its place."""
    if scale == "paper":
        return {"ours: kNN after 100 epochs": of_paper(NAME, "cifar100", PAPER)}
    row = {decay: decayed(scale, NAME, decay) for decay in SMALL[scale]}
    column = {c: {"5e-4": trainings} for c, trainings in small_cuts(scale)[NAME].items()}
    rates = (" (learning rate .15)", " (learning rate .001)") if scale == "cpu" else ("", "")
    return {f"ours: over decays{rates[0]}": {1: row}, f"ours: over cuts{rates[1]}": column}


def jobs(scale: Scale) -> list[PaperJob]:
    """Everything in the grids."""
    rows = [row for grid in grids(scale).values() for row in grid.values()]
    return [job for row in rows for trainings in row.values() for job in trainings]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the grids, and verdicts on cuts and on decays this small."""
    grids_of_scale = grids(scale)
    wide, high = next(iter(grids_of_scale.values())), list(grids_of_scale.values())[-1]
    return Rendered(
        tables=[
            theirs("table5"),
            *(trained(results, grid, title) for title, grid in grids_of_scale.items()),
        ],
        verdicts=[
            cut_helps(results, high, NAME),
            flat(results, wide[1], f"{NAME}: decays this small make no difference"),
        ],
        notes=_notes(scale),
    )


def _notes(scale: Scale) -> list[str]:
    if scale != "cpu":
        return [RULE]
    return [
        RULE,
        "Ours are 4 epochs on 5,000 images of CIFAR-10. Decays up to 1e-5 shrink weights by less "
        "than half a percent in so few steps, so there are a row of small decays and a column of "
        "cut-constants instead of the grid.",
    ]


ARTIFACT = Artifact(
    title="table 5: cut-constant and weight decay, SimCLR", jobs=jobs, render=render
)
