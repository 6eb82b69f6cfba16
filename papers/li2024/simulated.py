"""Simulations on angles, without training, that figures 2, 3, 4 and 10 share."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from isotrope.diagnostics import FIGURES, Angles, Landscape, figure
from isotrope.reports import Picture, Surface, heatmaps
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
        pictures={name: functools.partial(_heatmaps, landscapes)},
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
