"""Figures 5, 7, 8a, 8b and 9: what the baseline's embeddings are like while it trains.

Each is a function that artifacts.toml names, or a claim of it; their notes are there.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from isotrope.reports import Picture
from papers.li2024.baseline import baseline, undissipated
from papers.li2024.model_statistics import ASSUMED, STEPS, TEMPERATURES, dynamic
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.logged import Metric, Row, at_all_steps, by_seed, by_step, course, rows_of
from papers.machinery.verdicts import (
    Answer,
    BySeed,
    Ruling,
    Spread,
    above,
    all_of,
    minus,
    shown,
    signed,
    spread,
)
from papers.paper_numbers import printed
from papers.plots.charts import Chart, Series, charts

PAPER = "unified-gradient"
_SIDES = {"positive": "pos", "negative": "neg"}


def _curve(title: str, results: Results, jobs: Sequence[PaperJob], metric: Metric) -> Series:
    return Series(title, *course(by_step(results, jobs, metric)))


# figure 5

_FLOOR = 1e-3  # of the largest density: less is not drawn


def jobs_of_figure5(scale: Scale) -> list[PaperJob]:
    """Return the baseline, with and without dissipation."""
    return [*baseline(scale), *undissipated(scale)]


def figure5(scale: Scale, results: Results) -> Rendered:
    """Compare the cosines at the end of training with those of the same without dissipation."""
    kinds = {"with GD": baseline(scale), "without GD": undissipated(scale)}
    rows = []
    change = {}
    for name, (paper, digits, metric) in _COMPARED.items():
        ends = [by_seed(results, jobs, "last", metric) for jobs in kinds.values()]
        change[name] = minus(ends[1], ends[0])
        levels = [shown(spread(end), digits) for end in ends]
        rows.append([name, paper, *levels, signed(change[name], digits)])
    gap = change["gap of the angles"]
    header = ["held-out text, after training", "paper", *kinds, "difference"]
    return Rendered(
        tables=[Sheet(header, rows, title="angles in radians")],
        verdicts=[
            Ruling(
                "without GD the gap between angles to negatives and to positives grows larger",
                above(gap),
                f"gap without less gap with: {signed(gap, 3) or 'not run'}",
            )
        ],
        pictures={"figure5": partial(_densities, results, kinds)},
    )


def _gap(row: Row) -> float | None:
    far, near = row["negative mean"], row["positive mean"]
    return None if far is None or near is None else float(far - near)


def _overlap(row: Row) -> float:
    """The area that the two densities share."""
    columns = (np.array(row["densities"][name], float) for name in ("cosine", *_SIDES))
    x, positive, negative = columns
    return float(np.minimum(negative, positive).sum() * (x[1] - x[0]))


_COMPARED: dict[str, tuple[str, int, Metric]] = {
    "mean angle to positives": ("-", 3, "positive mean"),
    "mean angle to negatives": ("-", 3, "negative mean"),
    "gap of the angles": ("larger without GD", 3, _gap),
    "overlap of the densities": ("larger with GD", 3, _overlap),
    "STS-B dev": ("-", 2, "dev"),
}


def _densities(results: Results, kinds: Mapping[str, Sequence[PaperJob]]) -> Picture:
    panels = []
    for side in ("negative", "positive"):
        lines = []
        for kind, jobs in kinds.items():
            last = [rows[-1]["densities"] for job in jobs if (rows := rows_of(results, job))]
            if last:
                density = np.mean(np.array([of[side] for of in last], dtype=float), axis=0)
                some = density > _FLOOR * density.max()
                x = np.array(last[0]["cosine"])
                lines.append(Series(kind, x[some].tolist(), density[some].tolist()))
        panels.append(Chart(f"anchor-{side}", lines, "cosine", "density"))
    return charts(panels, columns=2)


# figure 7

_WHEN = {"before": "first", "after": "last"}


def sharp_fall(scale: Scale, results: Results) -> Ruling:
    """Return whether the share falls most to or from the temperature that the paper names."""
    sharp = float(str(printed(PAPER, "figure7").rows["temperature where the share falls"][0]))
    shares = {
        tau: spread(by_seed(results, baseline(scale), "last", f"hardest projection/{tau:g}"))
        for tau in TEMPERATURES
    }
    means = {tau: level.mean for tau, level in shares.items() if level}
    # on the logarithmic axis that the figure has: which part of the share is left
    falls = {(a, b): means[a] / means[b] for a, b in itertools.pairwise(means)}
    most = max(falls, key=lambda pair: falls[pair], default=None)
    numbers = ", ".join(f"{tau:g}: {mean:.3f}" for tau, mean in means.items())
    return Ruling(
        f"after training the largest relative fall of the share is to or from tau = {sharp:g} "
        "(ours; the paper: when tau is increased to it, the share begins to decline sharply)",
        None if most is None else sharp in most,
        numbers or "not run",
    )


# figure 8a

_RATIOS = (1.0, 1.25, 1.5, 2.0)
_ENOUGH = 0.99  # of the anchors: then there is nothing to gain
_QUANTILES = {1: 0.05, 2: 0.25, 3: 0.5, 4: 0.75, 5: 0.95}  # places in what was kept


def figure8a(scale: Scale, results: Results) -> Rendered:
    """Look at the smallest ratios that Lemma 1 asks for, and at who has them on the way."""
    jobs = baseline(scale)
    rows = []
    met_by_name = {}
    for step, (when, how) in itertools.product(STEPS, _WHEN.items()):
        met = {r: by_seed(results, jobs, how, _below(step, r)) for r in _RATIOS}
        met_by_name[f"lambda {step:g} {when} training"] = met
        counted = shown(spread(by_seed(results, jobs, how, f"lemma/{step:g}/counted")), 0)
        values = [by_seed(results, jobs, how, _quantile(step, 3)), *met.values()]
        nothing = None if counted is None else "-"
        cells = [shown(spread(value)) or nothing for value in values]
        rows.append([f"{step:g}", f"{when} training", counted, *cells])
    header = ["lambda", "encoder", "anchors", "median", *(f"r = {r:g}" for r in _RATIOS)]
    return Rendered(
        tables=[
            Sheet(
                header,
                rows,
                title="minimum ratio by Lemma 1: its median, and the part of the anchors with a "
                "minimum below r",
            )
        ],
        verdicts=[_more_meet_it(met_by_name)],
        pictures={"figure8a": partial(_drawn_minima, results, jobs)},
    )


def _more_meet_it(met_by_name: Mapping[str, Mapping[float, BySeed]]) -> Ruling:
    smallest, largest = _RATIOS[0], _RATIOS[-1]
    holds: list[Answer] = []
    parts = []
    for name, met in met_by_name.items():
        low, high = spread(met[smallest]), spread(met[largest])
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


def _drawn_minima(results: Results, jobs: Sequence[PaperJob]) -> Picture:
    panels = []
    for when, how in _WHEN.items():
        lines = []
        for step in STEPS:
            places = {
                q: spread(by_seed(results, jobs, how, _quantile(step, k)))
                for k, q in _QUANTILES.items()
            }
            means = {q: level.mean for q, level in places.items() if level}
            lines.append(Series(f"lambda {step:g}", list(means.values()), list(means)))
        panels.append(Chart(f"{when} training", lines, "minimum ratio", "part of the anchors"))
    for ratio in (_RATIOS[0], _RATIOS[-1]):
        lines = [_curve(f"lambda {s:g}", results, jobs, _below(s, ratio)) for s in STEPS]
        panels.append(Chart(f"minimum below {ratio:g}", lines, "step", "part of the anchors"))
    return charts(panels, columns=2)


def _below(step: float, ratio: float) -> Metric:
    return lambda row: row["lemma"][f"{step:g}"]["below"].get(f"{ratio:g}")


def _quantile(step: float, place: int) -> Metric:
    return lambda row: (row["lemma"][f"{step:g}"]["minimum"] or {place: None})[place]


# figure 8b

_NAMED = ("arccon", "met")
_SHOWN = (*_NAMED, "mixcse")  # the third, in the released code


def figure8b(scale: Scale, results: Results) -> Rendered:
    """Follow the ratios that dynamic objectives would have over the baseline's training."""
    jobs = baseline(scale)
    bound = printed(PAPER, "figure8").rows["lower bound of ArcCon's and MET's ratio in training"][0]
    rows = []
    for name in dynamic():
        numbers = [
            spread(by_seed(results, jobs, how, f"ratios/{name}/{what}"))
            for what in ("mean", "above_one")
            for how in _WHEN.values()
        ]
        numbers.append(spread(by_seed(results, jobs, "last", _moved(name))))
        none = "-" if any(numbers) else None  # of no anchor, or not run
        paper = f"above {bound}" if name in _NAMED else "-"
        rows.append([name, paper, *(_short(level) if level else none for level in numbers)])
    verdicts = []
    for name in _NAMED:
        least = min(at_all_steps(results, jobs, f"ratios/{name}/mean"), default=None)
        claim = f"the ratio of {name} stays above {bound} throughout the training"
        evidence = "not run" if least is None else f"smallest mean of any step and seed {least:.3f}"
        holds = None if least is None else least > float(str(bound))
        verdicts.append(Ruling(claim, holds, evidence))
    columns = ("mean before", "mean after", "above 1 before", "above 1 after", "moved after")
    return Rendered(
        tables=[
            Sheet(
                ["objective", "paper", *columns],
                rows,
                title="ratio over the anchors that each objective would still move, the part above "
                "1, and the part of all anchors that it moves",
            )
        ],
        verdicts=verdicts,
        pictures={"figure8b": partial(_drawn_ratios, results, jobs)},
    )


def _moved(name: str) -> Metric:
    return lambda row: row["ratios"][name]["active"] / row["ratios"][name]["count"]


def _short(level: Spread) -> str:
    more = "" if level.deviation is None else f" ± {level.deviation:.2g}"
    return f"{level.mean:.3g}{more}"


def _drawn_ratios(results: Results, jobs: Sequence[PaperJob]) -> Picture:
    curves = {name: _curve(name, results, jobs, f"ratios/{name}/mean") for name in dynamic()}
    named = [curves[name] for name in _SHOWN]
    every = [replace(plotted, spread=None) for plotted in curves.values()]
    one = {"1": 1.0}
    return charts(
        [
            Chart("the paper's", named, "step", "ratio", marks=one),
            Chart("all", every, "step", "ratio", log_y=True, marks=one),
        ],
        columns=2,
    )


# figure 9

_NUMBERS = {
    "mean": "mu",
    "std": "sigma",
    "skew": "skewness",
    "kurtosis": "excess kurtosis",
    "ks": "distance to normal (KS)",
}
_CLOSE, _NORMAL = 2.0, 0.1  # factor of sigma; Kolmogorov-Smirnov distance: ours


def figure9(scale: Scale, results: Results) -> Rendered:
    """Follow mean and deviation of the angles, and how normal they are."""
    jobs = baseline(scale)
    rows, verdicts = [], []
    for side, short in _SIDES.items():
        (low, high), sigma = ASSUMED[side]
        paper = {
            "mean": f"{low / math.pi:g} pi to {high / math.pi:g} pi",
            "std": f"close to {sigma:g}",
            "ks": "close to normal",
        }
        for number, name in _NUMBERS.items():
            levels = list(by_step(results, jobs, f"{side} {number}").values())
            span = _ends([level.mean for level in levels])
            values = [levels[0].text(3), levels[-1].text(3), span] if levels else [None] * 3
            rows.append([f"{name}, {side}s", paper.get(number, "-"), *values])
        means, stds, ks = (
            at_all_steps(results, jobs, f"{side} {number}") for number in ("mean", "std", "ks")
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
    header = ["angles", "paper", "before training", "after", "range over training"]
    return Rendered(
        tables=[Sheet(header, rows, title="radians")],
        verdicts=verdicts,
        pictures={"figure9": partial(_drawn_angles, results, jobs)},
    )


def _ends(values: Sequence[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}" if values else "not run"


def _drawn_angles(results: Results, jobs: Sequence[PaperJob]) -> Picture:
    panels = []
    for number, name in _NUMBERS.items():
        lines = [_curve(f"{s}s", results, jobs, f"{s} {number}") for s in _SIDES]
        marks = {f"{sigma:g}": sigma for _, sigma in ASSUMED.values()} if number == "std" else {}
        unit = ", radians" if number in ("mean", "std") else ""
        panels.append(Chart(name, lines, "step", f"{name}{unit}", marks=marks))
    return charts(panels)
