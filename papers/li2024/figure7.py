"""Figure 7: the hardest negative's share over the temperature, before and after training."""

import itertools
from collections.abc import Mapping
from functools import partial

from isotrope.reports.surfaces import Picture
from papers.li2024.baseline import baseline, notes
from papers.li2024.model_statistics.hardest_negative import TEMPERATURES
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.logged import (
    ReadNumber,
    at_end,
    at_start,
    curve,
    divergence_notes,
    format_by_seed,
)
from papers.machinery.over_seeds import format_change
from papers.machinery.verdicts import RULE, Ruling, above, minus, spread
from papers.paper_numbers import printed
from papers.plots.charts import Chart, charts

_KINDS = {"weight": "in the weight", "projection": "in the push, as released"}
_ROWS = printed("unified-gradient", "figure7").rows
_USUAL = float(str(_ROWS["temperature at which the trained model's hardest negative dominates"][0]))
_SHARP = float(str(_ROWS["temperature where the share falls"][0]))
_DOMINANT = 0.5

Shares = Mapping[float, Mapping[int, float]]
"""By temperature and seed."""


def render(scale: Scale, results: Results) -> Rendered:
    """Compare the two ends of the baseline's training."""
    shares_by_kind = {
        kind: [
            {tau: at(results, baseline(scale), _read(kind, tau)) for tau in TEMPERATURES}
            for at in (at_start, at_end)
        ]
        for kind in _KINDS
    }
    rows = [
        [label, when, *(format_by_seed(scores, 3) for scores in shares.values())]
        for kind, label in _KINDS.items()
        for when, shares in zip(("before", "after"), shares_by_kind[kind], strict=True)
    ]
    columns = [f"tau {tau:g}" for tau in TEMPERATURES]
    return Rendered(
        tables=[Sheet(["share", "training", *columns], rows, title="of the hardest negative")],
        verdicts=_verdicts(*shares_by_kind["projection"]),
        pictures={"figure7": partial(_drawn, shares_by_kind)},
        notes=[
            *notes(scale),
            *divergence_notes(results, baseline(scale)),
            "the weight is W of the hardest over the sum of W, as the text says, over all anchors; "
            "the released statistic is the length of what the hardest pushes along the whole push, "
            "over the length of that, over the anchors that the margin of .3 still moves; claims "
            "are about that one",
            f"dominant: above {_DOMINANT:g}; the temperatures are ours, in the range of figure 6; "
            + RULE,
        ],
    )


def _verdicts(old: Shares, new: Shares) -> list[Ruling]:
    low, high = (spread(shares[_USUAL].values()) for shares in (old, new))
    rise = minus(new[_USUAL], old[_USUAL])
    means = {tau: level.mean for tau, seeds in new.items() if (level := spread(seeds.values()))}
    # on the logarithmic axis that the figure has: which part of the share is left
    falls = {(a, b): means[a] / means[b] for a, b in itertools.pairwise(means)}
    most = max(falls, key=lambda pair: falls[pair], default=None)
    shares = ", ".join(f"{tau:g}: {mean:.3f}" for tau, mean in means.items())
    return [
        Ruling(
            f"the hardest negative does not dominate at tau = {_USUAL:g} before training",
            None if low is None else low.mean < _DOMINANT,
            f"share {format_by_seed(old[_USUAL], 3) or 'not run'}",
        ),
        Ruling(
            "it dominates there after training",
            None if high is None else high.mean > _DOMINANT,
            f"share {format_by_seed(new[_USUAL], 3) or 'not run'}",
        ),
        Ruling(
            "training raises its share there",
            above(rise),
            f"by {format_change(rise, 3) or 'not run'}",
        ),
        Ruling(
            f"after training the share begins to fall sharply at tau = {_SHARP:g}",
            None if most is None else most[0] == _SHARP or most[1] == _SHARP,
            f"{shares or 'not run'}; the largest relative fall is one to or from there",
        ),
    ]


def _read(kind: str, tau: float) -> ReadNumber:
    return lambda row: row[f"hardest {kind}"][f"{tau:g}"]


def _drawn(shares_by_kind: Mapping[str, list[dict[float, dict[int, float]]]]) -> Picture:
    panels = []
    for place, title in enumerate(("before training", "after training")):
        lines = []
        for kind, label in _KINDS.items():
            values = {
                t: s
                for t, scores in shares_by_kind[kind][place].items()
                if (s := spread(scores.values()))
            }
            lines.append(curve(label, values))
        panels.append(Chart(title, lines, "tau", "share of the hardest negative", log_x=True))
    return charts(panels, columns=2)


ARTIFACT = Artifact(
    title="figure 7: the hardest negative's share by temperature, before and after training",
    jobs=baseline,
    render=render,
)
