"""Figure 6: STS-B dev over the margin, the temperature and the ratio of the baseline."""

import itertools
from collections.abc import Mapping
from functools import partial

from isotrope.reports.surfaces import Picture
from papers.li2024.baseline import BASELINE, VALUES, notes, varied
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table
from papers.machinery.job import PaperJob
from papers.machinery.logged import curve, divergence_notes, format_by_seed
from papers.machinery.over_seeds import by_seed, format_change
from papers.machinery.verdicts import (
    RULE,
    TREND,
    Verdict,
    above,
    ahead,
    all_of,
    minus,
    spread,
    trend,
)
from papers.paper_numbers import printed
from papers.plots.charts import Chart, charts

_LETTERS = {"margin": "m", "temperature": "tau", "ratio": "r"}
_CLAIMS = {
    "margin": "falls as m grows",
    "temperature": "drops sharply at tau = .3",
    "ratio": "grows with r",
}
_PRINTED = printed("unified-gradient", "figure6").rows
_SHARP = float(str(_PRINTED["temperature of the sharp drop"][0]))

Curve = Mapping[float, Mapping[int, float]]


def jobs(scale: Scale) -> list[PaperJob]:
    """Return a training for every value; the baseline's own is in all three curves."""
    return [
        c for name, values in VALUES[scale].items() for v in values for c in varied(scale, name, v)
    ]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the three curves."""
    best, last = (_curves(scale, results, f"dev {which}") for which in ("best", "last"))
    first = spread(by_seed(results, jobs(scale), "dev first").values())
    tables = [
        Table(
            [letter, "baseline", "dev, best step", "dev, last step"],
            [
                [
                    f"{value:g}",
                    "yes" if value == BASELINE[name] else "",
                    format_by_seed(best[name][value]),
                    format_by_seed(last[name][value]),
                ]
                for value in best[name]
            ],
            title=f"STS-B dev by {name} (paper: {_CLAIMS[name]}); untrained: {first or 'not run'}",
        )
        for name, letter in _LETTERS.items()
    ]
    return Rendered(
        tables=tables,
        verdicts=_verdicts(best),
        pictures={"figure6": partial(_drawn, best, None if first is None else first.mean)},
        notes=[
            *notes(scale, short=True, held=False),
            *divergence_notes(results, jobs(scale)),
            f"{RULE}; {TREND}",
            "the paper's metric, and that of the verdicts, is the dev score of the best kept step "
            "after the first; its curves have no numbers in the text",
        ],
    )


def _verdicts(best: Mapping[str, Curve]) -> list[Verdict]:
    margin, tau, ratio = (best[name] for name in _LETTERS)
    low = {value: level for value, level in tau.items() if value < _SHARP}
    small, sharp = max(low), tau[_SHARP]
    falls = {b: minus(tau[a], tau[b]) for a, b in itertools.pairwise(tau)}
    others = [fall for value, fall in falls.items() if value != _SHARP]
    drop = minus(low[small], sharp)
    return [
        Verdict(
            "STS-B dev falls as the margin grows", trend(list(margin.values()), -1), _told(margin)
        ),
        Verdict(
            f"STS-B dev is lower at tau = {_SHARP:g} than at {small:g}",
            above(drop),
            f"it falls by {format_change(drop) or 'not run'}",
        ),
        Verdict(
            f"of all neighbouring temperatures, the fall to {_SHARP:g} is the largest",
            all_of([above(falls[_SHARP]), *(ahead(falls[_SHARP], other) for other in others)]),
            _told(tau),
        ),
        Verdict("STS-B dev grows with the ratio", trend(list(ratio.values()), 1), _told(ratio)),
    ]


def _curves(scale: Scale, results: Results, metric: str) -> dict[str, Curve]:
    return {
        name: {value: by_seed(results, varied(scale, name, value), metric) for value in values}
        for name, values in VALUES[scale].items()
    }


def _told(curve: Curve) -> str:
    return ", ".join(
        f"{value:g}: {format_by_seed(scores) or 'not run'}" for value, scores in curve.items()
    )


def _drawn(best: Mapping[str, Curve], untrained: float | None) -> Picture:
    panels = []
    for name, letter in _LETTERS.items():
        means = {
            value: level for value, seeds in best[name].items() if (level := spread(seeds.values()))
        }
        marks = {} if untrained is None else {"untrained": untrained}
        log = name != "margin"
        panels.append(
            Chart(name, [curve("STS-B dev", means)], letter, "STS-B dev", log_x=log, marks=marks)
        )
    return charts(panels)


ARTIFACT = Artifact(
    title="figure 6: STS-B dev over margin, temperature and ratio of the baseline",
    jobs=jobs,
    render=render,
)
