"""Table 3: the seven STS tasks after training with each loss, before and after modification."""

from isotrope.data.sts_sets import TASKS
from isotrope.experiments.reproduce.artifact import Artifact, Found, Scale, Shown, Table
from isotrope.experiments.reproduce.cell import Cell
from isotrope.experiments.unified_gradient.losses import EFFECTIVE, MODIFIED, ORIGINAL

ROWS = (*EFFECTIVE, *ORIGINAL, *MODIFIED)


def cells(scale: Scale) -> list[Cell]:
    """All losses."""
    return [cell for loss in ROWS for cell in loss.cells(scale)]


def show(scale: Scale, found: Found) -> Shown:
    """Return the table."""
    end = "best" if scale == "paper" else "last"
    rows = []
    for loss in ROWS:
        own = loss.cells(scale)
        spreads = [found.spread(own, f"{task} {end}") for task in (*TASKS, "average")]
        rows.append([loss.name, *(s and str(s) for s in spreads)])
    return Shown(tables=[Table(["loss", *TASKS, "average"], rows)])


ARTIFACT = Artifact(title="table 3: seven STS tasks after training", cells=cells, show=show)
