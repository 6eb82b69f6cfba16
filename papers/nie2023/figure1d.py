"""Figure 1d: the three probes while DCL trains."""

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.nie2023.losses import longer
from papers.nie2023.probes import AGAIN, DEV, NOT_AGAIN, TRAIN, CurveClaim, probed

CLAIMS = (
    CurveClaim("DCL overfits: on dev all three probes fall and then rise", DEV, (AGAIN,)),
    CurveClaim("on train no probe falls and then rises", TRAIN, NOT_AGAIN),
)


def jobs(scale: Scale) -> list[PaperJob]:
    """DCL."""
    return longer(scale, "dcl")


def render(scale: Scale, results: Results) -> Rendered:
    """Return the curves and how they go."""
    return probed(scale, results, "figure1d", jobs(scale), CLAIMS)


ARTIFACT = Artifact(
    title="figure 1d: L_cl, L_align and L_uniform on train and dev while DCL trains",
    jobs=jobs,
    render=render,
)
