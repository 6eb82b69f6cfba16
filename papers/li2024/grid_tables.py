"""Tables 6 and 7: the printed tuned values beside those that our grid selects."""

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from papers.li2024.grid import SHORT, TRAINING, GridStage, Point, named, stages
from papers.li2024.losses import MODIFIED, TITLES
from papers.li2024.simulated import PAPER
from papers.machinery.artifact import Rendered, Results, Scale, Table
from papers.machinery.verdicts import Verdict
from papers.paper_numbers import printed

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture
    from papers.plots.charts import Series

__all__ = ["grid_tables"]


def grid_tables(scale: Scale, results: Results, base: str, table: str) -> Rendered:
    """Return the printed and the selected tuned values, and the verdicts of the grid.

    Args:
        scale: of the grid.
        results: what there is of it.
        base: backbone.
        table: of the printed numbers.
    """
    grids = stages(scale, base)
    tuned, same = _tuned(base, table)
    extent = {
        "smoke": "two values of one number in each stage, of mMHE alone",
        "cpu": "a part of the grid, of mMHE alone",
        "paper": "the whole grid",
    }[scale]
    lengths = {job.settings.get("max_steps") for stage in grids for job in stage.jobs.values()}
    extent += "".join(f", {steps} steps of each" for steps in lengths - {None})
    points = _points(grids, results)
    return Rendered(
        tables=[tuned, *([points] if points.rows else [])],
        verdicts=[same, *(_verdict(stage, results) for stage in grids)],
        pictures={table: functools.partial(_draw, grids, results)} if grids else {},
        notes=[
            f"grid: {extent}; one seed, best STS-B dev after step 0"
            if grids
            else f"grid: not run below paper scale, nothing stands for {TITLES[base]} there",
            "in the released code that was tuned, a ratio r pulls like about 2r: see table 2",
        ],
    )


def _tuned(base: str, table: str) -> tuple[Table, Verdict]:
    paper_table = printed(PAPER, table)
    rows, different = [], []
    for loss in MODIFIED:
        tuned = loss.tuned[base]
        measured = {
            **tuned.values,
            "batch_size": tuned.batch_size,
            "learning_rate": tuned.learning_rate,
        }
        paper = dict(zip(paper_table.columns, paper_table.rows[f"{base}/{loss.row}"], strict=True))
        same = all(measured.get(name) == value for name, value in paper.items())
        rows.append([loss.name, "paper", *_numbers(paper.values()), ""])
        rows.append(
            [loss.name, "ours", *_numbers(map(measured.get, paper)), "same" if same else "not"]
        )
        different += [] if same else [loss.name]
    header = ["loss", "whose", *paper_table.columns, "verdict"]
    return Table(header, rows, title=f"{TITLES[base]}: tuned values"), Verdict(
        f"our presets of the modified losses for {TITLES[base]} are the printed values",
        not different,
        f"not those of {', '.join(different)}" if different else "all of them",
    )


def _numbers(values: Iterable[object]) -> list[str]:
    return [f"{value:g}" if isinstance(value, int | float) else "-" for value in values]


def _points(grids: Iterable[GridStage], results: Results) -> Table:
    rows = [
        [stage.title, stage.format_point(point), f"{score:.2f}"]
        for stage in grids
        for point, score in sorted(stage.scores(results).items(), key=lambda pair: -pair[1])
    ]
    return Table(["stage", "values", "STS-B dev"], rows, title="the grid, best first")


def _verdict(stage: GridStage, results: Results) -> Verdict:
    scores = stage.scores(results)
    what = "the second goes on with" if stage.names == TRAINING else "the paper prints as best"
    claim = f"{stage.title}: best is what {what} ({stage.format_point(stage.chosen)})"
    if len(scores) < len(stage.jobs):
        return Verdict(claim, None, f"{len(scores)} of {len(stage.jobs)} run")
    best = max(scores, key=lambda point: scores[point])
    there = scores.get(stage.chosen)
    evidence = f"best at {stage.format_point(best)}: {scores[best]:.2f}"
    return Verdict(
        claim,
        there == scores[best],
        evidence + ("" if there is None else f"; there {there:.2f}"),
    )


def _draw(grids: Iterable[GridStage], results: Results) -> "Picture":
    from papers.plots.charts import Chart, charts

    panels = [
        Chart(
            stage.title,
            list(_lines(stage, results)),
            x=SHORT[stage.names[-1]],
            y="STS-B dev",
            log_x=stage.names == TRAINING,
        )
        for stage in grids
    ]
    return charts(panels, columns=2)


def _lines(stage: GridStage, results: Results) -> Iterator["Series"]:
    """The last value varies along a line."""
    from papers.plots.charts import Series

    lines: dict[Point, list[tuple[float, float]]] = {}
    for point, score in sorted(stage.scores(results).items()):
        lines.setdefault(point[:-1], []).append((point[-1], score))
    for point, line in lines.items():
        x, y = zip(*line, strict=True)
        yield Series(named(stage.names[:-1], point), x, y)
