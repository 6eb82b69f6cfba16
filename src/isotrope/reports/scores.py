"""Plots scores over settings, a panel for each setting, as SVG and PNG."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isotrope.reports.plots import styles
from isotrope.reports.surfaces import DASHES, Picture, settings, written

_MARKERS = "osD^vP"


@dataclass(frozen=True)
class Scores:
    """The scores of one title.

    Attributes:
        title: The title in the legend.
        x: m values of the setting: numbers, or names.
        y: m scores; None where nothing was measured.
        deviations: m standard deviations, or None.
    """

    title: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    deviations: Sequence[float | None] | None = None


@dataclass(frozen=True)
class SettingPanel:
    """Scores over one setting.

    Attributes:
        title: Title of the panel.
        x: Name of the setting.
        y: Name of the score.
        scores: Scores by title; those of one panel all have numbers or all have names as ``x``.
        points: Points, without lines between them.
        log_x: The horizontal axis is logarithmic.
    """

    title: str
    x: str
    y: str
    scores: Sequence[Scores]
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
    styled = zip(panel.scores, styles(len(panel.scores)), strict=True)
    for place, (series, style) in enumerate(styled):
        y = np.array([np.nan if value is None else value for value in series.y], float)
        spread = np.array([value or 0.0 for value in series.deviations or [None] * len(y)], float)
        line = axes.errorbar(
            series.x,
            y,
            yerr=spread if spread.any() else None,
            color=style.colour,
            marker=_MARKERS[place % len(_MARKERS)],
            markersize=3.5,
            linewidth=0 if panel.points else 1.5,
            elinewidth=0.8,
            capsize=2,
            label=series.title,
        ).lines[0]
        if dash := DASHES[place % len(DASHES)]:
            line.set_dashes(dash)
    if all(value is None for series in panel.scores for value in series.y):
        axes.text(0.5, 0.5, "not run", ha="center", va="center", transform=axes.transAxes)
    elif len(panel.scores) > 1:
        axes.legend(frameon=False, fontsize="small")
    if panel.log_x:
        axes.set_xscale("log")
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.grid(axis="y", lw=0.6, alpha=0.28)
