"""Plots quantities over the epochs of several runs, one panel each, as SVG and PNG."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isotrope.reports.plots import styles
from isotrope.reports.surfaces import DASHES, Picture, settings, written

__all__ = ["Course", "courses"]


@dataclass(frozen=True)
class Course:
    """The values of one quantity in one run.

    Attributes:
        epochs: where it was measured.
        values: the numbers there.
    """

    epochs: Sequence[float]
    values: Sequence[float]


def courses(panels: dict[str, dict[str, Course]], *, logarithmic: Sequence[str] = ()) -> Picture:
    """Draw a panel for each quantity, a line for each run.

    Args:
        panels: quantity (the label of the vertical axis) to run to what it did.
        logarithmic: quantities whose axis is logarithmic.
    """
    with mpl.rc_context(settings(", ".join(panels))):
        figure = Figure(figsize=(3.3 * len(panels) + 1.5, 2.9), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for place, (quantity, runs) in enumerate(panels.items()):
            _panel(axes[place], quantity, runs, logarithmic=quantity in logarithmic)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", frameon=False)
        return written(figure)


def _panel(axes: Axes, quantity: str, runs: dict[str, Course], *, logarithmic: bool) -> None:
    for i, ((name, run), style) in enumerate(zip(runs.items(), styles(len(runs)), strict=True)):
        (line,) = axes.plot(run.epochs, run.values, color=style.colour, lw=1.7, label=name)
        if dash := DASHES[i % len(DASHES)]:
            line.set_dashes(dash)
    if logarithmic:
        axes.set_yscale("log")
    axes.set_xlabel("epoch")
    axes.set_ylabel(quantity)
    axes.grid(axis="y", lw=0.6, alpha=0.28)
