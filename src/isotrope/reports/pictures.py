"""Draws a report's pictures as SVG and PNG files, or as one matplotlib figure for a notebook."""

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from isotrope.core.errors import InputError, unknown
from isotrope.core.files import write_all
from isotrope.core.legible import shortened
from isotrope.reports.plots import INK, SECOND, Curve, Picture, draw, settings, styles, written
from isotrope.reports.quantities import QUANTITIES, Quantity, expanded, heading
from isotrope.reports.runs import Run, read_run

_LONGEST = 40  # characters of a name in a legend
_USUAL = ("loss", "dev", "dissipation", "hardest_share")  # the default in a notebook
_WIDE = 2  # pictures side by side in a notebook


def write_pictures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write ``KEY.svg`` and ``KEY.png`` of every quantity that a run has measured; return them."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"give another folder for the pictures: {folder} is a file")
    files = {}
    for quantity in expanded(QUANTITIES, runs):
        drawn = picture(quantity, runs)
        if drawn is not None:
            files[f"{quantity.key}.svg"] = drawn.svg
            files[f"{quantity.key}.png"] = drawn.png
    return write_all(folder, files) if files else []


def picture(quantity: Quantity, runs: Sequence[Run]) -> Picture | None:
    """Return a picture of a quantity with heading and legend; None if no run has measured it."""
    rc_settings = settings(quantity.key) | {"text.parse_math": False, "axes.spines.left": False}
    with mpl.rc_context(rc_settings):
        figure = Figure(figsize=(5.6, 3.0), layout="constrained")
        axes = figure.add_subplot()
        curves = draw(axes, quantity, runs)
        if not curves:
            return None
        title, _ = heading(quantity, runs)
        axes.set_title(title, loc="left")
        axes.set_xlabel(quantity.across)
        if quantity.across != "step":
            axes.set_ylabel(quantity.lines[0].column)
        handles = _legend(quantity, curves, runs)
        figure.legend(handles=handles, loc="outside right upper", frameon=False)
        with _boxes_for_missing_letters():
            return written(figure)


@contextmanager
def _boxes_for_missing_letters() -> Iterator[None]:
    """Draw letters that the font lacks as boxes, without a warning for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        yield


def _legend(quantity: Quantity, curves: Sequence[Curve], runs: Sequence[Run]) -> list[Line2D]:
    """Return the legend: an entry for each run, and for each line if there are several."""
    handles = []
    for index in sorted({curve.run for curve in curves}):
        name, style = runs[index].name, styles(len(runs))[index]
        short = shortened(name, _LONGEST)
        handles.append(Line2D([], [], color=style.colour, lw=1.8, label=short, dashes=style.dash))
    columns = {curve.line.column for curve in curves}
    lines = [line for line in quantity.lines if line.column in columns]
    if len(lines) > 1:
        for line in lines:
            dashes = () if line is quantity.lines[0] else SECOND
            handles.append(Line2D([], [], color=INK, lw=1.8, label=line.name, dashes=dashes))
    return handles


class Drawing(Figure):
    """A matplotlib figure that a notebook shows, even if pyplot is not imported."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with _boxes_for_missing_letters():
            self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def figure_of(folder: Path, quantities: Sequence[str] = ()) -> Drawing:
    """Draw quantities of a run into one figure, with the headings that they have in a report.

    Args:
        folder: The folder of the run.
        quantities: Columns of metrics.csv to draw; by default the loss, the dev score, the gradient
            dissipation and the share of the hardest negative, if they were measured.
    """
    run = read_run(Path(folder))
    # reversed, so that of several quantities with one column the first in the report is drawn
    known = {
        line.column: quantity
        for quantity in reversed(expanded(QUANTITIES, [run]))
        for line in quantity.lines
        if np.isfinite(run.series.get(line.column, np.nan)).any()
    }
    for name in quantities:
        if name not in known:
            raise InputError(unknown("nothing was measured under the name", name, known))
    # by key, because several columns may be lines of one picture
    chosen = {known[name].key: known[name] for name in quantities or _USUAL if name in known}
    if not chosen:
        raise InputError(f"wait for the first logged step: {folder} has no values to plot yet")
    across = min(len(chosen), _WIDE)
    down = math.ceil(len(chosen) / across)
    figure = Drawing(figsize=(4.6 * across, 2.8 * down), layout="constrained")
    with mpl.rc_context({"text.parse_math": False}):  # names of files may have dollars
        for place, quantity in enumerate(chosen.values(), start=1):
            axes = figure.add_subplot(down, across, place)
            draw(axes, quantity, [run])
            axes.set_title(heading(quantity, [run])[0], loc="left")
            axes.set_xlabel(quantity.across)
    return figure
