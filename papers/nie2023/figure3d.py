"""Figure 3d: the three probes while MPT trains with its best margin."""

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.nie2023.losses import MARGINS, with_margin
from papers.nie2023.probes import DEV, NOT_AGAIN, STAYS, CurveClaim, probed

CLAIMS = (
    CurveClaim("m = .23 does not overfit: on dev no probe falls and then rises", DEV, NOT_AGAIN),
    CurveClaim(
        "with m = .23 L_cl falls and stays down, on both sets",
        ("train contrastive", "dev contrastive"),
        (STAYS,),
    ),
)


def jobs(scale: Scale) -> list[PaperJob]:
    """MPT as in table 1."""
    return with_margin(scale, MARGINS[1])


def render(scale: Scale, results: Results) -> Rendered:
    """Return the curves and how they go."""
    return probed(scale, results, "figure3d", jobs(scale), CLAIMS)


ARTIFACT = Artifact(
    title="figure 3d: L_cl, L_align and L_uniform while MPT trains with m = .23",
    jobs=jobs,
    render=render,
)
