"""Draws the pictures of the page as SVG elements, and describes the axes for the page's script.

Every picture is transparent and has the text colour of the page. The same runs give the same bytes.
"""

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isotrope.core.legible import shortened
from isotrope.reports.plots import INK, Curve, draw, settings, styles
from isotrope.reports.quantities import SECTIONS, Quantity, Section, expanded, heading
from isotrope.reports.runs import Run

# in points; a point is a CSS pixel if the picture is not scaled
_WIDTH, _HEIGHT, _WIDE, _LABELS = 360, 212, 740, 150
_MOST_LABELS = 8  # with more runs, names are in the legend only, not at the ends of lines
_LONGEST = 21  # characters of a name that fit beside the curves


@dataclass(frozen=True)
class Scale:
    """The axes of a picture, with which the page's script converts positions to numbers.

    Attributes:
        across: The quantity on the horizontal axis.
        along: Whether the cursor reads all lines at one x position; if False, the nearest point.
        box: Left, top, right and bottom of the axes, in points from the top left corner.
        x: Horizontal position of the number 0, and number of points for one unit.
        lines: A dict for each line: ``run``, ``column``, ``name``, ``spread``, ``y`` (like ``x``).
        log: Whether the vertical axis is logarithmic; then ``y`` has the position of 1.
    """

    across: str
    along: bool
    box: tuple[float, float, float, float]
    x: tuple[float, float]
    lines: tuple[dict[str, Any], ...]
    log: bool


@dataclass(frozen=True)
class ReportPanel:
    """One picture of the page.

    Attributes:
        key: The key of the quantity, unique on the page.
        title: The heading.
        note: A line on how to read the picture.
        names: The names of the solid and the dotted line of a run; empty if runs have one line.
        svg: The SVG element.
        wide: A wider SVG element with the runs' names at the ends of lines; "" if it is not drawn.
        scales: A dict from ``KEY`` and ``KEY-wide`` to the scales of ``svg`` and ``wide``.
        without: Names of the runs that have not measured this quantity.
    """

    key: str
    title: str
    note: str
    names: tuple[str, ...]
    svg: str
    wide: str
    scales: dict[str, Scale]
    without: tuple[str, ...]


class DrawnSection(NamedTuple):
    """The pictures of one subject, and the titles of the quantities that no run has measured."""

    section: Section
    panels: list[ReportPanel]
    absent: list[str]


def sections(runs: Sequence[Run]) -> list[DrawnSection]:
    """Draw the measured quantities by subject."""
    drawn = []
    for section in SECTIONS:
        panels, absent = list[ReportPanel](), list[str]()
        for quantity in expanded(section.quantities, runs):
            picture = panel(quantity, runs)
            if picture is not None:
                panels.append(picture)
            elif _expected(quantity, runs):
                absent.append(quantity.title)
        drawn.append(DrawnSection(section, panels, absent))
    return drawn


def _expected(quantity: Quantity, runs: Sequence[Run]) -> bool:
    """Return whether runs of this kind (on text or on images) measure the quantity."""
    kinds = {run.of_images for run in runs}
    # most runs hold no data out, so a missing held-out loss is not listed
    only: dict[str, set[bool]] = {"dev": {False}, "knn": {True}, "held_out_contrastive": set()}
    return bool(kinds & only.get(quantity.lines[0].column, {True, False}))


def panel(quantity: Quantity, runs: Sequence[Run]) -> ReportPanel | None:
    """Return the picture of a quantity, or None if no run has measured it."""
    key = quantity.key
    svg, scale, drawn = _picture(quantity, runs, _WIDTH)
    if not drawn:
        return None
    scales, wide = {key: scale}, ""
    if quantity.kind == "score":
        wide, scales[f"{key}-wide"], _ = _picture(quantity, runs, _WIDE)
        wide = wide.replace(f"series-{key}-", f"series-{key}-wide-")
    title, note = heading(quantity, runs)
    columns = {curve.line.column for curve in drawn}
    names = tuple(line.name for line in quantity.lines if line.name and line.column in columns)
    have = {curve.run for curve in drawn}
    missing = [run for i, run in enumerate(runs) if i not in have]
    if quantity.runs is not None:  # runs without a dev score are listed at the first dev picture
        missing = [run for run in missing if key == "dev" and not np.isfinite(run.scores).any()]
    without = tuple(run.name for run in missing if _expected(quantity, [run]))
    return ReportPanel(key, title, note, names, svg, wide, scales, without)


def _picture(quantity: Quantity, runs: Sequence[Run], width: int) -> tuple[str, Scale, list[Curve]]:
    """Return one picture as an ``<svg>`` element, its scale, and the curves in it."""
    # the width makes ids unique among the pictures of a page
    rc_settings = settings(f"{quantity.key} {width}") | {
        "svg.fonttype": "none",
        "font.size": 11,
        "axes.spines.left": False,
        "axes.linewidth": 0.8,
        "lines.solid_capstyle": "round",
    }
    with mpl.rc_context(rc_settings):
        figure = Figure(figsize=(width / 72, _HEIGHT / 72), dpi=72)
        labelled = quantity.kind == "score" and width == _WIDE and len(runs) <= _MOST_LABELS
        right = _LABELS if labelled else 12
        box = (46 / width, 34 / _HEIGHT, (width - 46 - right) / width, (_HEIGHT - 44) / _HEIGHT)
        axes = figure.add_axes(box)
        drawn = draw(axes, quantity, runs)
        scale = _scale(axes, quantity, drawn)
        labels = _label_ends(axes, drawn, runs) if labelled else {}
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return _element(buffer.getvalue(), _in_words(quantity, drawn, runs), labels), scale, drawn


def _scale(axes: Axes, quantity: Quantity, drawn: Sequence[Curve]) -> Scale:
    """Return the scales of the axes, with heights from the top down, as in SVG."""
    log = axes.get_yscale() == "log"
    ends = axes.transData.transform([(0.0, 1.0), (1.0, 10.0 if log else 2.0)])
    (x0, y0), (x1, y1) = (tuple(map(float, end)) for end in ends)
    rise = y1 - y0  # of one unit, or of one decade
    base = y0 if log else y0 - rise
    lines = []
    for curve in drawn:
        slope = rise / curve.unit
        height = _HEIGHT - base + slope * curve.origin
        line = curve.line
        lines.append(
            {"run": curve.run, "column": line.column, "name": line.name, "spread": line.spread}
            | {"y": (_near(height), float(f"{-slope:.6g}"))}
        )
    frame = axes.bbox
    top, bottom = _near(_HEIGHT - frame.y1), _near(_HEIGHT - frame.y0)
    box = (_near(frame.x0), top, _near(frame.x1), bottom)
    across = (_near(x0), float(f"{x1 - x0:.6g}"))
    return Scale(quantity.across, quantity.kind != "path", box, across, tuple(lines), log)


def _near(place: float) -> float:
    return round(place, 3)


def _in_words(quantity: Quantity, drawn: Sequence[Curve], runs: Sequence[Run]) -> str:
    """Return the picture in words: where each line begins and ends."""
    courses = [
        f"{runs[c.run].name}{c.line.name and ' ' + c.line.name} from {c.y[0]:.4g} to {c.y[-1]:.4g}"
        for c in drawn
    ]
    return f"{quantity.title}: {'; '.join(courses)}."


def _label_ends(axes: Axes, drawn: Sequence[Curve], runs: Sequence[Run]) -> dict[str, str]:
    """Write placeholders for runs' names at the ends of lines; return what replaces them."""
    to_pixels = axes.transData.transform
    ends = sorted((float(to_pixels((c.x[-1], c.shown[-1]))[1]), c.run) for c in drawn)
    low, high = axes.bbox.y0, axes.bbox.y1
    heights: list[float] = []
    for pixel, _ in ends:
        heights.append(max(pixel, heights[-1] + 15 if heights else low))
    for i in range(len(heights) - 1, -1, -1):
        ceiling = heights[i + 1] - 15 if i + 1 < len(heights) else high
        heights[i] = min(heights[i], ceiling)
    labels = {}
    for height, (_, index) in zip(heights, ends, strict=True):
        name, colour = runs[index].name, styles(len(runs))[index].colour
        y = (height - low) / (high - low)
        axes.text(1.015, y, f"label-{index}", color=colour, va="center", transform=axes.transAxes)
        labels[f"label-{index}"] = shortened(name, _LONGEST)
    return labels


def _element(document: str, description: str, labels: dict[str, str]) -> str:
    """Return only the ``<svg>`` element of matplotlib's document, for use in a page."""
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)  # it would style the whole page
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", svg)
    svg = svg.replace(INK, "currentColor")
    used = set(re.findall(r"#([\w.-]+)", svg))
    svg = re.sub(
        r' id="([^"]*)"',
        lambda match: match[0] if match[1] in used or match[1].startswith("series-") else "",
        svg,
    )
    svg = re.sub(r"\s*\n\s*", " ", svg).strip()
    # names of users are inserted last, so that no replacement above changes them
    svg = re.sub(r">(label-\d+)<", lambda match: f">{html.escape(labels[match[1]])}<", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(description)}"', 1)
