"""Figure 2: mean gradient dissipation over mu_neg and mu_pos, of ArcCon and MET."""

from papers.li2024.simulated import dissipated
from papers.machinery.artifact import Rendered, Results, Scale


def render(scale: Scale, results: Results) -> Rendered:
    """Simulate; nothing is trained."""
    return dissipated(scale, "figure2", "ArcCon", "MET")
