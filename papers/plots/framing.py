"""The frame of a chart: limits, ticks, marks, labels and a colour scale.

Texts are measured before they are placed. They stand as they are given, whatever they hold.
"""

import itertools
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from isotrope.reports.plots import INK
from papers.plots.labels import Box, apart, beside, room
from papers.plots.shapes import COLOURS, Shape
from papers.plots.ticks import linear_ticks, log_ticks, numbers

__all__ = [
    "SMALL",
    "extent",
    "label_points",
    "limits",
    "mark",
    "name_ticks",
    "number_ticks",
    "scale",
    "short",
    "wrapped",
]

SMALL = 7.5
"""Points of the labels inside a panel and beside it."""
_LETTER = 0.0082  # mean width of a letter, inches for each point of its size
_FLAT = 1e-9  # relative range of values that are drawn as one
_LONGEST_NAME, _LONGEST_LABEL = 26, 32  # characters below an axis, beside a point
_UPRIGHT_BELOW = 0.2  # inches from name to name; slanted ones would touch
_ASIDE = 1.0  # inches of a line beside a panel


def short(text: str, most: int) -> str:
    """Return a name of at most so many characters on one line: begin and end, if it is longer."""
    line = _line(text)
    if len(line) <= most:
        return line
    end = most // 3
    return f"{line[: most - end - 1].rstrip()}\N{HORIZONTAL ELLIPSIS}{line[-end:].lstrip()}"


def wrapped(text: str, inches: float, size: float, *, lines: int = 3) -> str:
    """Return a text in lines of about this width, cut off if there are too many."""
    letters = max(8, int(inches / (_LETTER * size)))
    wrapped_lines = textwrap.wrap(
        _line(text), letters, max_lines=lines, placeholder="\N{HORIZONTAL ELLIPSIS}"
    )
    return "\n".join(wrapped_lines)


def _line(text: str) -> str:
    """Return a text on one line, without characters that a file of XML cannot hold."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for letter in " ".join(text.split())
    )


def extent(artist: Artist) -> Bbox:
    """Return the box around what an artist draws, in pixels of its figure."""
    figure = artist.get_figure(root=True)
    assert isinstance(figure, Figure)
    canvas = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        canvas = FigureCanvasAgg(figure)
    box = artist.get_tightbbox(canvas.get_renderer())  # type: ignore[no-untyped-call]
    assert box is not None
    return box


def limits(
    values: NDArray[np.float64], *, log: bool, room: float = 0.05, base: bool = False
) -> tuple[float, float]:
    """Return the limits of an axis: room around all finite values, also if they are one.

    Args:
        values: any number; positive where finite, if ``log``.
        log: whether the axis is logarithmic.
        room: on each side, in ranges.
        base: bars stand on it: on zero, or on a limit well below the smallest.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return (1.0, 10.0) if log else (0.0, 1.0)
    if log:
        first, last = np.log10(finite.min()), np.log10(finite.max())
        margin = max(room * (last - first), 0.08)
        below = max(margin, 0.15 * (last - first), 0.3) if base else margin
        # no further than where floating point ends
        return float(10 ** max(first - below, -300)), float(10 ** min(last + margin, 300))
    low, high = float(finite.min()), float(finite.max())
    if base:
        low, high = min(low, 0.0), max(high, 0.0)
    flat = high - low <= _FLAT * max(abs(low), abs(high))
    margin = (0.05 * abs(low) or 0.5) if flat else room * (high - low)
    return low - margin * (not base or low < 0), high + margin * (not base or high > 0 or flat)


def number_ticks(axes: Axes, which: str, values: NDArray[np.float64]) -> None:
    """Put ticks at round numbers within the limits; whole ones, where all values are whole.

    A logarithmic horizontal axis has them at the values themselves if there is room.
    """
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    distinct = np.unique(values[np.isfinite(values)])
    integers = bool((distinct == np.round(distinct)).all()) and which == "x"
    choices = [linear_ticks(low, high, most, integers=integers) for most in (6, 4, 2)]
    if axis.get_scale() == "log":
        choices = [log_ticks(low, high, most) for most in (8, 4, 2)]
        if which == "x" and 2 <= len(distinct) <= 9:
            choices.insert(0, [float(value) for value in distinct])
    for ticks in choices:
        texts = numbers(ticks)
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FixedFormatter(texts))
        axis.set_minor_locator(NullLocator())
        if which == "y" or not _crowded(axes):
            return


def _crowded(axes: Axes) -> bool:
    boxes = [extent(label) for label in axes.get_xticklabels() if label.get_text()]
    space = axes.bbox.width / 40
    return any(a.x1 + space > b.x0 for a, b in itertools.pairwise(boxes))


def name_ticks(axes: Axes, names: Sequence[str]) -> None:
    """Put names below the axis: level if they all fit, or slanted, or upright."""
    axes.set_xlim(-0.55, len(names) - 0.45)
    axes.set_xticks(range(len(names)), [short(name, _LONGEST_NAME) for name in names])
    if not _crowded(axes):
        return
    figure = axes.get_figure(root=True)
    assert figure is not None
    upright = axes.bbox.width / figure.dpi / len(names) < _UPRIGHT_BELOW
    for label in axes.get_xticklabels():
        label.set(rotation=90 if upright else 40, rotation_mode="anchor")
        label.set(ha="right", va="center" if upright else "top")


def mark(axes: Axes, marks: Mapping[str, float]) -> float:
    """Draw dashed lines over the width of the axes, their labels to the right, pushed apart.

    Args:
        axes: with its limits set.
        marks: label to height; what lies outside the limits is left out.

    Returns:
        how far the labels reach beyond the axes, in widths of the axes.
    """
    low, high = axes.get_ylim()
    inside = {label: at for label, at in marks.items() if low <= at <= high}
    for at in inside.values():
        axes.axhline(at, color=INK, lw=1.0, dashes=(4, 3), zorder=1)
    inside = {label: at for label, at in inside.items() if label.strip()}
    if not inside:
        return 0.0
    heights = axes.transAxes.inverted().transform(
        axes.transData.transform([(0.0, at) for at in inside.values()])
    )[:, 1]
    texts = []
    for label in inside:
        line = wrapped(label, _ASIDE, SMALL)
        texts.append(
            axes.text(1.045, 0, line, transform=axes.transAxes, fontsize=SMALL, va="center")
        )
    boxes = [extent(text) for text in texts]
    sizes = [box.height / axes.bbox.height + 0.02 for box in boxes]
    middles = apart([float(height) for height in heights], sizes, 0.0, 1.08)
    for text, height, middle in zip(texts, heights, middles, strict=True):
        text.set_y(middle)
        axes.plot(
            (1, 1.035), (height, middle), color=INK, lw=0.6, transform=axes.transAxes, clip_on=False
        )
    return max(float(box.x1 - axes.bbox.x1) / axes.bbox.width for box in boxes)


def scale(axes: Axes, norm: Normalize, title: str, right: float) -> None:
    """Draw a scale of colours to the right of a panel, so many of its widths away."""
    inset = axes.inset_axes((1.05 + right, 0, 0.035, 1))
    figure = axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    bar = figure.colorbar(ScalarMappable(norm, COLOURS), cax=inset)
    bar.outline.set_visible(False)
    low, high = inset.get_ylim()
    ticks = linear_ticks(low, high, 6)
    bar.set_ticks(ticks, labels=numbers(ticks))
    inset.minorticks_off()
    inset.tick_params(length=0, pad=3, labelsize=SMALL)
    inset.set_ylabel(wrapped(title, axes.bbox.height / figure.dpi, 9))


def label_points(axes: Axes, labelled: Sequence[Shape], others: Sequence[Shape]) -> bool:
    """Write titles beside single points, apart from each other, with a line to those far away.

    Args:
        axes: with its limits set.
        labelled: shapes of one point.
        others: shapes whose points the labels should rather not cover.

    Returns:
        whether there was room; else nothing is written.
    """
    texts = [_label(axes, shape.title) for shape in labelled]
    boxes = [extent(text) for text in texts]
    sizes = [(box.width + 2, box.height * 1.05) for box in boxes]
    frame: Box = axes.bbox.extents
    if not room(sizes, frame):
        for text in texts:
            text.remove()
        return False
    points = [axes.transData.transform((shape.x[0], shape.y[0])) for shape in labelled]
    every = [
        axes.transData.transform((x, y))
        for shape in (*labelled, *others)
        for x, y in zip(shape.x[shape.known], shape.y[shape.known], strict=True)
    ]
    around = 0.016 * axes.bbox.width
    dots = [(x - around, y - around, x + around, y + around) for x, y in every]
    places = beside([(float(x), float(y)) for x, y in points], sizes, frame, dots)
    inverse = axes.transAxes.inverted()
    for text, place, (x, y) in zip(texts, places, points, strict=True):
        left, low = inverse.transform(place[:2]).tolist()
        text.set_position((left, low))
        near = (min(max(x, place[0]), place[2]), min(max(y, place[1]), place[3]))
        if np.hypot(near[0] - x, near[1] - y) > 3 * around:
            ends = inverse.transform([(x, y), near])
            axes.plot(*ends.T, color=INK, lw=0.5, transform=axes.transAxes, zorder=1)
    return True


def _label(axes: Axes, title: str) -> Text:
    """Return a text not wider than most of the axes."""
    text = axes.text(0, 0, "", transform=axes.transAxes, fontsize=SMALL, va="bottom", zorder=4)
    for most in range(_LONGEST_LABEL, 3, -4):
        text.set_text(short(title, most))
        if extent(text).width < 0.7 * axes.bbox.width:
            break
    return text
