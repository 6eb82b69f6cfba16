"""Figure 4: the dynamic ratios of ArcCon and MET over mu_neg and mu_pos."""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from isotrope.diagnostics import Angles, Landscape, numbers, ratio
from isotrope.reports import Picture, heatmaps
from papers.li2024.simulated import PAPER, set_up, simulated, surfaces
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling
from papers.paper_numbers import printed

_DRAWN = ("mu_pos over pi", "mu_neg over pi", "points of each axis")
_DYNAMIC, _STATIC = ("ArcCon", "MET"), ("InfoNCE", "MPT")
_AT = (math.pi / 6, math.pi / 3)  # mu_pos, mu_neg
_FORMULA = {  # R of table 1 there
    "ArcCon": math.sin(_AT[0] + math.pi / 18) / math.sin(_AT[0]),
    "MET": math.sin(_AT[1] / 2) / math.sin(_AT[0] / 2),
}


def render(scale: Scale, results: Results) -> Rendered:
    """Evaluate the formulas; nothing is drawn and nothing is trained."""
    landscapes = simulated(scale, "ratio")
    low, high = printed(PAPER, "figure4").rows["dynamic ratios"]
    read = {title: numbers("ratio", landscapes[title]) for title in _DYNAMIC}
    inside = {title: shares["from 1 to 2"] or 0.0 for title, shares in read.items()}
    mostly = {title: share > 0.5 for title, share in inside.items()}
    static = {title: _span(landscapes[title].value[landscapes[title].defined]) for title in _STATIC}
    point = Angles(np.array(_AT[:1]), np.array(_AT[1:]))
    rows = []
    for title in _DYNAMIC:
        (shares,) = ratio([landscapes[title].objective], point)
        measured, formula = float(shares.value[0, 0]), _FORMULA[title]
        same = math.isclose(measured, formula, rel_tol=1e-6)
        part, span = f"{inside[title]:.0%}", " to ".join(_told(read[title]))
        rows += [
            [title, "mostly from", f"{low} to {high}", part, _match(mostly[title])],
            [title, "from, to", "-", span, "-"],
            [title, "at (pi/6, pi/3), table 1", f"{formula:.4f}", f"{measured:.4f}", _match(same)],
        ]
    for title, (least, most) in static.items():
        same = least == most == 1
        rows.append([title, "from, to", "1", f"{least:.4g} to {most:.4g}", _match(same)])
    wide = {title: _span(landscapes[title].value) for title in _DYNAMIC}
    return Rendered(
        tables=[
            set_up(scale, _DRAWN),
            Sheet(
                ["objective", "ratio where training goes", "paper", "ours", "verdict"],
                rows,
                title="what can be read off, at (mu_pos, mu_neg)",
            ),
        ],
        verdicts=[
            Ruling(
                "dynamic ratios differ much over all angles",
                all(most > 2 * least for least, most in wide.values()),
                ", ".join(f"{t} {a:.2f} to {b:.2f}" for t, (a, b) in wide.items())
                + "; decided at a factor of 2",
            ),
            Ruling(
                f"where training goes, dynamic ratios are mostly from {low} to {high}",
                all(mostly.values()),
                ", ".join(f"{t} {share:.0%}" for t, share in inside.items()) + "; decided at half",
            ),
            Ruling(
                "the ratios of InfoNCE and MPT are 1",
                all(span == (1, 1) for span in static.values()),
                ", ".join(f"{t} {a:.4g} to {b:.4g}" for t, (a, b) in static.items()),
            ),
        ],
        pictures={"figure4": partial(_heatmaps, {title: landscapes[title] for title in _DYNAMIC})},
    )


def _span(values: NDArray[np.float64]) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return float(finite.min()), float(finite.max())


def _told(read: Mapping[str, float | None]) -> list[str]:
    return ["-" if read[end] is None else f"{read[end]:.3f}" for end in ("smallest", "largest")]


def _match(holds: bool) -> str:
    return "matches" if holds else "differs"


def _heatmaps(landscapes: Mapping[str, Landscape]) -> Picture:
    return heatmaps(surfaces(landscapes), "ratio", limits=(0.5, 4), lines=(1.5, 2))
