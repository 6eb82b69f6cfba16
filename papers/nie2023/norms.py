"""Figures 2a, 2b and 4: norms of the gradient's parts over two angles, without training.

Ours are measured on the objectives' own components. The paper's equations are written again here,
to check the components, with slips corrected: eq. 11 has the sine of the positive's angle; the
conditions of eq. 20-22 (and of 38-40, where rho is a distance as in 37) are those under which the
loss is above 0: printed is a sum for a difference, or the difference reversed. All angles of one
kind are equal, 1/||h_i|| is left out, and the n anchors of a batch have n - 1 negatives each.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
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
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
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


# figure 2a: how hard InfoNCE and its decoupled forms pull the positive

INFONCE = [f"InfoNCE, {count:,} negatives" for count in COUNTS]
DECOUPLED = ("align & uniform", "DCL")
PULLED = (*INFONCE, *DECOUPLED)
MORE = (65_536.0, 1e10, 1e20, 1e24)
"""Negatives beyond those of the panels, by eq. 7; 65,536 is what the paper says of images."""


def figure2a(scale: Scale, results: Results) -> Rendered:
    """Return the surfaces, beside the paper's equations and what it reads off its own."""
    first = surfaces(scale, "alignment")[INFONCE[0]]
    limit = [(float(k), *_shares(first, k)) for k in (*COUNTS, *MORE)]
    dark = [share for _, share, _ in limit]
    apart = [difference for *_, difference in limit]
    rows = [
        [f"{k:,.0f}" if k < 1e6 else f"{k:g}", f"{100 * s:.1f} %", f"{d:.2g}"] for k, s, d in limit
    ]
    across = {title: lost(surfaces(scale, "alignment")[title].value) for title in PULLED}
    return Rendered(
        tables=[
            side_by_side(scale, "alignment", PULLED),
            Sheet(["negatives", "shaded", "mean difference"], rows, title="InfoNCE against DCL"),
        ],
        verdicts=[
            agreement(scale, "alignment", PULLED),
            Ruling(
                "the shaded part of InfoNCE shrinks with the number of negatives",
                _falls(dark[: len(COUNTS)]),
                ", ".join(f"{row[0]}: {row[1]}" for row in rows[: len(COUNTS)]),
            ),
            Ruling(
                "with ever more negatives InfoNCE's surface becomes that of DCL",
                _falls(apart) and apart[-1] < 1e-6,
                f"mean relative difference {rows[0][2]} with {rows[0][0]} negatives, {rows[4][2]} "
                f"with {rows[4][0]}, {apart[-1]:.0e} with {MORE[-1]:g}",
            ),
            Ruling(
                "InfoNCE's pull dissipates as negatives go away, that of decoupled forms does not",
                all(across[title] < 1e-9 for title in DECOUPLED) and across[INFONCE[0]] > 0.99,
                "lost from the nearest negatives to the farthest: "
                + ", ".join(f"{title} {100 * across[title]:.0f} %" for title in PULLED),
            ),
        ],
        pictures={"figure2a": partial(drawn, scale, "alignment", PULLED)},
    )


def _shares(at: Landscape, k: float) -> tuple[float, float]:
    """How much of InfoNCE's surface is shaded, and its mean relative difference from DCL's."""
    p, n = np.meshgrid(at.positive, at.negative, indexing="ij")
    panel = PANELS[INFONCE[0]]
    value = equation(panel, "alignment", p, n, k)
    dcl = np.sin(p) / panel.settings["temperature"]
    return shaded(value), float((1 - value / dcl).mean())


def _falls(values: Sequence[float]) -> bool:
    return all(b < a for a, b in pairwise(values))


# figure 2b: how hard losses that were made to dissipate pull it

BY_MARGIN = [f"MPT, m = {margin:.2f}" for margin in MARGINS]
DISSIPATING = ("DCL+", *BY_MARGIN, "MET", "MAT")


def figure2b(scale: Scale, results: Results) -> Rendered:
    """Return the surfaces, beside the paper's equations and what it says of them."""
    dcl_panel = PANELS["DCL+"]
    same = replace(dcl_panel, settings=PANELS[INFONCE[0]].settings)
    close, equal = (alike(scale, PANELS[INFONCE[0]], panel) for panel in (dcl_panel, same))
    area = {title: float(active(scale, PANELS[title]).mean()) for title in DISSIPATING}
    away = {title: lost(surfaces(scale, "alignment")[title].value) for title in DISSIPATING}
    tau, other = (panel.settings["temperature"] for panel in (PANELS[INFONCE[0]], dcl_panel))
    return Rendered(
        tables=[side_by_side(scale, "alignment", DISSIPATING)],
        verdicts=[
            agreement(scale, "alignment", DISSIPATING),
            misprinted(scale, "alignment"),
            Ruling(
                "at one temperature DCL+ has its gradient where InfoNCE has most of its own",
                equal == 1,
                f"on {equal:.0%} of the plane at tau = {tau:g}, on {close:.0%} at the tuned "
                f"{other:g} and {tau:g}, with 64 negatives",
            ),
            Ruling(
                "all of these losses dissipate as negatives move away",
                all(share == 1 for share in away.values()),
                "lost: " + ", ".join(f"{title} {share:.0%}" for title, share in away.items()),
            ),
            Ruling(
                "a larger margin leaves MPT its gradient on more of the plane",
                all(area[a] < area[b] for a, b in pairwise(BY_MARGIN)),
                ", ".join(f"{title}: {area[title]:.0%}" for title in BY_MARGIN),
            ),
        ],
        pictures={"figure2b": partial(drawn, scale, "alignment", DISSIPATING)},
    )


# figure 4: how hard one negative is pushed by every loss

PUSHED = tuple(panel.title for panel in FIGURES["norm"])
MARGIN_LOSSES = ("MPT", "MET", "MAT")
MANY = 1e24  # negatives, by eq. 16


def figure4(scale: Scale, results: Results) -> Rendered:
    """Return the surfaces, beside the paper's equations and the findings of appendix B."""
    apart = [_apart(scale, float(PANELS[title].negatives or 0)) for title in INFONCE]
    apart.append(_apart(scale, MANY))
    along = {
        title: _along(scale, title) for title in (INFONCE[0], *DECOUPLED, "DCL+", *MARGIN_LOSSES)
    }
    close = {
        title: alike(scale, PANELS[INFONCE[0]], PANELS[title]) for title in ("DCL+", *MARGIN_LOSSES)
    }
    return Rendered(
        tables=[side_by_side(scale, "uniformity", PUSHED)],
        verdicts=[
            agreement(scale, "uniformity", PUSHED),
            misprinted(scale, "uniformity"),
            Ruling(
                "with ever more negatives InfoNCE pushes one of them as DCL does",
                _falls(apart) and apart[-1] < 1e-6,
                f"mean relative difference {apart[0]:.2f} with 64 negatives, {apart[-2]:.2f} with "
                f"{PANELS[INFONCE[-1]].negatives:,}, {apart[-1]:.0e} with {MANY:g}",
            ),
            Ruling(
                "InfoNCE's push dissipates with a near positive, that of decoupled forms does not",
                along[INFONCE[0]] > 0.99 and all(along[title] < 1e-9 for title in DECOUPLED),
                _lost_shares(along, (INFONCE[0], *DECOUPLED)),
            ),
            Ruling(
                "DCL+ and the losses with a margin dissipate like InfoNCE",
                all(along[title] == 1 for title in ("DCL+", *MARGIN_LOSSES)),
                f"{_lost_shares(along, ('DCL+', *MARGIN_LOSSES))}; active or not as InfoNCE is, "
                "share of the plane: "
                + ", ".join(f"{title} {share:.0%}" for title, share in close.items()),
            ),
        ],
        pictures={"figure4": partial(drawn, scale, "uniformity", PUSHED)},
    )


def _along(scale: Scale, title: str) -> float:
    """The largest part of a push that is lost where the positive is nearest, at any negatives."""
    value = surfaces(scale, "uniformity")[title].value
    near, far = value[:, value[-1] > 0][[0, -1]]
    return float((1 - near / far).max())


def _apart(scale: Scale, k: float) -> float:
    """Mean relative difference of InfoNCE's push from DCL's at the same temperature."""
    at, panel = surfaces(scale, "uniformity")[INFONCE[0]], PANELS[INFONCE[0]]
    p, n = np.meshgrid(at.positive, at.negative[:-1], indexing="ij")  # at pi neither pushes
    dcl = np.sin(n) / panel.settings["temperature"] / k
    return float((1 - equation(panel, "uniformity", p, n, k) / dcl).mean())


def _lost_shares(along: dict[str, float], titles: tuple[str, ...]) -> str:
    return "lost: " + ", ".join(f"{title} {along[title]:.0%}" for title in titles)
