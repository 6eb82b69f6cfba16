"""Figure 3: embedding norms under each part of the loss alone, and as a function of the decay."""

from functools import partial
from typing import TYPE_CHECKING, Any

from papers.draganov2024.logged import curve, format_spread, growth, last, listed
from papers.draganov2024.trainings import CUT, DECAYS, decayed, paper
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.small_images import small_images
from papers.machinery.verdicts import RULE, Answer, Spread, ahead, each

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

PARTS = ("attraction", "repulsion", "both")


def part(scale: Scale, name: str) -> list[PaperJob]:
    """Return SimCLR on one part of its loss, or on both.

    The loss is eq. 1, whose sum is without the positive: DCL.
    """
    settings: dict[str, Any] = {} if name == "both" else {"objective.part": name}
    if scale == "paper":
        return paper("SimCLR", **settings)
    if settings and scale == "cpu":
        settings |= {"epochs": 2, "knn_every": 1, "knn_images": 500, "linear": False}
    return small_images(scale, "DCL", **settings)


def jobs(scale: Scale) -> list[PaperJob]:
    """The parts, and the trainings of table 1."""
    parts = [job for name in PARTS for job in part(scale, name)]
    swept = [decayed(scale, name, decay) for name in CUT for decay in DECAYS[scale]]
    return [*parts, *(job for trainings in swept for job in trainings)]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the growth of norms in training, and the effect of the decay on them."""
    grown = {name: growth(results, part(scale, name), "norm") for name in PARTS}
    rows = [
        [f"SimCLR, {name}", "its own", format_spread(level, 2)] for name, level in grown.items()
    ]
    none, largest = DECAYS[scale][-1], DECAYS[scale][0]
    for name in CUT:
        free = grown[name] = growth(results, decayed(scale, name, none), "norm")
        rows.append([name, "none", format_spread(free, 2)])
    ends = {
        name: [last(results, decayed(scale, name, decay), "norm") for decay in (none, largest)]
        for name in CUT
    }
    evidence = {name: format_spread(level, 2) or "" for name, level in grown.items()}
    verdicts = [
        *each(
            "norms grow under {} alone",
            {name: (_grows(grown[name]), evidence[name]) for name in PARTS[:2]},
        ),
        *each(
            "without decay the norms of {} grow during training",
            {name: (_grows(grown[name]), evidence[name]) for name in CUT},
        ),
        *each(
            "the largest decay leaves smaller norms of {} than none",
            {name: (ahead(*pair), _compared(none, largest, *pair)) for name, pair in ends.items()},
        ),
    ]
    return Rendered(
        tables=[Sheet(["", "decay", "norm, last epoch over first"], rows)],
        verdicts=verdicts,
        pictures={"figure3": partial(_drawn, scale, results)},
        notes=_notes(scale),
    )


def _compared(none: str, largest: str, *pair: Spread | None) -> str:
    names = (f"decay {none}:", f"decay {largest}:")
    return listed({k: format_spread(level, 2) for k, level in zip(names, pair, strict=True)})


def _grows(quotient: Spread | None) -> Answer:
    return ahead(quotient, 1.0)


def _drawn(scale: Scale, results: Results) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    left = [Series(name, *curve(results, part(scale, name), "norm")) for name in PARTS]
    decays = DECAYS[scale][::-1]
    right = []
    for name in CUT:
        ends = [last(results, decayed(scale, name, decay), "norm") for decay in decays]
        means = [None if level is None else level.mean for level in ends]
        deviations = [None if level is None else level.deviation for level in ends]
        right.append(Series(name, decays, means, deviations))
    norm = "norm of the embeddings"
    return charts(
        [
            Chart("SimCLR on parts of its loss", left, "epoch", norm, log_y=True),
            Chart("at the end", right, "weight decay", norm, log_y=True),
        ]
    )


def _notes(scale: Scale) -> list[str]:
    seen = "Norms are of what the objective sees, means over an epoch."
    if scale != "cpu":
        return [seen, RULE]
    return [
        seen,
        RULE,
        "Each part is trained for two epochs; the whole for 8, at temperature .1. The right side "
        "is table 1's 4 epochs at learning rate .15.",
    ]


ARTIFACT = Artifact(
    title="figure 3: embedding norms by part of the loss and by weight decay",
    jobs=jobs,
    render=render,
)
