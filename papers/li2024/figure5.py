"""Figure 5: how cosines to positives and to negatives are distributed, with and without GD."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from isotrope.reports.surfaces import Picture
from papers.li2024.baseline import baseline, notes, undissipated
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.logged import (
    ReadNumber,
    Row,
    at_end,
    divergence_notes,
    format_by_seed,
    last_rows,
)
from papers.machinery.over_seeds import format_change
from papers.machinery.verdicts import RULE, Ruling, above, minus
from papers.plots.charts import Chart, Series, charts

_SIDES = ("negative", "positive")
_FLOOR = 1e-3  # of the largest density: less is not drawn


def jobs(scale: Scale) -> list[PaperJob]:
    """Return the baseline, with and without dissipation."""
    return [*baseline(scale), *undissipated(scale)]


def render(scale: Scale, results: Results) -> Rendered:
    """Compare the two at the end of training."""
    kinds = {"with GD": baseline(scale), "without GD": undissipated(scale)}
    rows = []
    change = {}
    for name, (paper, digits, read) in _READ.items():
        with_, without = (at_end(results, jobs_of_kind, read) for jobs_of_kind in kinds.values())
        change[name] = minus(without, with_)
        jobs_of_kind = (
            format_by_seed(with_, digits),
            format_by_seed(without, digits),
            format_change(change[name], digits),
        )
        rows.append([name, paper, *jobs_of_kind])
    gap = change["gap of the angles"]
    return Rendered(
        tables=[
            Sheet(
                ["held-out text, after training", "paper", *kinds, "difference"],
                rows,
                title="angles in radians",
            )
        ],
        verdicts=[
            Ruling(
                "without GD the gap between angles to negatives and to positives grows larger",
                above(gap),
                f"gap without less gap with: {format_change(gap, 3) or 'not run'}",
            ),
        ],
        pictures={"figure5": partial(_drawn, results, kinds)},
        notes=[
            *notes(scale),
            *divergence_notes(results, jobs(scale)),
            RULE,
            "densities by Gaussian kernels, Scott's bandwidth",
        ],
    )


def _gap(far: float | None, near: float | None) -> float | None:
    return None if far is None or near is None else far - near


def _overlap(row: Row) -> float:
    """The area that the two densities share."""
    x, negative, positive = (
        np.array(row["densities"][name], dtype=float) for name in ("cosine", *_SIDES)
    )
    return float(np.minimum(negative, positive).sum() * (x[1] - x[0]))


_READ: dict[str, tuple[str, int, ReadNumber]] = {
    "mean angle to positives": ("-", 3, lambda row: row["positive mean"]),
    "mean angle to negatives": ("-", 3, lambda row: row["negative mean"]),
    "gap of the angles": (
        "larger without GD",
        3,
        lambda row: _gap(row["negative mean"], row["positive mean"]),
    ),
    "overlap of the densities": ("larger with GD", 3, _overlap),
    "STS-B dev": ("-", 2, lambda row: row["dev"]),
}


def _drawn(results: Results, kinds: Mapping[str, Sequence[PaperJob]]) -> Picture:
    panels = []
    for side in _SIDES:
        lines = []
        for kind, jobs_of_kind in kinds.items():
            last = [row["densities"] for row in last_rows(results, jobs_of_kind)]
            if last:
                density = np.mean(
                    np.array([densities[side] for densities in last], dtype=float), axis=0
                )
                some = density > _FLOOR * density.max()
                x = np.array(last[0]["cosine"])
                lines.append(Series(kind, x[some].tolist(), density[some].tolist()))
        panels.append(Chart(f"anchor-{side}", lines, "cosine", "density"))
    return charts(panels, columns=2)


ARTIFACT = Artifact(
    title="figure 5: cosines to positives and negatives, trained with and without GD",
    jobs=jobs,
    render=render,
)
