"""The record of a metric: its definition, the logs that have it, and its place in reports."""

from dataclasses import dataclass
from typing import Literal

Log = Literal["text", "images", "doctor"]
EVERY: tuple[Log, ...] = ("text", "images", "doctor")
LOOP = "training/run_log.py"
"""The file that logs numbers of the loop, such as the learning rate; for the Doctor: ``note``."""


@dataclass(frozen=True)
class Panel:
    """The picture of a metric in a report.

    Attributes:
        section: Key of the section of the report.
        note: How to read the picture, in one line.
        title: Heading of the picture; if empty, the title of the metric.
        key: Name of the picture on the page and of its files; if empty, the column of the metric.
        kind: ``course``: a line of running means. ``score``: a line of values, on which the start
            and the saved model are marked. ``path``: points that are joined in the order of steps.
        across: Column of the horizontal axis.
        floor: Value that the vertical axis always shows, for example 0.
        least: Lowest possible value, for example 0; the vertical axis does not go below it.
        most: Highest possible value, for example 1; the vertical axis does not go above it.
        mark: Value marked by a dashed line.
        logarithmic: Whether the axis is logarithmic if the values span several powers of ten.
        angular: Whether values are angles, with ticks in multiples of pi.
        place: Position in the section. Pictures with equal positions keep the order of ``METRICS``.
    """

    section: str
    note: str
    title: str = ""
    key: str = ""
    kind: Literal["course", "score", "path"] = "course"
    across: str = "step"
    floor: float | None = None
    least: float | None = None
    most: float | None = None
    mark: float | None = None
    logarithmic: bool = False
    angular: bool = False
    place: int = 0


@dataclass(frozen=True)
class Metric:
    """One number of a log or of a result.

    Attributes:
        column: Column of metrics.csv, or key in the metrics of a result.
        title: Name of the metric in headings.
        definition: Definition in one line, for tables.
        meaning: Paragraph of the glossary; empty if the picture needs no explanation.
        logs: Kinds of log that have this column; empty if only the result of a run has the number.
        measured_in: File in ``src/isotrope`` that measures the number and puts it into the log.
        panel: Picture of the metric; None if the metric has no picture of its own.
        beside: Column whose picture also shows this metric, as a line or as the horizontal axis.
        line: Name of the metric's line in a picture with several lines.
        spread: Column of the metric's standard deviation, drawn as a band.
        heading: Heading in the comparison of runs; empty if the metric is not compared.
        only: Kind of runs (text or images) that are compared by the metric; empty for both kinds.
        digits: Number of decimals in the comparison; None for as many as the values need.
    """

    column: str
    title: str
    definition: str
    meaning: str = ""
    symbol: str = ""
    unit: str = ""
    logs: tuple[Log, ...] = EVERY
    measured_in: str = "diagnostics/observe.py"
    panel: Panel | None = None
    beside: str = ""
    line: str = ""
    spread: str = ""
    heading: str = ""
    only: Literal["text", "images", ""] = ""
    digits: int | None = None
