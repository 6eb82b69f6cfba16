"""The grid behind tables 6 and 7, in two stages.

First batch size and learning rate at m = .30, tau = .05, r = 1; then the other three at the best of
the first, which at paper scale is the one that is printed. Below it the second stage stands at the
values of all our trainings, so that its jobs are known beforehand; a verdict says whether the
first stage leads there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from papers.li2024.losses import BERT, MODIFIED, TableLoss, trained_with
from papers.li2024.simulated import PAPER
from papers.machinery.artifact import Results, Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import text_jobs
from papers.paper_numbers import printed

__all__ = ["SHORT", "TRAINING", "GridStage", "Point", "jobs_of", "named", "stages"]

TRAINING = ("batch_size", "learning_rate")
COMPONENTS = ("margin", "temperature", "ratio")
START = {"margin": 0.3, "temperature": 0.05, "ratio": 1.0}

SHORT = dict(zip((*TRAINING, *COMPONENTS), ("batch", "rate", "m", "τ", "r"), strict=True))

Point = tuple[float, ...]

_VALUES: dict[Scale, dict[str, tuple[float, ...]]] = {
    "smoke": {
        "batch_size": (16,),
        "learning_rate": (1e-3, 3e-3),
        "margin": (0.3,),
        "temperature": (0.05,),
        "ratio": (1.0, 1.75),
    },
    "cpu": {
        "batch_size": (32, 64),
        "learning_rate": (2e-5, 5e-5),
        "margin": (0.3, 0.37),
        "temperature": (0.01, 0.05),
        "ratio": (1.0, 1.75),
    },
    "paper": {
        name: tuple(float(value) for value in row if isinstance(value, int | float))
        for name, row in printed(PAPER, "grid").rows.items()
    },
}
_SHORT: dict[Scale, Mapping[str, Any]] = {
    "smoke": {},
    "cpu": {"max_steps": 60, "keep_every": 30},
    "paper": {},
}


@dataclass(frozen=True)
class GridStage:
    """One stage of one loss.

    Attributes:
        loss: a modified one.
        names: what is varied.
        jobs: by the values of these.
        chosen: with what the second stage goes on; of the second, what is printed as best.
    """

    loss: TableLoss
    names: tuple[str, ...]
    jobs: Mapping[Point, PaperJob]
    chosen: Point

    @property
    def title(self) -> str:
        """The loss, and the varied values."""
        return f"{self.loss.name}: {', '.join(map(SHORT.__getitem__, self.names))}"

    def format_point(self, point: Point) -> str:
        """Return the values as text."""
        return named(self.names, point)

    def scores(self, results: Results) -> dict[Point, float]:
        """Return the best dev score after step 0, of the jobs that were run."""
        scores_by_point = {
            point: results.values([job], "dev best") for point, job in self.jobs.items()
        }
        return {point: values[0] for point, values in scores_by_point.items() if values}


def named(names: Sequence[str], point: Point) -> str:
    """Return ``m 0.3, r 1``."""
    return ", ".join(f"{SHORT[k]} {value:g}" for k, value in zip(names, point, strict=True))


def jobs_of(scale: Scale, base: str) -> list[PaperJob]:
    """Return the jobs of both stages; the second has one of the first again."""
    return [job for stage in stages(scale, base) for job in stage.jobs.values()]


def stages(scale: Scale, base: str) -> list[GridStage]:
    """Return both stages of each loss; below paper scale of mMHE alone, on one backbone."""
    if scale != "paper" and base != BERT:
        return []
    losses = MODIFIED if scale == "paper" else MODIFIED[:1]
    return [stage for loss in losses for stage in _both(scale, base, loss)]


def _both(scale: Scale, base: str, loss: TableLoss) -> tuple[GridStage, GridStage]:
    tuned, grid = loss.tuned[base], _VALUES[scale]
    usual = loss.jobs(scale, base)[0].settings
    at = tuple(usual[name] for name in TRAINING)
    names = tuple(name for name in COMPONENTS if name in tuned.values)
    best = tuple(float(tuned.values[name]) for name in names)

    def jobs(varied: tuple[str, ...]) -> dict[Point, PaperJob]:
        points = product(*(grid[name] for name in varied))
        fixed = START | dict(zip(TRAINING, at, strict=True))
        return {
            p: _cell(scale, base, loss, fixed | dict(zip(varied, p, strict=True))) for p in points
        }

    return GridStage(loss, TRAINING, jobs(TRAINING), at), GridStage(loss, names, jobs(names), best)


def _cell(scale: Scale, base: str, loss: TableLoss, values: Mapping[str, float]) -> PaperJob:
    size, rate = int(values["batch_size"]), values["learning_rate"]
    components = {name: values[name] for name in COMPONENTS if name in loss.tuned[base].values}
    settings: dict[str, float | str] = {**components, **loss.more}
    training = {**trained_with(scale, base, size, rate), **_SHORT[scale]}
    training |= {"batch_size": size, "learning_rate": rate, "seeds": (0,), "looks": ["dev"]}
    (job,) = text_jobs(scale, loss.objective, settings, scored=False, **training)
    return job
