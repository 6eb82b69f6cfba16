"""Figure 8c: how close held-out positives lie while training with larger and smaller ratios."""

from collections.abc import Mapping
from functools import partial

from isotrope.reports.surfaces import Picture
from papers.li2024.baseline import VALUES, notes, varied
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table
from papers.machinery.job import PaperJob
from papers.machinery.logged import (
    Row,
    at_end,
    at_start,
    by_step,
    curve,
    divergence_notes,
    format_by_seed,
)
from papers.machinery.verdicts import RULE, TREND, Verdict, trend
from papers.plots.charts import Chart, charts


def jobs(scale: Scale) -> list[PaperJob]:
    """Return the trainings with each ratio: those of figure 6, where text is held out anyway."""
    return [job for jobs_of_ratio in _trainings(scale).values() for job in jobs_of_ratio]


def render(scale: Scale, results: Results) -> Rendered:
    """Compare the mean cosine of held-out positives."""
    trainings = _trainings(scale)
    first, last = (
        {r: at(results, c, _cosine) for r, c in trainings.items()} for at in (at_start, at_end)
    )
    rows = [[f"{r:g}", format_by_seed(first[r], 3), format_by_seed(last[r], 3)] for r in trainings]
    evidence = ", ".join(
        f"r = {r:g}: {format_by_seed(scores, 3) or 'not run'}" for r, scores in last.items()
    )
    return Rendered(
        tables=[
            Table(
                ["r", "before training", "after"],
                rows,
                title="mean cosine with the held-out positive (paper: higher with a larger r)",
            )
        ],
        verdicts=[
            Verdict(
                "a larger ratio ends with closer positives",
                trend(list(last.values()), 1),
                evidence,
            )
        ],
        pictures={"figure8c": partial(_drawn, results, trainings)},
        notes=[
            *notes(scale, short=True),
            *divergence_notes(results, jobs(scale)),
            f"{RULE}; {TREND}",
            "the ratios are ours, the text does not name the paper's",
        ],
    )


def _trainings(scale: Scale) -> dict[float, list[PaperJob]]:
    return {r: varied(scale, "ratio", r, held=True) for r in VALUES[scale]["ratio"]}


def _cosine(row: Row) -> float:
    cosine: float = row["positive cosine"]
    return cosine


def _drawn(results: Results, trainings: Mapping[float, list[PaperJob]]) -> Picture:
    lines = [curve(f"r = {r:g}", by_step(results, jobs, _cosine)) for r, jobs in trainings.items()]
    return charts([Chart("held-out positives", lines, "step", "mean cosine")])


ARTIFACT = Artifact(
    title="figure 8c: closeness of held-out positives over training, by ratio",
    jobs=jobs,
    render=render,
)
