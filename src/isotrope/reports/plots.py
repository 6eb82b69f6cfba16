"""Plots one quantity of several runs: lines, bands and markers; sets the style of all pictures.

The colours of lines have a contrast of three to one against white and near-black, and colour-blind
readers can distinguish them. Text and axes are grey.
"""

import io
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from isotrope.reports.quantities import Line, Quantity, has_no_common_unit, runs_of
from isotrope.reports.runs import Run

if TYPE_CHECKING:
    import optuna

INK = "#7d838c"
# the palette of Okabe and Ito without yellow; sky blue and orange are darker, to be seen on white
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c2679a", "#3a8fc4", "#b07d00")
_DASHES = ((), (5.0, 2.0), (1.5, 1.5), (6.0, 1.5, 1.5, 1.5))
SECOND = (1.0, 1.7)
"""Dash pattern of the second line of a run."""
_SMOOTH_FROM = 30  # least number of points with which the running mean is drawn
_EXACT = 50_000  # points; with more, a mean after a huge value is rounded coarsely
_MOST_FAINT = 6  # largest number of runs with which values are drawn behind the running means
_MOST_BANDS = 3  # largest number of runs with which standard deviations are drawn
_SEEN = 1.5  # least distance, in pixels, at which two lines can be distinguished
_TICK = "{x:,.10g}"  # the number at a tick; matplotlib writes a real minus sign
_DECADES = 30  # a logarithmic axis is allowed if largest / smallest value is above this


@dataclass(frozen=True)
class Picture:
    """One picture as the bytes of an SVG file and of a PNG file."""

    svg: bytes
    png: bytes


@dataclass(frozen=True)
class Style:
    """Colour (``#rrggbb``) and dash pattern of a run's lines; an empty pattern is solid."""

    colour: str
    dash: tuple[float, ...]


@dataclass(frozen=True)
class Curve:
    """The measured points of one line of one run.

    Attributes:
        run: Index of the run.
        line: The line, which names the columns of metrics.csv.
        x: Horizontal positions of the points, m values.
        y: Vertical positions of the points, m values.
        spread: Standard deviations of y, m values; None if no band is drawn.
        origin: Number that is subtracted from y before the line is drawn.
        unit: Number by which y - origin is divided. If runs are comparable, origin is 0 and unit 1.
    """

    run: int
    line: Line
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    spread: NDArray[np.float64] | None = None
    origin: float = 0.0
    unit: float = 1.0

    @property
    def shown(self) -> NDArray[np.float64]:
        """The values to draw."""
        return (self.y - self.origin) / self.unit


def settings(salt: str) -> dict[Any, Any]:
    """Return a dict of matplotlib's settings; two SVGs with the same ``salt`` have equal ids."""
    return {
        "svg.fonttype": "path",  # a separate file cannot rely on the fonts of its reader
        "svg.hashsalt": f"isotrope {salt}",
        "font.size": 9,
        "axes.titlesize": 10,
        "hatch.linewidth": 0.6,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.handlelength": 3.2,
        "legend.labelcolor": INK,
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
        **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), INK),
    }


def written(figure: Figure) -> Picture:
    """Return a figure as SVG and PNG without a date, so that equal figures have equal bytes."""
    figure.patch.set_alpha(0)
    svg, png = io.BytesIO(), io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(svg, format="svg", metadata=nothing, dpi=200)
    figure.savefig(png, format="png", metadata={"Software": None}, dpi=200)
    return Picture(svg.getvalue(), png.getvalue())


def slices(study: "optuna.Study", score: str) -> bytes:
    """Return an SVG, drawn by Optuna: the scores of a study, in one panel for each setting."""
    import matplotlib.pyplot as plt
    from optuna.visualization.matplotlib import plot_slice

    with mpl.rc_context(settings(score)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is experimental, or that a setting has one value
        plot_slice(study, target_name=score)
        try:
            return written(plt.gcf()).svg
        finally:
            plt.close()


def styles(count: int) -> list[Style]:
    """Return a style for each run: six colours, then the same colours with another dash pattern."""
    n = len(_COLOURS)
    return [Style(_COLOURS[i % n], _DASHES[i // n % len(_DASHES)]) for i in range(count)]


def draw(axes: Axes, quantity: Quantity, runs: Sequence[Run]) -> list[Curve]:
    """Draw a quantity of all runs into the axes; return the curves that were drawn.

    If no run has measured the quantity, the axes stay empty.
    """
    drawn, look = _measured_curves(quantity, runs), styles(len(runs))
    if not drawn:
        return []
    lines = [_draw_curve(axes, quantity, curve, look[curve.run], len(runs)) for curve in drawn]
    if quantity.mark is not None:
        axes.axhline(quantity.mark, color=INK, lw=1.0, dashes=(4, 3), zorder=1)
    if quantity.kind == "score":
        _mark_scores(axes, quantity, runs)
    _set_axes(axes, quantity, max(run.steps.max(initial=0.0) for run in runs))
    dotted = {line for line, c in zip(lines, drawn, strict=True) if c.line is not quantity.lines[0]}
    for group in _coinciding(lines):
        _take_turns(group, dotted)
    return drawn


def _measured_curves(quantity: Quantity, runs: Sequence[Run]) -> list[Curve]:
    """Return the measured lines of the quantity, run by run."""
    own = runs_of(quantity, runs)
    lines = [_curve(quantity, i, run, line) for i, run in own for line in quantity.lines]
    curves = [curve for curve in lines if len(curve.y)]
    if not has_no_common_unit(quantity, runs):
        return curves
    return [
        replace(curve, origin=curve.y.min(), unit=np.ptp(curve.y) or 1.0, spread=None)
        for curve in curves
    ]


def _curve(quantity: Quantity, index: int, run: Run, line: Line) -> Curve:
    empty = np.full_like(run.steps, np.nan)
    x = run.steps if quantity.across == "step" else run.series.get(quantity.across, empty)
    y = run.series.get(line.column, empty)
    measured = np.isfinite(x) & np.isfinite(y)
    spread = run.series.get(line.spread)
    if spread is not None:
        spread = np.nan_to_num(spread[measured])
    return Curve(index, line, x[measured], y[measured], spread)


def _draw_curve(axes: Axes, quantity: Quantity, curve: Curve, style: Style, runs: int) -> Line2D:
    """Draw one line. If it is long, draw its running mean, and faintly the values behind it."""
    x, y, is_second = curve.x, curve.shown, curve.line is not quantity.lines[0]
    if quantity.kind in ("course", "path"):
        if runs <= _MOST_FAINT and len(y) >= _SMOOTH_FROM and curve.spread is None:
            axes.plot(x, y, color=style.colour, lw=0.7, alpha=0.22)
        y = _smooth(y)
        if quantity.kind == "path":
            x = _smooth(x)
    if runs <= _MOST_BANDS and curve.spread is not None:
        room = _smooth(curve.spread)
        low, high = y - room, y + room
        if quantity.angular:
            low, high = np.clip((low, high), 0, np.pi)
        axes.fill_between(x, low, high, color=style.colour, alpha=0.2, lw=0)
    marker = "o" if len(y) == 1 else ""
    width = 1.5 if is_second else 1.8
    # lines on a limit of the axes are not cut off
    (line,) = axes.plot(
        x, y, color=style.colour, lw=width, marker=marker, ms=4, clip_on=quantity.least is None
    )
    line.set_dashes(SECOND if is_second else style.dash)
    place = quantity.lines.index(curve.line)
    line.set_gid(f"series-{quantity.key}-{curve.run}" + (f"-{place}" if place else ""))
    if quantity.kind == "path":
        axes.plot(x[0], y[0], "o", mfc="none", color=style.colour, ms=6)
        axes.plot(x[-1], y[-1], "o", color=style.colour, ms=6)
    return line


def _smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the running mean over a fifteenth of the points; at the ends, over fewer."""
    if len(values) < _SMOOTH_FROM:
        return values
    reach, places = max(2, len(values) // 30), np.arange(len(values))
    first, end = np.maximum(places - reach, 0), np.minimum(places + reach + 1, len(values))
    if len(values) <= _EXACT:
        around = np.convolve(values, np.ones(2 * reach + 1), "same")
    else:
        sums = np.append(0.0, np.cumsum(values))
        around = sums[end] - sums[first]
    return np.asarray(around / (end - first))


def _mark_scores(axes: Axes, quantity: Quantity, runs: Sequence[Run]) -> None:
    """Draw the score at the start (one grey line if all agree) and at the saved step."""
    of_images, look = quantity.lines[0].column == "knn", styles(len(runs))
    own = runs_of(quantity, runs)
    styled = [(run, look[i]) for i, run in own if run.of_images == of_images]
    starts = [run.metric("dev_start") for run, _ in styled]
    all_agree = len({round(start, 6) for start in starts if start is not None}) == 1
    for (run, style), start in zip(styled, starts, strict=True):
        if start is not None:
            colour = INK if all_agree else style.colour
            axes.axhline(start, color=colour, lw=1.0, dashes=(4, 3), zorder=1)
        step, score = run.saved_step, run.metric(run.saved)
        if step is not None and score is not None:
            axes.plot(step, score, "o", color=style.colour, ms=6.5, zorder=4)


def _set_axes(axes: Axes, quantity: Quantity, last_step: float) -> None:
    _set_limits(axes, quantity)
    stepwise = quantity.across == "step"
    if stepwise:
        axes.set_xlim(-0.03 * (last_step or 1), 1.03 * (last_step or 1))
    room = 4 if axes.bbox.width < 400 else 8
    axes.xaxis.set_major_locator(MaxNLocator(room, steps=[1, 2, 2.5, 5, 10], integer=stepwise))
    axes.xaxis.set_major_formatter(_TICK)
    if quantity.angular:
        quarters = [Fraction(i, 4) for i in range(5)]
        axes.yaxis.set_major_locator(FixedLocator([float(q) * np.pi for q in quarters]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: multiple(value)))
    else:
        if axes.get_yscale() == "linear":
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(_TICK)
    axes.grid(axis="both" if quantity.kind == "path" else "y", lw=0.6, alpha=0.28)
    axes.tick_params(which="both", length=0, pad=5)
    axes.set_axisbelow(True)


def _set_limits(axes: Axes, quantity: Quantity) -> None:
    """Set the vertical limits, or a logarithmic axis."""
    low, high = axes.dataLim.y0, axes.dataLim.y1
    if quantity.logarithmic and low > 0 and high / low > _DECADES:
        room = (high / low) ** 0.05
        axes.set_yscale("log")
        axes.set_ylim(low / room, high * room)
        between = (1.0,) if high / low * room**2 > 1000 else (1.0, 3.0)
        axes.yaxis.set_major_locator(LogLocator(subs=between, numticks=6))
        axes.yaxis.set_minor_locator(NullLocator())
        return
    if quantity.floor is not None:
        low, high = min(low, quantity.floor), max(high, quantity.floor)
    flat = 0.02 if quantity.key == "ratio" else 1e-9  # a constant ratio has rounding errors
    constant = high - low <= flat * max(abs(low), abs(high))
    room = (0.05 * abs(low) or 0.5) if constant else 0.05 * (high - low)
    bottom, top = low - (0.4 * room if low == quantity.floor else room), high + room
    if quantity.least is not None:
        bottom = max(bottom, min(quantity.least, low))
    if quantity.most is not None:
        top = min(top, max(quantity.most, high))
    axes.set_ylim(bottom, top)


def _coinciding(lines: Sequence[Line2D]) -> list[list[Line2D]]:
    """Return groups of lines that hide each other, so that only the last would be seen."""
    groups: list[list[Line2D]] = []
    for line in lines:
        for group in groups:
            if _hides(line, group[0]):
                group.append(line)
                break
        else:
            groups.append([line])
    return [group for group in groups if len(group) > 1]


def _hides(line: Line2D, other: Line2D) -> bool:
    """Return whether one line lies on the other, as far as a reader can see."""
    assert line.axes is not None
    # the points (x, y) of one line and (u, v) of the other, in pixels
    (x, y), (u, v) = (
        line.axes.transData.transform(np.column_stack(curve.get_data(orig=False))).T
        for curve in (line, other)
    )
    if len(x) == len(u):
        return bool(np.hypot(x - u, y - v).max() < _SEEN)
    if len(x) > len(u):
        x, y, u, v = u, v, x, y
    if not (np.diff(u) > 0).all():
        return False
    inside = u[0] - _SEEN <= x[0] <= x[-1] <= u[-1] + _SEEN
    return bool(inside and np.abs(y - np.interp(x, u, v)).max() < _SEEN)


def _take_turns(group: Sequence[Line2D], dotted: Collection[Line2D]) -> None:
    """Draw coinciding lines in alternating stripes, and coinciding points as rings."""
    stripe, count = 2 * sum(SECOND), len(group)
    remaining = (count - 1) * stripe  # drawn by the other lines
    for place, line in enumerate(group):
        line.set_markersize(line.get_markersize() + 4 * (count - 1 - place))
        dots = [*SECOND, SECOND[0], SECOND[1] + remaining]
        dashes = dots if line in dotted else [stripe, remaining]
        offset = (count - place) % count * stripe  # each line begins one stripe later
        line.set_linestyle((offset, dashes))


def multiple(angle: float) -> str:
    """Return an angle as a multiple of pi: ``3π/4``."""
    times = Fraction(angle / np.pi).limit_denominator(20)
    if not times:
        return "0"
    over = "" if times.denominator == 1 else f"/{times.denominator}"
    factor = {1: "", -1: "-"}.get(times.numerator, times.numerator)
    return f"{factor}\N{GREEK SMALL LETTER PI}{over}"
