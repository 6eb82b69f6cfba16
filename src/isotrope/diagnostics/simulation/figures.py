"""Computes figures of Li et al. (2024) and Nie et al. (2023) for any objective."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from isotrope.core.errors import InputError
from isotrope.diagnostics.simulation.angle_draws import USUAL, Angles, Draws
from isotrope.diagnostics.simulation.averages import (
    Landscape,
    dissipation,
    gradient_norm,
    hardest_share,
    ratio,
)
from isotrope.paradigm.registry import build

Kind = Literal["dissipation", "weight", "ratio", "norm"]


@dataclass(frozen=True)
class FigurePanel:
    """One objective in a figure.

    Attributes:
        name: Name of the objective in the registry.
        negatives: Number of negatives of an anchor; None for the number of the paper's figure.
    """

    title: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    negatives: int | None = None


# temperatures and margins of Nie et al., 2023, table 2 (BERT-base); ArcCon's margin u as in the
# released code of Li et al., 2024
_INFONCE = FigurePanel("InfoNCE", "infonce", {"temperature": 0.05})
_ARCCON = FigurePanel("ArcCon", "arccon", {"temperature": 0.05, "margin": math.pi / 18})
_MPT = FigurePanel("MPT", "mpt", {"margin": 0.23})
_MET = FigurePanel("MET", "met", {"margin": 0.45})

FIGURES: dict[Kind, list[FigurePanel]] = {
    "dissipation": [_INFONCE, _ARCCON, _MPT, _MET],
    "weight": [
        FigurePanel(f"\N{GREEK SMALL LETTER TAU} = {tau:g}", "infonce", {"temperature": tau})
        for tau in (0.3, 0.1, 0.05, 0.03, 0.01, 0.005)
    ],
    "ratio": [_ARCCON, _MET],
    # figure 2a shows InfoNCE for four numbers of negatives; the text names only 64
    "norm": [
        *(
            FigurePanel(f"InfoNCE, {k:,} negatives", "infonce", {"temperature": 0.05}, k)
            for k in (64, 256, 1024, 4096)
        ),
        FigurePanel("align & uniform", "alignuniform", {"alpha": 2.0, "t": 6.0, "balance": 0.1}),
        FigurePanel("DCL", "dcl", {"temperature": 0.03}),
        FigurePanel("DCL+", "dclplus", {"temperature": 0.17}),
        _MPT,
        _MET,
        FigurePanel("MAT", "mat", {"margin": 0.15 * math.pi}),
    ],
}
_NEGATIVES: dict[Kind, int] = {"dissipation": 127, "weight": 127, "ratio": 127, "norm": 64}


def figure(
    kind: Kind,
    panels: Sequence[FigurePanel] | None = None,
    *,
    grid: int = 100,
    negatives: int | None = None,
    batches: int = 1000,
    draws: Draws = USUAL,
    gated: bool = False,
    part: Literal["alignment", "uniformity"] = "alignment",
) -> list[Landscape]:
    """Return the numbers of a figure of the papers: one ``Landscape`` for each panel.

    Args:
        kind: What is drawn. ``dissipation``: gradient dissipation; ``weight``: the hardest
            negative's share of the push; ``ratio``: pull divided by push; ``norm``: norm of a part.
        panels: Objectives to draw. None: the objectives of the paper's figure.
        grid: Number of values of mu_pos and of mu_neg; for ``weight``, mu_pos has one value.
        negatives: Number of negatives of an anchor; by default the number in the paper's figure.
        batches: Batches drawn for every pair of means, for ``dissipation`` and ``weight``.
        draws: How the batches are drawn.
        gated: See :func:`~isotrope.diagnostics.simulation.averages.hardest_share`.
        part: See :func:`~isotrope.diagnostics.simulation.averages.gradient_norm`.
    """
    if grid < 2:
        raise InputError(f"give a grid of 2 or more values for each angle; found {grid}")
    panels = FIGURES[kind] if panels is None else panels
    objectives = [build(panel.name, panel.settings) for panel in panels]

    def angles(panel: FigurePanel) -> Angles:
        negative_count = _NEGATIVES[kind] if panel.negatives is None else panel.negatives
        return Angles(
            np.array([0.5]) if kind == "weight" else np.linspace(0.05, 0.5, grid) * np.pi,
            np.linspace(0.05, 1, grid) * np.pi,
            negatives=negative_count if negatives is None else negatives,
            batches=batches,
        )

    if kind == "norm":
        return [
            gradient_norm([objective], angles(panel), part=part)[0]
            for objective, panel in zip(objectives, panels, strict=True)
        ]
    same = angles(panels[0])
    if kind == "ratio":
        return ratio(objectives, same)
    if kind == "weight":
        return hardest_share(objectives, same, gated=gated, draws=draws)
    return dissipation(objectives, same, draws)


def numbers(kind: Kind, landscape: Landscape) -> dict[str, float | None]:
    """Return the main numbers of a landscape: a dict from headings to numbers.

    ``dissipation``: the mu_neg at which GD falls below 0.5 for mu_pos = pi/6, and the largest
    standard error. ``weight``: the hardest negative's share at four mu_neg. ``ratio``: smallest
    and largest ratio R, and the share of ratios from 1 to 2. ``norm``: smallest and largest norm,
    and the share of norms below a hundredth of the largest norm. An undefined number is None.
    """
    inside = landscape.value[landscape.defined]
    if kind == "dissipation":
        return {"mu_neg": landscape.crossing(math.pi / 6), "error <=": float(landscape.error.max())}
    if kind == "weight":
        points = {"pi/4": 0.25, "pi/2": 0.5, "3 pi/4": 0.75, "pi": 1.0}
        shares = np.interp(
            [at * math.pi for at in points.values()], landscape.negative, landscape.value[0]
        )
        return {
            name: float(share) if math.isfinite(share) else None
            for name, share in zip(points, shares, strict=True)
        }
    last = "from 1 to 2" if kind == "ratio" else "under 1 %"
    if not inside.size:
        return dict.fromkeys(("smallest", "largest", last))
    low, high = float(inside.min()), float(inside.max())
    part = (inside >= 1) & (inside <= 2) if kind == "ratio" else inside < 0.01 * high
    return {"smallest": low, "largest": high, last: float(part.mean())}
