"""Figure 3e: the three probes while MPT trains with a margin that is too large."""

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.nie2023.losses import MARGINS, with_margin
from papers.nie2023.probes import AGAIN, DEV, NOT_AGAIN, TRAIN, CurveClaim, probed

CLAIMS = (
    CurveClaim("m = .80 overfits like DCL: on dev all probes fall and then rise", DEV, (AGAIN,)),
    CurveClaim("on train no probe falls and then rises", TRAIN, NOT_AGAIN),
)


def jobs(scale: Scale) -> list[PaperJob]:
    """MPT with the large margin."""
    return with_margin(scale, MARGINS[2])


def render(scale: Scale, results: Results) -> Rendered:
    """Return the curves and how they go."""
    return probed(scale, results, "figure3e", jobs(scale), CLAIMS)


ARTIFACT = Artifact(
    title="figure 3e: L_cl, L_align and L_uniform while MPT trains with m = .80",
    jobs=jobs,
    render=render,
)
