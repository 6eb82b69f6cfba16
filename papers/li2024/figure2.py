"""Figure 2: mean gradient dissipation over mu_neg and mu_pos, of ArcCon and MET."""

from papers.li2024.simulated import dissipated
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, no_jobs


def render(scale: Scale, results: Results) -> Rendered:
    """Simulate; nothing is trained."""
    return dissipated(scale, "figure2", "ArcCon", "MET")


ARTIFACT = Artifact(
    title="figure 2: gradient dissipation of ArcCon and MET, simulated",
    jobs=no_jobs,
    render=render,
)
