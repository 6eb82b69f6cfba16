"""Figure 8a: the smallest ratios that Lemma 1 requires, before and after training."""

from collections.abc import Mapping, Sequence
from functools import partial

from isotrope.reports.surfaces import Picture
from papers.li2024.baseline import baseline, notes
from papers.li2024.model_statistics.lemma_share import STEPS
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.logged import (
    ReadNumber,
    at_end,
    at_start,
    by_step,
    curve,
    divergence_notes,
    format_by_seed,
)
from papers.machinery.verdicts import RULE, Answer, Ruling, above, all_of, minus, spread
from papers.plots.charts import Chart, Series, charts

_RATIOS = (1.0, 1.25, 1.5, 2.0)
_ENOUGH = 0.99  # of the anchors: then there is nothing to gain
_QUANTILES = {1: 0.05, 2: 0.25, 3: 0.5, 4: 0.75, 5: 0.95}  # places in what was kept
_WHEN = {"before training": at_start, "after training": at_end}

Met = Mapping[float, Mapping[int, float]]
"""Share of the anchors that meet the condition, by ratio and seed."""


def render(scale: Scale, results: Results) -> Rendered:
    """Look at the distribution of the minimum, and at who meets it on the way."""
    trainings = baseline(scale)
    rows, met_by_name = [], {}
    for step in STEPS:
        for when, at in _WHEN.items():
            met = {r: at(results, trainings, _below(step, r)) for r in _RATIOS}
            met_by_name[f"lambda {step:g} {when}"] = met
            counted = format_by_seed(at(results, trainings, _counted(step)), 0)
            values = [at(results, trainings, _quantile(step, 3)), *met.values()]
            nothing = None if counted is None else "-"
            rows.append(
                [
                    f"{step:g}",
                    when,
                    counted,
                    *(format_by_seed(value) or nothing for value in values),
                ]
            )
    return Rendered(
        tables=[
            Sheet(
                ["lambda", "encoder", "anchors", "median", *(f"r = {r:g}" for r in _RATIOS)],
                rows,
                title="minimum ratio by Lemma 1: its median, and the part of the anchors with a "
                "minimum below r",
            )
        ],
        verdicts=[_verdict(met_by_name)],
        pictures={"figure8a": partial(_drawn, results, trainings)},
        notes=[
            *notes(scale),
            *divergence_notes(results, baseline(scale)),
            RULE,
            "the paper does not say which lambda: these are ours, 0 is the limit of small steps; "
            "each anchor of a batch with its hardest negative, where the three angles are acute "
            "and the discriminant is not negative (the others have no minimum)",
            "a larger r passes more minima by their definition: what is measured is how many more, "
            "and whether r = 1 were enough; the upper bound, which is not printed, is left out",
        ],
    )


def _verdict(met_by_name: Mapping[str, Met]) -> Ruling:
    smallest, largest = _RATIOS[0], _RATIOS[-1]
    holds: list[Answer] = []
    parts = []
    for name, met in met_by_name.items():
        low, high = spread(met[smallest].values()), spread(met[largest].values())
        if low is not None and high is not None:
            holds.append(True if low.mean > _ENOUGH else above(minus(met[largest], met[smallest])))
            parts.append(f"{name} {low.mean:.0%} to {high.mean:.0%}")
    return Ruling(
        "where r = 1 is not enough, a ratio above 1 meets Lemma 1's lower bound for more anchors",
        all_of(holds),
        f"from r = {smallest:g} to {largest:g}: {', '.join(parts) or 'not run'}; where "
        f"r = {smallest:g} is enough for {_ENOUGH:.0%}, no more are asked for; a lambda without "
        "anchors that have a bound is not listed",
    )


def _drawn(results: Results, trainings: Sequence[PaperJob]) -> Picture:
    panels = []
    for when, at in _WHEN.items():
        lines = []
        for step in STEPS:
            seen = {
                q: spread(at(results, trainings, _quantile(step, k)).values())
                for k, q in _QUANTILES.items()
            }
            means = {q: level.mean for q, level in seen.items() if level}
            lines.append(Series(f"lambda {step:g}", list(means.values()), list(means)))
        panels.append(Chart(when, lines, "minimum ratio", "part of the anchors"))
    for ratio in (_RATIOS[0], _RATIOS[-1]):
        lines = [
            curve(f"lambda {s:g}", by_step(results, trainings, _below(s, ratio))) for s in STEPS
        ]
        panels.append(Chart(f"minimum below {ratio:g}", lines, "step", "part of the anchors"))
    return charts(panels, columns=2)


def _counted(step: float) -> ReadNumber:
    return lambda row: row["lemma"][f"{step:g}"]["counted"]


def _below(step: float, ratio: float) -> ReadNumber:
    return lambda row: row["lemma"][f"{step:g}"]["below"].get(f"{ratio:g}")


def _quantile(step: float, place: int) -> ReadNumber:
    return lambda row: (row["lemma"][f"{step:g}"]["minimum"] or {place: None})[place]


ARTIFACT = Artifact(
    title="figure 8a: minimum ratios by Lemma 1, before and after training",
    jobs=baseline,
    render=render,
)
