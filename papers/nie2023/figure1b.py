"""Figure 1b: the three probes while InfoNCE trains."""

from papers.machinery.artifact import Artifact, Found, Scale, Shown
from papers.machinery.job import Cell
from papers.nie2023.losses import longer
from papers.nie2023.probes import DEV, NOT_AGAIN, STAYS, TRAIN, Claim, probed

CLAIMS = (
    Claim("InfoNCE does not overfit: on dev no probe falls and then rises", DEV, NOT_AGAIN),
    Claim("under InfoNCE all probes fall and stay down, on both sets", (*TRAIN, *DEV), (STAYS,)),
)


def cells(scale: Scale) -> list[Cell]:
    """InfoNCE."""
    return longer(scale, "infonce")


def show(scale: Scale, found: Found) -> Shown:
    """Return the curves and how they go."""
    return probed(scale, found, "figure1b", cells(scale), CLAIMS)


ARTIFACT = Artifact(
    title="figure 1b: L_cl, L_align and L_uniform on train and dev while InfoNCE trains",
    cells=cells,
    show=show,
)
