"""Figure 3e: the three probes while MPT trains with a margin that is too large."""

from papers.machinery.artifact import Artifact, Found, Scale, Shown
from papers.machinery.job import Cell
from papers.nie2023.losses import MARGINS, with_margin
from papers.nie2023.probes import AGAIN, DEV, NOT_AGAIN, TRAIN, Claim, probed

CLAIMS = (
    Claim("m = .80 overfits like DCL: on dev all probes fall and then rise", DEV, (AGAIN,)),
    Claim("on train no probe falls and then rises", TRAIN, NOT_AGAIN),
)


def cells(scale: Scale) -> list[Cell]:
    """MPT with the large margin."""
    return with_margin(scale, MARGINS[2])


def show(scale: Scale, found: Found) -> Shown:
    """Return the curves and how they go."""
    return probed(scale, found, "figure3e", cells(scale), CLAIMS)


ARTIFACT = Artifact(
    title="figure 3e: L_cl, L_align and L_uniform while MPT trains with m = .80",
    cells=cells,
    show=show,
)
