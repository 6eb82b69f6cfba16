"""Arranges panels and their legends in a grid, with space for each panel's labels."""

from collections.abc import Mapping, Sequence
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from papers.plots.framing import extent, short, wrapped

__all__ = ["above_axes", "arrange", "head"]

Corner = Literal["lower left", "upper left"]

_GAP = 0.16  # inches between panels
_LONGEST = 44  # characters of a title in a legend


def above_axes(axes: Axes, handles: Mapping[str, Artist]) -> None:
    """Draw the legend of one panel, title to what stands for it, above its axes."""
    _legend(axes, handles, axes.bbox.width, "lower left", 0.5)


def _legend(
    owner: Axes | Figure, handles: Mapping[str, Artist], width: float, corner: Corner, pad: float
) -> Legend:
    """Draw a legend of as many columns as stay within a width (pixels)."""
    names = [short(title, _LONGEST) for title in handles]
    dashed = any(
        isinstance(handle, Line2D) and handle.get_linestyle() != "None"
        for handle in handles.values()
    )

    def drawn(columns: int) -> Legend:
        legend: Legend = owner.legend(
            list(handles.values()),
            names,
            ncols=columns,
            frameon=False,
            loc=corner,
            bbox_to_anchor=(0.0, 1.0),
            borderaxespad=pad,
            borderpad=0,
            handlelength=3.2 if dashed else 1.4,
        )
        return legend

    columns = 1
    while columns < len(handles):
        wider = drawn(columns + 1)
        fits = extent(wider).width <= width
        wider.remove()
        if not fits:
            break
        columns += 1
    return drawn(columns)


def head(axes: Axes, title: str) -> None:
    """Write the title above the axes and their legend."""
    legend, figure = axes.get_legend(), axes.get_figure(root=True)
    assert figure is not None
    above = 0.0 if legend is None else extent(legend).y1 - axes.bbox.y1
    wrapped_title = wrapped(title, axes.bbox.width / figure.dpi, 10)
    axes.set_title(wrapped_title, loc="left", pad=6 + 72 * above / figure.dpi)


def arrange(
    figure: Figure, all_axes: Sequence[Axes], columns: int, shared: dict[str, Artist]
) -> None:
    """Give every panel its place, with room for what surrounds it, and draw the shared legend."""
    dpi, (wide, high) = figure.dpi, figure.get_size_inches()
    around = [_overhang(axes) for axes in all_axes]
    of_column = [around[column::columns] for column in range(columns)]
    of_row = [around[i : i + columns] for i in range(0, len(all_axes), columns)]
    left, right = ([max(over[i] for over in overhangs) for overhangs in of_column] for i in (0, 2))
    below, above = ([max(over[i] for over in overhangs) for overhangs in of_row] for i in (1, 3))
    width = sum(left) + sum(right) + columns * (wide + _GAP)
    height = sum(below) + sum(above) + len(of_row) * (high + _GAP)
    figure.set_size_inches(width, height)
    head = 0.0
    if shared:
        x = left[0] + _GAP / 2
        legend = _legend(figure, shared, (width - x) * dpi, "upper left", 0.5)
        head = extent(legend).height / dpi + _GAP
        width = max(width, x + extent(legend).width / dpi + _GAP)
        legend.set_bbox_to_anchor((x / width, 1.0), figure.transFigure)
        figure.set_size_inches(width, height + head)
    for i, axes in enumerate(all_axes):
        row, column = divmod(i, columns)
        x = sum(left[: column + 1]) + sum(right[:column]) + column * (wide + _GAP) + _GAP / 2
        y = sum(below[row:]) + sum(above[row + 1 :]) + (len(of_row) - 1 - row) * (high + _GAP)
        y += _GAP / 2
        axes.set_position((x / width, y / (height + head), wide / width, high / (height + head)))


def _overhang(axes: Axes) -> tuple[float, float, float, float]:
    """Return how far texts reach beyond the axes: left, below, right, above, in inches."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    box, inner = extent(axes), axes.bbox
    beyond = (inner.x0 - box.x0, inner.y0 - box.y0, box.x1 - inner.x1, box.y1 - inner.y1)
    left, below, right, above = (max(0.0, float(pixels)) / figure.dpi for pixels in beyond)
    return left, below, right, above
