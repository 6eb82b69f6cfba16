"""Norms of the gradient's parts over two angles, without training, for figures 2 and 4.

Ours are measured on the objectives' own components. Beside them stand the paper's equations, with
slips corrected: eq. 11 has the sine of the positive's angle; the conditions of eq. 20-22 (and of
38-40, where rho is a distance as in 37) are those under which the loss is above 0: printed is a sum
for a difference, or the difference reversed. All angles of one kind are equal, 1/||h_i|| is left
out, and one batch has as many anchors as an anchor needs for its negatives.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isotrope.diagnostics import (
    FIGURES,
    Angles,
    FigurePanel,
    Landscape,
    figure,
    gradient_norm,
    numbers,
)
from isotrope.paradigm import build
from isotrope.reports import ANGLES, Picture, Surface, heatmaps
from papers.machinery.artifact import Scale, Sheet
from papers.machinery.verdicts import Ruling
from papers.nie2023.losses import MARGINS

Floats = NDArray[np.float64]
Part = Literal["alignment", "uniformity"]
COUNTS = (64, 256, 1024, 4096)
"""Negatives of InfoNCE in figure 2a: the text names 64; the others are ours."""

_GRID: dict[Scale, int] = {"smoke": 8, "cpu": 100, "paper": 100}
_POINTS = ((1 / 6, 1 / 4), (1 / 6, 1 / 3))  # of pi: angles to the positive and to the negatives
_SHADED = 0.01  # of the largest norm of a panel
_EDGE = 1e-9  # radians
_NUMBERS: dict[Part, dict[str, str]] = {
    "alignment": {"infonce": "7", "alignuniform": "8", "dcl": "9", "dclplus": "11"}
    | dict.fromkeys(("mpt", "met", "mat"), "39"),
    "uniformity": {"infonce": "16", "alignuniform": "17", "dcl": "18", "dclplus": "19"}
    | {"mpt": "20", "met": "21", "mat": "22"},
}

PANELS: dict[str, FigurePanel] = {panel.title: panel for panel in FIGURES["norm"]} | {
    f"MPT, m = {m:.2f}": FigurePanel(f"MPT, m = {m:.2f}", "mpt", {"margin": m}) for m in MARGINS
}
"""By title; those without a number of negatives have 64."""


@functools.cache
def surfaces(scale: Scale, part: Part) -> dict[str, Landscape]:
    """Return the norm of a part of the gradient for every panel, by title."""
    landscapes = figure("norm", list(PANELS.values()), grid=_GRID[scale], part=part)
    return dict(zip(PANELS, landscapes, strict=True))


def left(name: str, values: Mapping[str, float], p: Floats, n: Floats, k: float) -> Floats:
    """Return how much of an anchor's gradient is left by the paper's equations, 0 to 1."""
    gap = np.cos(p) - np.cos(n)
    if name == "infonce":
        return np.asarray(1 / (1 + np.exp(gap / values["temperature"] - np.log(k))))
    if name == "dclplus":
        return np.asarray(gap < values["temperature"] * np.log(k), dtype=float)
    if name in ("mpt", "met", "mat"):
        met = 2 * (np.sin(n / 2) - np.sin(p / 2))
        gap = {"mpt": gap, "met": met, "mat": n - p}[name]
        return np.asarray(gap < values["margin"], dtype=float)
    return np.ones_like(gap)  # what is decoupled


def equation(
    panel: FigurePanel, part: Part, p: Floats, n: Floats, k: float | None = None
) -> Floats:
    """Return the norm of a part of the gradient by the paper's equation."""
    name, values, k = panel.name, panel.settings, k or panel.negatives or COUNTS[0]
    angle = p if part == "alignment" else n
    if name == "alignuniform" and part == "alignment":
        alpha, share = values["alpha"], (1 - values["balance"]) / (k + 1)
        slope = share * alpha * (2 * np.sin(p / 2)) ** (alpha - 2) * np.sin(p)
    elif name == "alignuniform":
        slope = values["balance"] * 2 * values["t"] * np.sin(n) / ((k + 1) * k)
    elif name in ("infonce", "dcl", "dclplus"):
        slope = np.sin(angle) / values["temperature"] / (1 if part == "alignment" else k)
    else:
        slope = {"mpt": np.sin(angle), "met": np.cos(angle / 2), "mat": np.ones_like(angle)}[name]
    return np.asarray(left(name, values, p, n, k) * slope)


def side_by_side(scale: Scale, part: Part, titles: Sequence[str]) -> Sheet:
    """Return the paper's equations beside what the components give, a row for each panel."""
    rows = []
    for title in titles:
        panel, landscape = PANELS[title], surfaces(scale, part)[title]
        columns = [title, _NUMBERS[part][panel.name]]
        for p, n in _POINTS:
            printed_norm = equation(panel, part, np.array(p * np.pi), np.array(n * np.pi))
            columns += [
                f"{float(printed_norm):.4g}",
                f"{_at(panel, part, p * np.pi, n * np.pi):.4g}",
            ]
        low = numbers("norm", landscape)["under 1 %"] or 0.0
        rows.append([*columns, f"{_difference(panel, part, landscape):.0e}", f"{100 * low:.1f} %"])
    points = [f"at pi/{1 / p:.0f}, pi/{1 / n:.0f}" for p, n in _POINTS]
    header = ["panel", "eq."]
    header += [f"{whose}, {point}" for point in points for whose in ("paper", "ours")]
    return Sheet(
        [*header, "largest difference", "under 1 % of the largest"],
        rows,
        title=f"norm of the {part} part at angles to the positive and to the negatives",
    )


def agreement(scale: Scale, part: Part, titles: Sequence[str]) -> Ruling:
    """Return whether components and equations give the same surfaces."""
    landscapes = surfaces(scale, part)
    worst = max(_difference(PANELS[title], part, landscapes[title]) for title in titles)
    return Ruling(
        f"the {part} part of every gradient has the norm of the paper's equation (slips corrected)",
        worst < 1e-9,
        f"largest difference over the panels, in parts of a panel's largest value: {worst:.0e}",
    )


def misprinted(scale: Scale, part: Part) -> Ruling:
    """Return on how much of the plane the equations give another norm as they are printed."""
    at = surfaces(scale, part)["MPT"]
    p, n = np.meshgrid(at.positive, at.negative, indexing="ij")
    m = {name: float(PANELS[name].settings["margin"]) for name in ("MPT", "MET", "MAT")}
    plus = PANELS["DCL+"]
    wrong = {
        "alignment": {
            "DCL+": left(plus.name, plus.settings, p, n, COUNTS[0])
            * np.sin(n)
            / plus.settings["temperature"]
        },
        "uniformity": {
            "MPT": np.sin(n) * (np.cos(p) + np.cos(n) < m["MPT"]),
            "MET": np.cos(n / 2) * (2 * np.sin(p / 2) - 2 * np.sin(n / 2) < m["MET"]),
            "MAT": np.ones_like(n) * (p - n < m["MAT"]),
        },
    }
    off = {}
    for title, printed_norm in wrong[part].items():
        right = equation(PANELS[title], part, p, n)
        number = _NUMBERS[part][PANELS[title].name]
        off[number] = float((np.abs(printed_norm - right) > _SHADED * right.max()).mean())
    return Ruling(
        f"eq. {', '.join(off)}: the norm is right as printed",
        not any(off.values()),
        "another norm on "
        + ", ".join(f"{share:.0%} of the plane (eq. {number})" for number, share in off.items()),
    )


def shaded(values: Floats) -> float:
    """Return the share of a surface under a hundredth of its largest value."""
    return float((values < _SHADED * values.max()).mean())


def active(scale: Scale, panel: FigurePanel) -> NDArray[np.bool_]:
    """Return where an objective has more than half of its gradient left, over the same angles."""
    at = next(iter(surfaces(scale, "alignment").values()))
    p, n = np.meshgrid(at.positive, at.negative, indexing="ij")
    return left(panel.name, panel.settings, p, n, panel.negatives or COUNTS[0]) > 0.5


def alike(scale: Scale, first: FigurePanel, second: FigurePanel) -> float:
    """Return the share of the plane on which two objectives are both active, or neither is."""
    return float((active(scale, first) == active(scale, second)).mean())


def lost(values: Floats) -> float:
    """Return the largest part of its first value that any row of a surface loses, 0 to 1."""
    return float((1 - values / values[:, :1]).max())


def drawn(scale: Scale, part: Part, titles: Sequence[str]) -> Picture:
    """Return heat maps, each with its own colours."""
    landscapes = surfaces(scale, part)
    surfaces_ = [
        Surface(title, landscape.negative, landscape.positive, landscape.value, landscape.defined)
        for title, landscape in ((title, landscapes[title]) for title in titles)
    ]
    return heatmaps(surfaces_, f"norm, {part}", labels=ANGLES)


def _difference(panel: FigurePanel, part: Part, landscape: Landscape) -> float:
    p, n = np.meshgrid(landscape.positive, landscape.negative, indexing="ij")
    # at the very edge of a margin rounding decides: the nearer side counts
    sides = [np.abs(equation(panel, part, p, n + d) - landscape.value) for d in (-_EDGE, 0, _EDGE)]
    return float(np.min(sides, axis=0).max() / landscape.value.max())


def _at(panel: FigurePanel, part: Part, positive: float, negative: float) -> float:
    angles = Angles(
        np.array([positive]), np.array([negative]), negatives=panel.negatives or COUNTS[0]
    )
    objective = build(panel.name, panel.settings)
    return float(gradient_norm([objective], angles, part=part)[0].value[0, 0])
