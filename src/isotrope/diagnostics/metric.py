"""The record of a metric: its definition, the logs that have it, its picture and comparison."""

from dataclasses import dataclass
from typing import Literal

Log = Literal["text", "images", "doctor"]
EVERY: tuple[Log, ...] = ("text", "images", "doctor")


@dataclass(frozen=True)
class Panel:
    """The picture of a metric.

    Attributes:
        section: Key of the section of a report.
        note: How to read the picture, in one line.
        title: Heading; empty for the title of the metric.
        key: Name on the page and of the files; empty for the column.
        kind: ``course`` over the steps, drawn as running means; ``score`` over the steps, with its
            start and the saved model; ``path`` over another column, in the order of the steps.
        across: Column of the horizontal axis.
        floor: Value that the vertical axis always shows (0 for a share).
        least: Lowest possible value (0 for a length); the vertical axis does not go below it.
        most: Highest possible value (1 for a share).
        mark: Value marked by a dashed line.
        logarithmic: Whether values that span decades get a logarithmic axis.
        angular: Whether values are angles, with ticks in multiples of pi.
        place: Position within a section; equal positions keep the table's order.
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
        title: Name.
        definition: Definition in one line, for tables.
        meaning: Paragraph of the glossary; empty if a picture needs none.
        symbol: Symbol in the papers.
        unit: Unit.
        logs: Kinds of log that have the column; none for a number of a result.
        of_step: Whether the training loop supplies it; ``observe.measure`` measures the others.
        panel: Picture of the metric, if it has its own.
        beside: Column in whose picture it is drawn, or whose axis it is.
        line: Name of its line in a picture with several.
        spread: Column of its standard deviation, drawn as a band.
        heading: Heading in the comparison of runs; empty if it is not compared.
        only: Kind of run whose comparison has it; empty for both.
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
