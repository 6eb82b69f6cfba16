"""Pictures of training: one small SVG per quantity, one line per run.

Every picture is transparent, with one grey for text and axes and line colours that keep a contrast
of three to one against white and against near-black and stay apart for colour-blind eyes. The
same runs give the same bytes.
"""

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from isotrope.report.runs import Run

__all__ = ["INK", "Panel", "Style", "panels", "styles"]

INK = "#7d838c"
# Okabe and Ito's palette without its yellow; sky blue and orange are darkened to show on white
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c2679a", "#3a8fc4", "#b07d00")
_DASHES = ((), (5.0, 2.0), (1.5, 1.5), (6.0, 1.5, 1.5, 1.5))
# points; a point is a CSS pixel where a picture is shown at its own size
_WIDTH, _HEIGHT, _WIDE, _LABELS = 360, 212, 740, 150
_SMOOTH_FROM = 30  # logged points from which a running mean is drawn over the raw line
_MOST_LABELS = 8  # runs named at their lines' ends; beyond, the legend of the page has to do
_LONGEST = 21  # characters of a name that fit beside the dev curves
_MOST_FAINT = 6  # runs whose raw values are drawn behind the running means

_CURVES = (
    ("loss", "Loss", "What is minimised; falls as training goes on."),
    ("dissipation", "Gradient dissipation, GD", "How much of the gradient is still alive."),
    ("hardest_share", "Weight on the hardest negative, W", "1 = only the hardest one is pushed."),
    ("ratio", "Ratio, R", "Pull to the positive per push from the negatives."),
    ("trajectory", "Uniformity over alignment", "From ring to dot; lower left is better on both."),
    ("norm", "Embedding norm", "Mean length before normalisation."),
    ("gradient_norm", "Gradient norm", "Length of the gradient of all parameters."),
)
_OF_IMAGES = (
    ("norm_backbone", "Backbone norm", "Mean length of the features that are kept."),
    (
        "opposite_halves",
        "Opposite halves",
        "Share of pairs that are more than a right angle apart.",
    ),
    ("effective_rank", "Effective rank", "Over how many directions the embeddings spread."),
)
_SCORES = {
    "dev": "Dashed: before training. Dot: the best step, which is the model that was saved.",
    "knn": "Dashed: before training. Dot: the last step, which is the model that was saved.",
}


@dataclass(frozen=True)
class Style:
    """Colour (``#rrggbb``) and dash pattern (empty: solid) of one run."""

    colour: str
    dash: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """One picture: its column of metrics.csv, heading, one-line note and SVG elements."""

    key: str
    title: str
    note: str
    svg: str
    wide: str = ""


def styles(count: int) -> list[Style]:
    """Return one style per run; the colours repeat with another dash after the sixth."""
    n = len(_COLOURS)
    return [Style(_COLOURS[i % n], _DASHES[i // n % len(_DASHES)]) for i in range(count)]


def panels(runs: Sequence[Run]) -> list[Panel]:
    """Draw the pictures that compare runs, the score first (also in a wide form).

    Runs on text and on images have a picture of their scores each: they share no unit.
    """
    images = [run.of_images for run in runs]
    wanted = _CURVES + (_OF_IMAGES if any(images) else ())
    curves = [Panel(key, title, note, _picture(key, runs, _WIDTH)) for key, title, note in wanted]
    if _scaled(runs):
        note = "Each run in its own range: losses share no unit."
        curves[0] = Panel("loss", "Loss, scaled to 0-1", note, curves[0].svg)
    first, *more = [
        _scores(key, runs) for key, kind in (("dev", False), ("knn", True)) if kind in images
    ]
    return [first, curves[0], *more, *curves[1:]]


def _scores(key: str, runs: Sequence[Run]) -> Panel:
    """Draw the scores of the runs on text (``dev``) or on images (``knn``)."""
    unit = next((run.dev_name for run in runs if run.dev_name and _score_of(run) == key), "")
    return Panel(
        key,
        unit if key == "knn" else f"{unit[:1].upper()}{unit[1:]}" or "Dev score",
        _SCORES[key],
        _picture(key, runs, _WIDTH),
        _picture(key, runs, _WIDE).replace(f"series-{key}-", f"series-{key}-wide-"),
    )


def _score_of(run: Run) -> str:
    return "knn" if run.of_images else "dev"


def _scaled(runs: Sequence[Run]) -> bool:
    """Tell whether the losses of the runs cannot share an axis."""
    return len({(run.objective, repr(sorted(run.parameters.items()))) for run in runs}) > 1


def _picture(key: str, runs: Sequence[Run], width: int) -> str:
    """Return one picture as an ``<svg>`` element."""
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": f"isotrope {key} {width}",  # ids stay unique among the pictures of a page
        "font.size": 11,
        "axes.unicode_minus": True,
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
        **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), INK),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.linewidth": 0.8,
        "lines.solid_capstyle": "round",
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(width / 72, _HEIGHT / 72), dpi=72)
        labelled = width == _WIDE and len(runs) <= _MOST_LABELS
        right = _LABELS if labelled else 12
        box = (46 / width, 34 / _HEIGHT, (width - 46 - right) / width, (_HEIGHT - 44) / _HEIGHT)
        axes = figure.add_axes(box)
        labels: dict[str, str] = {}
        if _draw(axes, key, runs):
            _finish(axes, key, max(run.steps.max(initial=0.0) for run in runs))
            if labelled:
                labels = _label_ends(axes, key, runs)
        else:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return _element(
        buffer.getvalue(), f"{key.replace('_', ' ')} over training, one line per run", labels
    )


def _draw(axes: Axes, key: str, runs: Sequence[Run]) -> bool:
    """Draw all runs; return whether there was anything to draw."""
    drawn = False
    scaled = key == "loss" and _scaled(runs)
    for index, (run, style) in enumerate(zip(runs, styles(len(runs)), strict=True)):
        x, y = _points(run, key)
        if not len(y):
            continue
        drawn = True
        if scaled:
            y = (y - y.min()) / (np.ptp(y) or 1.0)
        faint = len(runs) <= _MOST_FAINT
        _line(axes, x, y, style, f"series-{key}-{index}", faint=faint)
        if key == "trajectory":
            x, y = _smooth(x), _smooth(y)
            axes.plot(x[0], y[0], "o", mfc="none", color=style.colour, ms=6)
            axes.plot(x[-1], y[-1], "o", color=style.colour, ms=6)
    if key in _SCORES and drawn:
        _mark_scores(axes, key, runs)
    return drawn


def _points(run: Run, key: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the measured points of a run: steps and values, or alignment and uniformity."""
    empty = np.full_like(run.steps, np.nan)
    if key == "trajectory":
        x, y = run.series.get("alignment", empty), run.series.get("uniformity", empty)
    elif key in _SCORES:
        x, y = run.steps, run.scores if _score_of(run) == key else empty
    else:
        x, y = run.steps, run.series.get(key, empty)
    measured = np.isfinite(x) & np.isfinite(y)
    return x[measured], y[measured]


def _smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the running mean over about a fifteenth of the points, shorter at both ends."""
    if len(values) < _SMOOTH_FROM:
        return values
    window = np.ones(2 * max(2, len(values) // 30) + 1)
    mass = np.convolve(np.ones_like(values), window, mode="same")
    return np.asarray(np.convolve(values, window, mode="same") / mass)


def _line(
    axes: Axes,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    style: Style,
    gid: str,
    *,
    faint: bool,
) -> None:
    """Draw one series; a long one as its running mean, with the raw values faintly behind."""
    if len(y) >= _SMOOTH_FROM and not gid.startswith(("series-dev", "series-knn")):
        if faint:
            axes.plot(x, y, color=style.colour, lw=0.7, alpha=0.22)
        steps = _smooth(x) if gid.startswith("series-trajectory") else x
        x, y = steps, _smooth(y)
    marker = "o" if len(y) == 1 else ""
    (line,) = axes.plot(x, y, color=style.colour, lw=1.8, marker=marker, ms=4)
    if style.dash:
        line.set_dashes(style.dash)
    line.set_gid(gid)


def _mark_scores(axes: Axes, key: str, runs: Sequence[Run]) -> None:
    """Draw where each run started (one grey line if they agree) and the step that was saved."""
    styled = [
        (run, style)
        for run, style in zip(runs, styles(len(runs)), strict=True)
        if _score_of(run) == key
    ]
    starts = [run.metric("dev_start") for run, _ in styled]
    common = len({round(start, 6) for start in starts if start is not None}) == 1
    for (run, style), start in zip(styled, starts, strict=True):
        if start is not None:
            colour = INK if common else style.colour
            axes.axhline(start, color=colour, lw=1.0, dashes=(4, 3), zorder=1)
        step, score = run.saved_step, run.metric(run.saved)
        if step is not None and score is not None:
            axes.plot(step, score, "o", color=style.colour, ms=6.5, zorder=4)


def _finish(axes: Axes, key: str, last_step: float) -> None:
    """Set ticks, grid and limits; a constant or single value gets room around it."""
    low, high = axes.dataLim.y0, axes.dataLim.y1
    flat = 0.02 if key == "ratio" else 1e-9  # a ratio fixed by the objective has rounding noise
    if high - low <= flat * max(abs(low), abs(high)):
        room = 0.05 * abs(low) or 0.5
        axes.set_ylim(low - room, high + room)
    elif key == "gradient_norm" and low > 0 and high / low > 30:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    if axes.get_yscale() == "linear":
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    if key != "trajectory":
        axes.set_xlim(-0.03 * (last_step or 1), 1.03 * (last_step or 1))
    axes.xaxis.set_major_locator(
        MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=key != "trajectory")
    )
    tick = FuncFormatter(lambda value, _: _tick(value))
    axes.xaxis.set_major_formatter(tick)
    axes.yaxis.set_major_formatter(tick)
    axes.grid(axis="both" if key == "trajectory" else "y", lw=0.6, alpha=0.28)
    axes.tick_params(length=0, pad=5)
    axes.set_axisbelow(True)


def _tick(value: float) -> str:
    """Return a tick's number without rounding noise, with thousands apart and a true minus."""
    short = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"
    return short.replace("-", "\N{MINUS SIGN}")


def _label_ends(axes: Axes, key: str, runs: Sequence[Run]) -> dict[str, str]:
    """Write each run's name at the end of its line, pushed apart; return placeholder -> text.

    The names are put into the finished SVG: fonts and math markup of matplotlib never see them.
    """
    ends = []
    for index, run in enumerate(runs):
        x, y = _points(run, key)
        if len(y):
            pixel = axes.transData.transform((x[-1], y[-1]))[1]
            ends.append((float(pixel), index))
    ends.sort()
    low, high = axes.bbox.y0, axes.bbox.y1
    heights: list[float] = []
    for pixel, _ in ends:
        heights.append(max(pixel, heights[-1] + 15 if heights else low))
    for i in range(len(heights) - 1, -1, -1):
        ceiling = heights[i + 1] - 15 if i + 1 < len(heights) else high
        heights[i] = min(heights[i], ceiling)
    labels = {}
    for height, (_, index) in zip(heights, ends, strict=True):
        name, style = runs[index].name, styles(len(runs))[index]
        y = (height - low) / (high - low)
        axes.text(
            1.015, y, f"label-{index}", color=style.colour, va="center", transform=axes.transAxes
        )
        labels[f"label-{index}"] = (
            name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}\u2026"
        )
    return labels


def _element(document: str, description: str, labels: dict[str, str]) -> str:
    """Return the bare ``<svg>`` element of matplotlib's document, ready to stand in a page."""
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)  # it would style the whole page
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r'\1 role="img"', svg, count=1)
    svg = svg.replace("<svg", f'<svg aria-label="{html.escape(description)}"', 1)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", svg)
    used = set(re.findall(r"#([\w.-]+)", svg))
    svg = re.sub(
        r' id="([^"]*)"',
        lambda match: match[0] if match[1] in used or match[1].startswith("series-") else "",
        svg,
    )
    for placeholder, text in labels.items():
        svg = svg.replace(f">{placeholder}<", f">{html.escape(text)}<")
    return re.sub(r"\s*\n\s*", " ", svg).strip()
