"""Trainings from weights divided by a cut-constant c, shared by figure 5 and tables 5 and 6."""

from collections.abc import Mapping

from papers.draganov2024.trainings import CUT, cut, default, paper, slow
from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob

Cuts = Mapping[str, Mapping[float, list[PaperJob]]]
"""Trainings by method and cut-constant."""

_ANY = (1 / 9, 1 / 3, 1, 3, 9)
_DECAY = 5e-4  # throughout figure 5, as printed


def small_cuts(scale: Scale) -> Cuts:
    """Return the trainings at small learning rates; at ``smoke`` scale at the recipes'."""
    if scale == "smoke":
        recipe_cuts = _recipe_cuts(scale)
        third = default(scale, "SimCLR", cut=1 / 3)
        return {**recipe_cuts, "SimCLR": {1 / 3: third, **recipe_cuts["SimCLR"]}}
    return {
        name: {x: slow(scale, name, x) for x in ((1 / 3, 1, c) if name == "SimCLR" else (1, c))}
        for name, c in CUT.items()
    }


def _recipe_cuts(scale: Scale) -> Cuts:
    return {name: {1: default(scale, name), c: cut(scale, name)} for name, c in CUT.items()}


def cut_groups(scale: Scale) -> dict[str, Cuts]:
    """Return all that figure 5 shows, by learning rates.

    The cut-constants of its curves are not in the text; at ``paper`` scale they are powers of 3.
    """
    if scale == "paper":
        grid = {n: {c: paper(n, cut=c, weight_decay=_DECAY) for c in _ANY} for n in CUT}
        return {"the paper's learning rates": grid}
    if scale == "smoke":
        return {"the recipes' learning rates": small_cuts(scale)}
    return {
        "learning rates a thirtieth of the recipes'": small_cuts(scale),
        "the recipes' learning rates": _recipe_cuts(scale),
    }
