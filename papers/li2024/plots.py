"""Panels that tables 3 to 5 and figure 1 share; imported only when a picture is drawn."""

from collections.abc import Mapping, Sequence

from papers.li2024.backbone_results import BackboneResults
from papers.li2024.losses import EVERY, TableLoss
from papers.machinery.over_seeds import metric_by_step
from papers.machinery.verdicts import Spread
from papers.plots.charts import Chart, Series

__all__ = ["courses", "gains", "series"]


def series(title: str, of: Mapping[str, Spread | None] | Mapping[int, Spread]) -> Series:
    """Return means and deviations over names or steps."""
    return Series(
        title,
        list(of),  # type: ignore[arg-type]
        [None if level is None else level.mean for level in of.values()],
        [None if level is None else level.deviation for level in of.values()],
    )


def courses(of: BackboneResults, title: str, losses: Sequence[TableLoss]) -> Chart:
    """Return the dev score over the steps of training."""
    lines = [
        series(loss.name, metric_by_step(of.results, loss.jobs(of.scale, of.base), "dev"))
        for loss in losses
    ]
    return Chart(title, lines, x="step", y="STS-B dev")


def gains(of: BackboneResults, title: str, metric: str) -> Chart:
    """Return the change by training with each loss."""
    changed = series("", {loss.name: of.gain(loss, metric) for loss in EVERY})
    return Chart(title, [changed], y="change by training", kind="bars")
