"""Figure 1c: the three probes while alignment and uniformity are trained jointly."""

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.nie2023.losses import longer
from papers.nie2023.probes import AGAIN, NOT_AGAIN, TRAIN, CurveClaim, probed

CLAIMS = (
    CurveClaim(
        "alignment and uniformity overfit: on dev L_cl and L_uniform fall and then rise",
        ("dev contrastive", "dev uniformity"),
        (AGAIN,),
    ),
    CurveClaim("L_align does not fall and then rise on dev", ("dev alignment",), NOT_AGAIN),
    CurveClaim("on train no probe falls and then rises", TRAIN, NOT_AGAIN),
)


def jobs(scale: Scale) -> list[PaperJob]:
    """Alignment and uniformity."""
    return longer(scale, "alignuniform")


def render(scale: Scale, results: Results) -> Rendered:
    """Return the curves and how they go."""
    return probed(scale, results, "figure1c", jobs(scale), CLAIMS)


ARTIFACT = Artifact(
    title="figure 1c: L_cl, L_align and L_uniform while alignment and uniformity train",
    jobs=jobs,
    render=render,
)
