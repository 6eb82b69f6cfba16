"""Figure 2: mean gradient dissipation over mu_neg and mu_pos, of ArcCon and MET."""

from papers.li2024.simulated import dissipated
from papers.machinery.artifact import Artifact, Found, Scale, Shown, no_cells


def show(scale: Scale, found: Found) -> Shown:
    """Simulate; nothing is trained."""
    return dissipated(scale, "figure2", "ArcCon", "MET")


ARTIFACT = Artifact(
    title="figure 2: gradient dissipation of ArcCon and MET, simulated",
    cells=no_cells,
    show=show,
)
