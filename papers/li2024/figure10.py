"""Figure 10: mean gradient dissipation over mu_neg and mu_pos, of InfoNCE and MPT."""

from papers.li2024.simulated import dissipated
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, no_jobs


def render(scale: Scale, results: Results) -> Rendered:
    """Simulate; nothing is trained."""
    return dissipated(scale, "figure10", "InfoNCE", "MPT")


ARTIFACT = Artifact(
    title="figure 10: gradient dissipation of InfoNCE and MPT, simulated",
    jobs=no_jobs,
    render=render,
)
