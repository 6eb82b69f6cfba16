"""Figures 2, 3, 4 and 10: simulations on angles, without training."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isotrope.diagnostics import FIGURES, Angles, Landscape, figure, numbers, ratio
from isotrope.reports import Picture, Surface, curves, heatmaps
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling
from papers.paper_numbers import printed

Kind = Literal["dissipation", "weight", "ratio"]

PAPER = "unified-gradient"
POSITIVE = math.pi / 6
"""mu_pos at which rows are read: where the paper fixes it for its figure 3."""

_GRID: dict[Scale, tuple[int, int]] = {"smoke": (8, 20), "cpu": (100, 1000), "paper": (100, 1000)}
_FAR = "mu_neg far larger"
_ONE, _ZERO, _ALIKE = 0.98, 0.01, 0.9  # where verdicts are decided


@functools.cache
def simulated(scale: Scale, kind: Kind, *, gated: bool = False) -> dict[str, Landscape]:
    """Return landscapes by the titles of their panels: all that figures of this kind show."""
    grid, batches = _GRID[scale]
    panels = FIGURES["dissipation" if kind == "ratio" else kind]  # the static ratios too
    landscapes = figure(kind, panels, grid=grid, batches=batches, gated=gated)
    return {panel.title: landscape for panel, landscape in zip(panels, landscapes, strict=True)}


def set_up(scale: Scale, names: Sequence[str] | None = None) -> Sheet:
    """Return the paper's settings of the drawing beside ours."""
    grid, batches = _GRID[scale]
    drawn = Angles()
    sampled: dict[str, tuple[float, ...]] = {
        "mu_pos over pi": (0.05, 0.5),
        "mu_neg over pi": (0.05, 1.0),
        "points of each axis": (grid,),
        "batches of each pair": (batches,),
        "negatives of a batch": (drawn.negatives,),
        "sigma_pos": (drawn.spread_positive,),
        "sigma_neg": (drawn.spread_negative,),
    }
    paper_rows = printed(PAPER, "figure2").rows
    rows = []
    for name in names or sampled:
        paper, here = _range(paper_rows[name]), _range(sampled[name])
        rows.append([name, paper, here, "same" if paper == here else "smaller"])
    return Sheet(["setting", "paper", "ours", "verdict"], rows, title="what is drawn")


def surfaces(landscapes: Mapping[str, Landscape]) -> list[Surface]:
    """Return the surfaces of the pictures."""
    return [Surface(t, f.negative, f.positive, f.value, f.defined) for t, f in landscapes.items()]


def figure2(scale: Scale, results: Results) -> Rendered:
    """Return the mean dissipation of ArcCon and MET."""
    return _dissipated(scale, "figure2", "ArcCon", "MET")


def figure10(scale: Scale, results: Results) -> Rendered:
    """Return the mean dissipation of InfoNCE and MPT."""
    return _dissipated(scale, "figure10", "InfoNCE", "MPT")


def _dissipated(scale: Scale, name: str, fraction: str, indicator: str) -> Rendered:
    """Return the mean dissipation in its two forms, as figures 2 and 10 show it."""
    landscapes = {title: simulated(scale, "dissipation")[title] for title in (fraction, indicator)}
    both = list(landscapes.values())
    close = [float(x.value[x.negative <= x.positive[:, None]].min()) for x in both]
    far = [float(x.value[:, -1].max()) for x in both]
    half = [x.crossing(POSITIVE) for x in both]
    falls = [_fall(x) for x in both]
    sides = [x.value > 0.5 for x in both]
    alike = float((sides[0] == sides[1]).mean())
    rapid = all(parts is not None and parts[1] == min(parts) for parts in falls)
    fall = [parts and parts[1] for parts in falls]
    paper = printed(PAPER, name).rows
    nearest, farthest = (f"{paper[f'dissipation, {row}'][0]}" for row in ("angles close", _FAR))
    readings = Sheet(
        ["mean GD", "paper", *landscapes, "verdict"],
        [
            ["smallest, mu_neg <= mu_pos", nearest, *_each(close), _match(min(close) > _ONE)],
            ["largest, mu_neg = pi", farthest, *_each(far), _match(max(far) < _ZERO)],
            ["range of mu_neg from .9 to .1", "rapidly", *_each(fall), _match(rapid)],
            ["mu_neg where it is .5", "drawn, no number", *_each(half), "-"],
            ["largest standard error", "-", *_each(float(x.error.max()) for x in both), "-"],
        ],
        title="what can be read off (the third and fourth row at mu_pos = pi/6)",
    )

    return Rendered(
        tables=[set_up(scale), readings],
        verdicts=[
            Ruling(
                "GD is 1 while the negatives are as close as the positive",
                min(close) > _ONE,
                f"smallest where mu_neg <= mu_pos: {_titled(landscapes, close)}; decided at {_ONE}",
            ),
            Ruling(
                "GD is 0 once the negatives are far beyond the positive",
                max(far) < _ZERO,
                f"largest at mu_neg = pi: {_titled(landscapes, far)}; decided at {_ZERO}",
            ),
            Ruling(
                "GD falls rapidly in between",
                rapid,
                "radians of mu_neg from .9 to .1 at mu_pos = pi/6: "
                f"{_titled(landscapes, fall)}; less than it stays above .9, or below .1, in the "
                "figure's range",
            ),
            Ruling(
                "fraction and indicator follow one pattern",
                alike > _ALIKE,
                f"{fraction} and {indicator} lie on the same side of one half on {alike:.0%} of "
                f"the plane; decided at {_ALIKE:.0%}",
            ),
        ],
        pictures={name: partial(_heatmaps, landscapes)},
    )


def _heatmaps(landscapes: Mapping[str, Landscape]) -> Picture:
    return heatmaps(surfaces(landscapes), "gradient dissipation", limits=(0, 1), lines=(0.5,))


def _titled(titles: Iterable[str], values: Iterable[float | None]) -> str:
    """Return values behind their titles, for the evidence of a verdict."""
    return ", ".join(f"{title} {v}" for title, v in zip(titles, _each(values), strict=True))


def _fall(landscape: Landscape) -> tuple[float, float, float] | None:
    """Radians of mu_neg with GD above .9, from there to .1, and below."""
    high, low = landscape.crossing(POSITIVE, 0.9), landscape.crossing(POSITIVE, 0.1)
    if high is None or low is None:
        return None
    return high - float(landscape.negative[0]), low - high, float(landscape.negative[-1]) - low


def _each(values: Iterable[float | None]) -> list[str]:
    return ["-" if value is None else f"{value:.3g}" for value in values]


def _match(holds: bool) -> str:
    return "matches" if holds else "differs"


def _range(values: Sequence[object]) -> str:
    ends = dict.fromkeys(f"{value}" for value in values)
    return " to ".join(str(float(end)) if "." in end else end for end in ends)


# figure 3: the hardest negative's share of the weight over mu_neg, at several temperatures

_OF_WEIGHT = (
    "mu_neg over pi",
    "points of each axis",
    "batches of each pair",
    "negatives of a batch",
)
_ALL, _MOST = 0.99, 0.5  # of the weight


def figure3(scale: Scale, results: Results) -> Rendered:
    """Simulate with and without the gate of the released code; nothing is trained."""
    plain, gated = simulated(scale, "weight"), simulated(scale, "weight", gated=True)
    sharp = printed(PAPER, "figure3").rows["temperature where the share falls"][0]
    low = [
        title for title, landscape in plain.items() if _temperature(landscape) < float(str(sharp))
    ]
    high = [title for title in plain if title not in low]
    largest, gated_largest = (
        {title: float(landscape.value.max()) for title, landscape in kind.items()}
        for kind in (plain, gated)
    )
    holds_gated = all(gated_largest[t] > _ALL for t in low) and all(
        gated_largest[t] < _MOST for t in high
    )
    holds_plain = all(largest[t] > _MOST for t in low)
    return Rendered(
        tables=[set_up(scale, _OF_WEIGHT), _readings(plain, gated, float(str(sharp)))],
        verdicts=[
            Ruling(
                "with the gate, the hardest negative comes to have all of the weight as negatives "
                f"move away, at each tau below {sharp} and not at {sharp}",
                holds_gated,
                f"largest share {_shares_at(gated_largest)}; all: above {_ALL}, not: below {_MOST}",
            ),
            Ruling(
                "without the gate, the hardest negative comes to have most of the weight at each "
                f"tau below {sharp}",
                holds_plain,
                f"largest share {_shares_at(largest)}; most: above {_MOST}",
            ),
        ],
        pictures={"figure3": partial(_curves, plain), "figure3-gated": partial(_curves, gated)},
    )


def _readings(
    plain: Mapping[str, Landscape], gated: Mapping[str, Landscape], sharp: float
) -> Sheet:
    places = list(numbers("weight", next(iter(plain.values()))))
    rows = []
    for title, heights in plain.items():
        for kind, landscape in (("no", heights), ("yes", gated[title])):
            end = float(landscape.value.max())
            paper = "1 at last" if _temperature(heights) < sharp else "not 1"
            same = end > _ALL if paper != "not 1" else end < _MOST
            numbers_of = [f"{share:.3f}" for share in numbers("weight", landscape).values()]
            rows.append([title, kind, paper, *numbers_of, "matches" if same else "differs"])
    return Sheet(
        ["weight", "gate", "paper, read off the text", *places, "verdict"],
        rows,
        title="share of the hardest negative at mu_neg",
    )


def _temperature(landscape: Landscape) -> float:
    return float(landscape.objective.temperature)  # type: ignore[attr-defined]


def _shares_at(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{share:.2f} at {title}" for title, share in shares.items())


def _curves(landscapes: Mapping[str, Landscape]) -> Picture:
    return curves(surfaces(landscapes), "share of the hardest negative")


# figure 4: the dynamic ratios of ArcCon and MET over mu_neg and mu_pos

_OF_RATIO = ("mu_pos over pi", "mu_neg over pi", "points of each axis")
_DYNAMIC, _STATIC = ("ArcCon", "MET"), ("InfoNCE", "MPT")
_AT = (math.pi / 6, math.pi / 3)  # mu_pos, mu_neg
_FORMULA = {  # R of table 1 there
    "ArcCon": math.sin(_AT[0] + math.pi / 18) / math.sin(_AT[0]),
    "MET": math.sin(_AT[1] / 2) / math.sin(_AT[0] / 2),
}


def figure4(scale: Scale, results: Results) -> Rendered:
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
        part, span = f"{inside[title]:.0%}", " to ".join(_ends(read[title]))
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
            set_up(scale, _OF_RATIO),
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
        pictures={
            "figure4": partial(_ratio_maps, {title: landscapes[title] for title in _DYNAMIC})
        },
    )


def _span(values: NDArray[np.float64]) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return float(finite.min()), float(finite.max())


def _ends(read: Mapping[str, float | None]) -> list[str]:
    return ["-" if read[end] is None else f"{read[end]:.3f}" for end in ("smallest", "largest")]


def _ratio_maps(landscapes: Mapping[str, Landscape]) -> Picture:
    return heatmaps(surfaces(landscapes), "ratio", limits=(0.5, 4), lines=(1.5, 2))
