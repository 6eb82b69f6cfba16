"""Writes the pictures of a report as separate SVG and PNG files, for papers and slides."""

import contextlib
import warnings
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace
from isotrope.reports.plots import INK, SECOND, Curve, draw, expanded, heading, styles
from isotrope.reports.quantities import QUANTITIES, Quantity
from isotrope.reports.runs import Run
from isotrope.reports.surfaces import Picture, settings, written

__all__ = ["picture", "write_pictures"]

_LONGEST = 40  # characters of a name in a legend


def write_pictures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write ``KEY.svg`` and ``KEY.png`` of every quantity that any run has measured.

    Returns:
        the files.

    Raises:
        InputError: the folder is a file, or cannot be written; then none is.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give the name of a folder for the pictures")
    files = {}
    for quantity in expanded(QUANTITIES, runs):
        drawn = picture(quantity, runs)
        if drawn is not None:
            files[folder / f"{quantity.key}.svg"] = drawn.svg
            files[folder / f"{quantity.key}.png"] = drawn.png
    for file in files:
        if file.is_dir():
            raise InputError(f"{file} is a folder, not a picture; remove it or name another folder")
    with contextlib.ExitStack() as stack:
        for file, content in files.items():
            stack.enter_context(atomic_replace(file)).write_bytes(content)
    return list(files)


def picture(quantity: Quantity, runs: Sequence[Run]) -> Picture | None:
    """Draw one quantity with its heading and a legend; None if no run has measured it."""
    rc_settings = settings(quantity.key) | {"text.parse_math": False, "axes.spines.left": False}
    with mpl.rc_context(rc_settings):
        figure = Figure(figsize=(5.6, 3.0), layout="constrained")
        axes = figure.add_subplot()
        drawn = draw(axes, quantity, runs)
        if not drawn:
            return None
        title, _ = heading(quantity, runs)
        axes.set_title(title, loc="left")
        axes.set_xlabel(quantity.across)
        if quantity.across != "step":
            axes.set_ylabel(quantity.lines[0].column)
        handles = _legend(quantity, drawn, runs)
        figure.legend(handles=handles, loc="outside right upper", frameon=False)
        with warnings.catch_warnings():  # a name in a script without a font stands as boxes
            warnings.filterwarnings("ignore", "Glyph", UserWarning)
            return written(figure)


def _legend(quantity: Quantity, drawn: Sequence[Curve], runs: Sequence[Run]) -> list[Line2D]:
    """Return a line for each run, then one for each kind of line where a run has several."""
    handles = []
    for index in sorted({curve.run for curve in drawn}):
        name, style = runs[index].name, styles(len(runs))[index]
        short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"
        handles.append(_handle(style.colour, style.dash, short))
    kinds = {curve.line.column for curve in drawn}
    lines = [line for line in quantity.lines if line.column in kinds]
    if len(lines) > 1:
        dashes = [SECOND if line is not quantity.lines[0] else () for line in lines]
        handles += [_handle(INK, d, line.name) for line, d in zip(lines, dashes, strict=True)]
    return handles


def _handle(colour: str, dash: tuple[float, ...], label: str) -> Line2D:
    handle = Line2D([], [], color=colour, lw=1.8, label=label)
    if dash:
        handle.set_dashes(dash)
    return handle
