"""Figure 8c: how close held-out positives lie while training with larger and smaller ratios."""

from collections.abc import Mapping
from functools import partial

from isotrope.report.surfaces import Picture
from papers.li2024.baseline import VALUES, notes, varied
from papers.machinery.artifact import Artifact, Found, Scale, Shown, Table
from papers.machinery.job import Cell
from papers.machinery.logged import Row, after, before, curve, diverged, shown, steps
from papers.machinery.verdicts import RULE, TREND, Verdict, trend
from papers.plots.charts import Chart, charts


def cells(scale: Scale) -> list[Cell]:
    """Return the trainings with each ratio: those of figure 6, where text is held out anyway."""
    return [cell for own in _trainings(scale).values() for cell in own]


def show(scale: Scale, found: Found) -> Shown:
    """Compare the mean cosine of held-out positives."""
    own = _trainings(scale)
    first, last = ({r: at(found, c, _cosine) for r, c in own.items()} for at in (before, after))
    rows = [[f"{r:g}", shown(first[r], 3), shown(last[r], 3)] for r in own]
    told = ", ".join(f"r = {r:g}: {shown(one, 3) or 'not run'}" for r, one in last.items())
    return Shown(
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
                told,
            )
        ],
        pictures={"figure8c": partial(_drawn, found, own)},
        notes=[
            *notes(scale, short=True),
            *diverged(found, cells(scale)),
            f"{RULE}; {TREND}",
            "the ratios are ours, the text does not name the paper's",
        ],
    )


def _trainings(scale: Scale) -> dict[float, list[Cell]]:
    return {r: varied(scale, "ratio", r, held=True) for r in VALUES[scale]["ratio"]}


def _cosine(row: Row) -> float:
    found: float = row["positive cosine"]
    return found


def _drawn(found: Found, own: Mapping[float, list[Cell]]) -> Picture:
    lines = [curve(f"r = {r:g}", steps(found, cells, _cosine)) for r, cells in own.items()]
    return charts([Chart("held-out positives", lines, "step", "mean cosine")])


ARTIFACT = Artifact(
    title="figure 8c: closeness of held-out positives over training, by ratio",
    cells=cells,
    show=show,
)
