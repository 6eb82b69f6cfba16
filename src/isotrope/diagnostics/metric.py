"""The record of a metric: what it is, which logs have it, how it is drawn and compared."""

from dataclasses import dataclass
from typing import Literal

Log = Literal["text", "images", "doctor"]
EVERY: tuple[Log, ...] = ("text", "images", "doctor")


@dataclass(frozen=True)
class Panel:
    """How a metric is drawn.

    Attributes:
        section: The key of the section of a report.
        note: How to read it, in one line.
        title: The heading; empty for the title of the metric.
        key: The name on the page and of the files; empty for the column.
        kind: ``course`` over the steps, drawn as running means; ``score`` over the steps, with its
            start and the saved model; ``path`` over another column, in the order of the steps.
        across: The column of the horizontal axis.
        floor: A value that the vertical axis always shows (0 of a share).
        least: No value is below it (0 of a length), so the vertical axis does not go there.
        most: No value is above it (1 of a share).
        mark: A value with a dashed line of its own.
        logarithmic: Whether values that span decades get a logarithmic axis.
        angular: Whether values are angles, with ticks in multiples of pi.
        place: Orders the pictures of a section; those with the same keep the table's order.
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
        column: The column of metrics.csv, or the key in the metrics of a result.
        title: The name.
        definition: What it is, in one line, for tables.
        meaning: The paragraph of the glossary; empty if a picture needs none.
        symbol: The symbol in the papers.
        unit: The unit.
        logs: The kinds of log that have the column; none for a number of a result.
        of_step: Whether the training loop knows it, where ``observe.measure`` measures the others.
        panel: How it is drawn, if it has a picture of its own.
        beside: The column in whose picture it is drawn, or whose axis it is.
        line: The name of its line, where a picture has several.
        spread: The column of its standard deviation, drawn as a band.
        heading: The heading in the comparison of runs; empty if it is not compared.
        only: The kind of run whose comparison has it; empty for both.
        digits: Decimals in the comparison; None for as many as the values need.
    """

    column: str
    title: str
    definition: str
    meaning: str = ""
    symbol: str = ""
    unit: str = ""
    logs: tuple[Log, ...] = EVERY
    of_step: bool = False
    panel: Panel | None = None
    beside: str = ""
    line: str = ""
    spread: str = ""
    heading: str = ""
    only: Literal["text", "images", ""] = ""
    digits: int | None = None
