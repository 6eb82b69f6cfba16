"""Artifact: one table or figure, its jobs, and the function that renders their results."""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from isotrope.core.errors import InputError, MissingExtra, nearest
from isotrope.core.result import Result
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Ruling, Spread, spread

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture


Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "cpu", "paper")

PAPERS = {
    "unified-gradient": "li2024",  # A Unified Paradigm for Gradient
    "align-uniform": "nie2023",  # On the Inadequacy of Optimizing Alignment and Uniformity
    "cosine-pitfalls": "draganov2024",  # The Hidden Pitfalls of the Cosine Similarity Loss
    "mio": "manna2023",  # Mutual Information Optimization
}
"""By name on the command line: the folder of ``papers`` that holds its tables and figures."""


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
    """One table or figure. Its paper and its name are those of the module that holds it.

    Attributes:
        title: what it shows, in a line that has ``table`` or ``figure`` in it.
        jobs: what must be measured, at a scale.
        render: makes rows, verdicts and pictures of what there is; it must not fail on less.
        paper: the folder of its paper; :func:`artifacts` fills it in.
        name: the name of its module; likewise.
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
    """Return every table and figure of these papers, or of all, by paper and number."""
    artifacts_ = []
    for paper in PAPERS if papers is None else papers:
        package = importlib.import_module(f"papers.{PAPERS[paper]}")
        names = [module.name for module in pkgutil.iter_modules(package.__path__)]
        for name in sorted(filter(_KIND.match, names), key=_order):
            try:
                held = importlib.import_module(f"{package.__name__}.{name}").ARTIFACT
            except ModuleNotFoundError as error:
                if error.name is None or error.name.startswith(("isotrope", "papers")):
                    raise
                raise MissingExtra(error.name, extra="all") from error
            artifacts_.append(replace(held, paper=paper, name=name.replace("_", "-")))
    return artifacts_


_KIND = re.compile("figure|table|bounds|check|supplement")
"""How names begin; others hold what several tables and figures share."""


def _order(name: str) -> tuple[str, int, str]:
    """Figures before tables, figure 2 before figure 10."""
    kind, digits, rest = re.findall(r"(\D*)(\d*)(.*)", name)[0]
    return kind, int(digits or 0), rest


def find_artifacts(paper: str, names: Sequence[str]) -> list[Artifact]:
    """Return the tables and figures of a paper with these names; all of them without names."""
    if paper not in PAPERS:
        owners = [a.paper for a in artifacts() if a.name == paper]
        of = f" ({paper} of which one? {', '.join(owners)})" if owners else nearest(paper, PAPERS)
        raise InputError(f"unknown paper {paper!r}{of}; papers: {', '.join(PAPERS)}")
    artifacts_of_paper = {artifact.name: artifact for artifact in artifacts([paper])}
    for name in names:
        if name not in artifacts_of_paper:
            raise InputError(
                f"{paper} has no {name!r}{nearest(name, artifacts_of_paper)}; "
                f"it has {', '.join(artifacts_of_paper)}"
            )
    return (
        [artifacts_of_paper[name] for name in dict.fromkeys(names)]
        if names
        else list(artifacts_of_paper.values())
    )
