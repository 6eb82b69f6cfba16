"""Artifact: one table or figure, its jobs, and the function that renders their results."""

import functools
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from isotrope.core.errors import InputError, nearest
from isotrope.core.result import Result
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Ruling, Spread, spread

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "cpu", "paper")

FILE = Path(__file__).parents[1] / "artifacts.toml"


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
    pictures: Mapping[str, "Callable[[], Picture]"] = field(default_factory=dict)
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


def artifacts(papers: Sequence[str] | None = None) -> list[Artifact]:
    """Return every table and figure of these papers, or of all, in the order of the file."""
    return [one for one in _all(FILE) if papers is None or one.paper in papers]


@functools.cache
def _all(file: Path) -> tuple[Artifact, ...]:
    from papers.machinery.rows import described

    table: Mapping[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    return tuple(described(row, table["papers"][row["paper"]]) for row in table["artifact"])


def find_artifacts(paper: str, names: Sequence[str]) -> list[Artifact]:
    """Return the tables and figures of a paper with these names; all of them without names.

    Raises:
        InputError: an unknown paper or name.
    """
    papers = list(dict.fromkeys(artifact.paper for artifact in artifacts()))
    if paper not in papers:
        owners = [a.paper for a in artifacts() if a.name == paper]
        of = f" ({paper} of which one? {', '.join(owners)})" if owners else nearest(paper, papers)
        raise InputError(f"unknown paper {paper!r}{of}; papers: {', '.join(papers)}")
    of_paper = {artifact.name: artifact for artifact in artifacts([paper])}
    for name in names:
        if name not in of_paper:
            raise InputError(
                f"{paper} has no {name!r}{nearest(name, of_paper)}; it has {', '.join(of_paper)}"
            )
    return [of_paper[name] for name in dict.fromkeys(names or of_paper)]
