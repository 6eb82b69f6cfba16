"""Plots scores over settings, a panel for each setting, as SVG and PNG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isotrope.reports.plots import styles
from isotrope.reports.surfaces import DASHES, Picture, settings, written

_MARKERS = "osD^vP"


Score = tuple[float | str, float | None, float | None]
"""A value of the setting, the score there and its deviation; None where nothing was measured."""


@dataclass(frozen=True)
class SettingPanel:
    """Scores over one setting.

    Attributes:
        title: Title of the panel.
        x: Name of the setting.
        y: Name of the score.
        scores: Scores by title; the values of one panel are all numbers, or all names.
        points: Points, without lines between them.
        log_x: The horizontal axis is logarithmic.
    """

    title: str
    x: str
    y: str
    scores: Mapping[str, Sequence[Score]]
    points: bool = False
    log_x: bool = False


def score_panels(panels: Sequence[SettingPanel], *, columns: int = 3) -> Picture:
    """Draw all panels, ``columns`` in a row; one without any score says ``not run``."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with mpl.rc_context(settings(", ".join(panel.title for panel in panels))):
        figure = Figure(figsize=(3.9 * columns, 3.3 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for place, panel in zip(axes, panels, strict=False):
            _draw(place, panel)
        for place in axes[len(panels) :]:
            place.remove()
        return written(figure)


def _draw(axes: Axes, panel: SettingPanel) -> None:
    styled = zip(panel.scores.items(), styles(len(panel.scores)), strict=True)
    for place, ((title, scores), style) in enumerate(styled):
        spread = np.array([deviation or 0.0 for *_, deviation in scores], float)
        line = axes.errorbar(
            [x for x, *_ in scores],
            np.array([np.nan if y is None else y for _, y, _ in scores], float),
            yerr=spread if spread.any() else None,
            color=style.colour,
            marker=_MARKERS[place % len(_MARKERS)],
            markersize=3.5,
            linewidth=0 if panel.points else 1.5,
            elinewidth=0.8,
            capsize=2,
            label=title,
        ).lines[0]
        if dash := DASHES[place % len(DASHES)]:
            line.set_dashes(dash)
    if all(y is None for scores in panel.scores.values() for _, y, _ in scores):
        axes.text(0.5, 0.5, "not run", ha="center", va="center", transform=axes.transAxes)
    elif len(panel.scores) > 1:
        axes.legend(frameon=False, fontsize="small")
    if panel.log_x:
        axes.set_xscale("log")
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.grid(axis="y", lw=0.6, alpha=0.28)
