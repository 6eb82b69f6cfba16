"""Defines the pictures of a report and its glossary, from ``isotrope.diagnostics.metrics``."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from textwrap import fill

import numpy as np

from isotrope.core.legible import shortened
from isotrope.diagnostics.metric import Metric, Panel
from isotrope.diagnostics.metrics import METRICS
from isotrope.reports.runs import Run

_TITLE = 40  # characters of a line; many lines would leave no room for the picture


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


def expanded(quantities: Iterable[Quantity], runs: Sequence[Run]) -> list[Quantity]:
    """Return the quantities to draw, with one picture of the dev score for each dev metric.

    The dev metric of an unfinished run is that of the finished runs with an equal setting ``dev``.
    """
    names_of_dev = {str(run.settings.get("dev")): run.dev_name for run in runs if run.dev_name}
    runs_of_metric: dict[str, set[int]] = {}
    for i, run in enumerate(runs):
        if not run.of_images and np.isfinite(run.scores).any():
            name = run.dev_name or names_of_dev.get(str(run.settings.get("dev")), "")
            runs_of_metric.setdefault(name, set()).add(i)
    pictures = []
    for quantity in quantities:
        if quantity.key != "dev" or len(runs_of_metric) < 2:
            pictures.append(quantity)
            continue
        for number, indices in enumerate(runs_of_metric.values(), start=1):
            key = "dev" if number == 1 else f"dev{number}"
            pictures.append(replace(quantity, key=key, runs=frozenset(indices)))
    return pictures


def heading(quantity: Quantity, runs: Sequence[Run]) -> tuple[str, str]:
    """Return title and note of a picture. The note says if losses have different units."""
    if quantity.lines[0].column == "dev":
        scored = (run for _, run in runs_of(quantity, runs) if not run.of_images)
        name = next((run.dev_name for run in scored if run.dev_name), quantity.title)
        return fill(shortened(name[:1].upper() + name[1:], 2 * _TITLE), _TITLE), quantity.note
    if has_no_common_unit(quantity, runs):
        return (
            "Loss, scaled to 0-1",
            "Each run's loss is scaled separately: different objectives have no common unit.",
        )
    return quantity.title, quantity.note


def has_no_common_unit(quantity: Quantity, runs: Sequence[Run]) -> bool:
    """Return whether runs cannot share an axis: losses of different objectives."""
    if quantity.key != "loss":
        return False
    if not all(run.finished for run in runs):  # config.yaml has only the values that were set
        runs = [replace(run, result=None) for run in runs]
    objectives = set()
    for run in runs:
        name = run.method if run.objective == "?" else run.objective
        objectives.add((run.objective, name, repr(sorted(run.parameters.items()))))
    return len(objectives) > 1


def runs_of(quantity: Quantity, runs: Sequence[Run]) -> list[tuple[int, Run]]:
    """Return the runs of a picture, with their indices among all runs."""
    return [(i, run) for i, run in enumerate(runs) if quantity.runs is None or i in quantity.runs]


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
