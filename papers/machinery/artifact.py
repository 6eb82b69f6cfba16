"""Artifact: one table or figure, its jobs, and the function that renders their results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from isotrope.core import Result
from isotrope.reports import Picture
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Ruling, Spread, spread

Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "cpu", "paper")


@dataclass(frozen=True)
class Results:
    """The results of those jobs that have been run."""

    by_job: Mapping[PaperJob, Result] = field(default_factory=dict)

    def get(self, job: PaperJob) -> Result | None:
        """Return the result of a job; None if it was not run."""
        return self.by_job.get(job)

    def values(self, jobs: Iterable[PaperJob], metric: str) -> list[float]:
        """Return a metric of those jobs that were run and have it."""
        values = [self.by_job[job].metrics.get(metric) for job in jobs if job in self.by_job]
        return [float(value) for value in values if isinstance(value, int | float)]

    def spread(self, jobs: Iterable[PaperJob], metric: str) -> Spread | None:
        """Return mean and deviation of a metric over jobs; None where none of them has it."""
        value_by_seed = {job.seed: self.values([job], metric) for job in jobs}
        return spread({seed: value for seed, values in value_by_seed.items() for value in values})


@dataclass(frozen=True)
class Sheet:
    """Cells of text below a header; None is shown as ``not run``."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    title: str = ""


@dataclass(frozen=True)
class Rendered:
    """A table or figure, measured.

    Attributes:
        tables: paper beside ours.
        verdicts: on the claims that it supports.
        pictures: by file name without suffix; functions, so that a table costs no drawing.
        notes: what a reader must know: what is smaller than the paper's, what was not run.
    """

    tables: Sequence[Sheet] = ()
    verdicts: Sequence[Ruling] = ()
    pictures: Mapping[str, Callable[[], Picture]] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One table or figure, a row of artifacts.toml.

    Attributes:
        title: what it shows, in a line that has ``table`` or ``figure`` in it.
        jobs: what must be measured, at a scale.
        render: makes rows, verdicts and pictures of what there is; it must not fail on less.
        paper: as the command line names it.
        name: likewise.
    """

    title: str
    jobs: Callable[[Scale], Sequence[PaperJob]]
    render: Callable[[Scale, Results], Rendered]
    paper: str = ""
    name: str = ""


def no_jobs(scale: Scale) -> list[PaperJob]:
    """Return nothing: a figure of formulas is computed where it is shown."""
    return []
