"""Figure 1b: the three probes while InfoNCE trains."""

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.nie2023.losses import longer
from papers.nie2023.probes import DEV, NOT_AGAIN, STAYS, TRAIN, CurveClaim, probed

CLAIMS = (
    CurveClaim("InfoNCE does not overfit: on dev no probe falls and then rises", DEV, NOT_AGAIN),
    CurveClaim(
        "under InfoNCE all probes fall and stay down, on both sets", (*TRAIN, *DEV), (STAYS,)
    ),
)


def jobs(scale: Scale) -> list[PaperJob]:
    """InfoNCE."""
    return longer(scale, "infonce")


def render(scale: Scale, results: Results) -> Rendered:
    """Return the curves and how they go."""
    return probed(scale, results, "figure1b", jobs(scale), CLAIMS)


ARTIFACT = Artifact(
    title="figure 1b: L_cl, L_align and L_uniform on train and dev while InfoNCE trains",
    jobs=jobs,
    render=render,
)
