"""Defines the pictures and the glossary of a report, from ``isotrope.diagnostics.metrics``."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from isotrope.diagnostics.metric import Metric, Panel
from isotrope.diagnostics.metrics import METRICS


@dataclass(frozen=True)
class Line:
    """One line of every run in a picture.

    Attributes:
        column: The column of metrics.csv.
        name: The name in the legend of the picture; empty if each run has only one line.
        spread: The column of the standard deviation, which is drawn as a band; empty for no band.
    """

    column: str
    name: str = ""
    spread: str = ""


@dataclass(frozen=True)
class Quantity(Panel):
    """One picture: a panel with its lines.

    Attributes:
        lines: Lines to draw for every run; the second line is dotted.
        runs: Indices of the runs to draw; None for all runs.
    """

    lines: tuple[Line, ...] = ()
    runs: frozenset[int] | None = None


@dataclass(frozen=True)
class Section:
    """The pictures of one subject, with a heading and a note."""

    title: str
    note: str
    quantities: tuple[Quantity, ...]


def _quantity(metric: Metric, panel: Panel) -> Quantity:
    drawn = [metric, *(m for m in METRICS if m.beside == metric.column)]
    lines = (Line(m.column, m.line, m.spread) for m in drawn if m.column != panel.across)
    named = replace(panel, key=panel.key or metric.column, title=panel.title or metric.title)
    return Quantity(**vars(named), lines=tuple(lines))


def _section(key: str, title: str, note: str) -> Section:
    drawn = [_quantity(m, m.panel) for m in METRICS if m.panel is not None]
    own = (quantity for quantity in drawn if quantity.section == key)
    return Section(title, note, tuple(sorted(own, key=lambda quantity: quantity.place)))


SECTIONS = (
    _section("training", "Training", "Does the model learn? Is the score still rising at the end?"),
    _section(
        "gradient",
        "Gradient of one anchor",
        "How strong is the gradient, which negatives push, and how strong is the pull?",
    ),
    _section("norms", "Norms", "Long embeddings have small gradients, so training slows down."),
    _section("angles", "Angles", "Are positives nearer than negatives, and by how much?"),
    _section("spread", "Spread", "Do the embeddings use all dimensions, or do they collapse?"),
)
QUANTITIES = tuple(quantity for section in SECTIONS for quantity in section.quantities)


def explained(keys: AbstractSet[str]) -> list[tuple[str, str, str]]:
    """Return a tuple (title, symbol, meaning) for each metric in the pictures with these keys."""
    return [
        (metric.title, metric.symbol, metric.meaning)
        for quantity in QUANTITIES
        if quantity.key in keys
        for metric in METRICS
        if metric.meaning
        and metric.column in {quantity.across, *(line.column for line in quantity.lines)}
    ]
