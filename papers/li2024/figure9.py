"""Figure 9: mean and deviation of the angles while the baseline trains, and how normal they are."""

import math
from functools import partial

from isotrope.reports.surfaces import Picture
from papers.li2024.baseline import baseline, notes
from papers.li2024.model_statistics.angle_statistics import ASSUMED
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.logged import ReadNumber, at_all_steps, by_step, curve, divergence_notes
from papers.machinery.verdicts import Ruling, Spread
from papers.plots.charts import Chart, charts

_SIDES = {"positive": "pos", "negative": "neg"}
_NUMBERS = {
    "mean": "mu",
    "std": "sigma",
    "skew": "skewness",
    "kurtosis": "excess kurtosis",
    "ks": "distance to normal (KS)",
}
_CLOSE, _NORMAL = 2.0, 0.1  # factor of sigma; Kolmogorov-Smirnov distance: ours


def render(scale: Scale, results: Results) -> Rendered:
    """Follow the statistics over the training."""
    jobs_of_baseline = baseline(scale)
    rows, verdicts = [], []
    for side, short in _SIDES.items():
        (low, high), sigma = ASSUMED[side]
        paper = {
            "mean": f"{low / math.pi:g} pi to {high / math.pi:g} pi",
            "std": f"close to {sigma:g}",
            "ks": "close to normal",
        }
        for number, name in _NUMBERS.items():
            levels = list(by_step(results, jobs_of_baseline, _read(side, number)).values())
            values = (
                [levels[0].text(3), levels[-1].text(3), _span(levels)] if levels else [None] * 3
            )
            rows.append([f"{name}, {side}s", paper.get(number, "-"), *values])
        means, stds, ks = (
            at_all_steps(results, jobs_of_baseline, _read(side, number))
            for number in ("mean", "std", "ks")
        )
        verdicts += [
            Ruling(
                f"mu_{short} stays in the range that the simulations assume",
                low <= min(means) <= max(means) <= high if means else None,
                f"{_ends(means)} in {paper['mean']}",
            ),
            Ruling(
                f"sigma_{short} stays close to the {sigma:g} that they assume",
                sigma / _CLOSE <= min(stds) <= max(stds) <= sigma * _CLOSE if stds else None,
                f"{_ends(stds)}; close: within a factor of {_CLOSE:g}",
            ),
            Ruling(
                f"angles to {side}s are close to normally distributed",
                max(ks) <= _NORMAL if ks else None,
                f"distance of Kolmogorov and Smirnov {_ends(ks)}; close: at most {_NORMAL:g}",
            ),
        ]
    return Rendered(
        tables=[
            Sheet(
                ["angles", "paper", "before training", "after", "range over training"],
                rows,
                title="radians",
            )
        ],
        verdicts=verdicts,
        pictures={"figure9": partial(_drawn, results, jobs_of_baseline)},
        notes=[
            *notes(scale),
            *divergence_notes(results, baseline(scale)),
            "verdicts are on all kept steps and seeds",
            "what is close is not in the paper: the two bounds are ours",
        ],
    )


def _read(side: str, number: str) -> ReadNumber:
    return lambda row: row[f"{side} {number}"]


def _ends(values: list[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}" if values else "not run"


def _span(levels: list[Spread]) -> str:
    return _ends([level.mean for level in levels])


def _drawn(results: Results, trainings: list[PaperJob]) -> Picture:
    panels = []
    for number, name in _NUMBERS.items():
        lines = [curve(f"{s}s", by_step(results, trainings, _read(s, number))) for s in _SIDES]
        marks = {f"{sigma:g}": sigma for _, sigma in ASSUMED.values()} if number == "std" else {}
        unit = ", radians" if number in ("mean", "std") else ""
        panels.append(Chart(name, lines, "step", f"{name}{unit}", marks=marks))
    return charts(panels)


ARTIFACT = Artifact(
    title="figure 9: mean and deviation of the angles over the training of the baseline",
    jobs=baseline,
    render=render,
)
