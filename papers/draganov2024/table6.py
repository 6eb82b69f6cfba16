"""Table 6: SimSiam over cut-constants and weight decays."""

from papers.draganov2024.cuts import small_cuts
from papers.draganov2024.grids import (
    Grid,
    cut_helps,
    helps,
    of_paper,
    theirs,
    trained,
)
from papers.draganov2024.trainings import decayed, slow
from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import RULE

NAME = "SimSiam"
PAPER = ("5e-5", "1e-4", "5e-4", "1e-3")
ROW: dict[Scale, tuple[str, ...]] = {"smoke": ("0", "5e-2"), "cpu": ("5e-6", "5e-4", "5e-3")}
STRONG = "3.75e-2"
"""Times learning rate .002 as much shrinking in a step as 5e-4 times .15."""


def grids(scale: Scale) -> dict[str, Grid]:
    """Return the trainings: the paper's grid, or a row and a part of it in its place."""
    if scale == "paper":
        return {"ours: kNN after 100 epochs": of_paper(NAME, "imagenet100", PAPER)}
    row = {decay: decayed(scale, NAME, decay) for decay in ROW[scale]}
    part: dict[float, dict[str, list[PaperJob]]] = {
        c: {"5e-4": trainings} for c, trainings in small_cuts(scale)[NAME].items()
    }
    if scale == "cpu":
        part[9][STRONG] = slow(scale, NAME, 9, weight_decay=float(STRONG))
    rates = (" (learning rate .15)", " (learning rate .002)") if scale == "cpu" else ("", "")
    return {f"ours: over decays{rates[0]}": {1: row}, f"ours: over cuts{rates[1]}": part}


def jobs(scale: Scale) -> list[PaperJob]:
    """Everything in the grids."""
    rows = [row for grid in grids(scale).values() for row in grid.values()]
    return [job for row in rows for trainings in row.values() for job in trainings]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the grids, and verdicts on cuts, on decays, and on both together."""
    grids_of_scale = grids(scale)
    wide, high = next(iter(grids_of_scale.values())), list(grids_of_scale.values())[-1]
    return Rendered(
        tables=[
            theirs("table6"),
            *(trained(results, grid, title) for title, grid in grids_of_scale.items()),
        ],
        verdicts=[
            cut_helps(results, high, NAME),
            helps(results, wide[1], f"{NAME}: more decay learns faster"),
            helps(
                results,
                high[max(high)],
                f"{NAME}: with weights divided by {max(high):g}, too, more decay learns faster",
            ),
        ],
        notes=_notes(scale),
    )


def _notes(scale: Scale) -> list[str]:
    if scale != "cpu":
        return [RULE]
    return [
        RULE,
        "Ours are 4 epochs on 5,000 images of CIFAR-10, a row and a part of the grid. At learning "
        f"rate .002 a decay of {STRONG} shrinks weights in a step as much as 5e-4 does at .15; "
        "without a cut it was not run there.",
    ]


ARTIFACT = Artifact(
    title="table 6: cut-constant and weight decay, SimSiam", jobs=jobs, render=render
)
