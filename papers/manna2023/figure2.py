"""Figure 2: negative and flat directions of the three losses after the last epoch."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table
from papers.machinery.job import Job
from papers.machinery.verdicts import RULE, spread
from papers.manna2023.frameworks import among, at_end
from papers.manna2023.spectra import (
    Look,
    ends,
    flat,
    negative,
    notes,
    ordered,
    said,
    spread_of_batches,
    table,
    told,
    variants,
)
from papers.paper_numbers import printed

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

LOSSES = ("MIOv1", "MIOv2", "MIOv3")
PAPER = {name: float(printed("mio", "figure2").rows[name.lower()][0] or 0) for name in LOSSES}


def jobs(scale: Scale) -> list[Job]:
    """The spectra of the three losses."""
    return [job for name in among(scale, LOSSES) for job in at_end(scale, name)]


def render(scale: Scale, results: Results) -> Rendered:
    """Count, and see how much the counts depend on what the paper leaves open."""
    some = ends(results, scale, LOSSES)
    rows = [
        [name, f"{PAPER[name]:g}", *_ours(some.get(name), flat), *_ours(some.get(name), negative)]
        for name in LOSSES
    ]
    header = ("loss", "flat, paper", "flat, ours", "negative, ours")
    every = [look for own in some.values() for look in own]
    asked = variants(results, "MIOv3", at_end(scale, "MIOv3")[0])
    verdicts = [
        ordered(
            "MIOv3 leaves fewer flat directions than MIOv1, and MIOv1 fewer than MIOv2",
            some,
            ("MIOv3", "MIOv1", "MIOv2"),
            flat,
            spread_of_batches(results, scale, flat),
        ),
        *(
            ordered(
                f"MIOv3 has more negative eigenvalues than {other}",
                some,
                (other, "MIOv3"),
                negative,
                spread_of_batches(results, scale, negative),
            )
            for other in ("MIOv1", "MIOv2")
        ),
    ]
    return Rendered(
        tables=[
            Table(header, rows, "of 100 Ritz values" if scale != "smoke" else ""),
            table(every, "spectra"),
            told(asked, "MIOv3 at the same weights of its first seed, asked otherwise"),
        ],
        verdicts=verdicts,
        pictures={"figure2": functools.partial(_bars, some)},
        notes=[
            *notes(scale, every),
            "the paper draws the negative counts without printing them; a difference must also be "
            "larger than twice the standard deviation over batches of MIOv3",
            RULE,
        ],
    )


def _ours(own: list[Look] | None, count: Callable[[Look], float]) -> list[str | None]:
    return [said(map(count, own)) if own else None]


def _bars(some: dict[str, list[Look]]) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    def series(title: str, count: Callable[[Look], float]) -> Series:
        own = [spread(map(count, some.get(name, ()))) for name in LOSSES]
        means = [None if one is None else one.mean for one in own]
        return Series(title, LOSSES, means, [None if one is None else one.deviation for one in own])

    bars = [
        series("negative", negative),
        series("flat", flat),
        Series("flat, paper", LOSSES, [PAPER[name] for name in LOSSES]),
    ]
    return charts([Chart("", bars, y="Ritz values", kind="bars")])


ARTIFACT = Artifact(
    title="figure 2: negative and flat directions of MIOv1, MIOv2, MIOv3, counted",
    jobs=jobs,
    render=render,
)
