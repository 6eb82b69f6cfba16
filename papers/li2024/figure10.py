"""Figure 10: mean gradient dissipation over mu_neg and mu_pos, of InfoNCE and MPT."""

from papers.li2024.simulated import dissipated
from papers.machinery.artifact import Artifact, Found, Scale, Shown, no_cells


def show(scale: Scale, found: Found) -> Shown:
    """Simulate; nothing is trained."""
    return dissipated(scale, "figure10", "InfoNCE", "MPT")


ARTIFACT = Artifact(
    title="figure 10: gradient dissipation of InfoNCE and MPT, simulated",
    cells=no_cells,
    show=show,
)
