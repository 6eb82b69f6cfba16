"""Figure 2: negative and flat directions of the three losses after the last epoch."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import RULE, spread
from papers.manna2023.frameworks import at_end, run_at
from papers.manna2023.spectra import (
    SpectrumRecord,
    count_flat,
    count_negative,
    format_over_seeds,
    is_ordered,
    last_spectra,
    notes,
    spread_of_batches,
    table,
    variants,
    variants_table,
)
from papers.paper_numbers import printed

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

LOSSES = ("MIOv1", "MIOv2", "MIOv3")
PAPER = {name: float(printed("mio", "figure2").rows[name.lower()][0] or 0) for name in LOSSES}


def jobs(scale: Scale) -> list[PaperJob]:
    """The spectra of the three losses."""
    return [job for name in run_at(scale, LOSSES) for job in at_end(scale, name)]


def render(scale: Scale, results: Results) -> Rendered:
    """Count, and vary the choices that the paper leaves open."""
    records = last_spectra(results, scale, LOSSES)
    rows = [
        [
            name,
            f"{PAPER[name]:g}",
            *_ours(records.get(name), count_flat),
            *_ours(records.get(name), count_negative),
        ]
        for name in LOSSES
    ]
    header = ("loss", "flat, paper", "flat, ours", "negative, ours")
    all_records = [record for group in records.values() for record in group]
    repeated = variants(results, "MIOv3", at_end(scale, "MIOv3")[0])
    verdicts = [
        *(
            is_ordered(
                f"{fewer} leaves fewer flat directions than {more}",
                records,
                (fewer, more),
                count_flat,
                spread_of_batches(results, scale, count_flat),
            )
            for fewer, more in (("MIOv3", "MIOv1"), ("MIOv1", "MIOv2"))
        ),
        *(
            is_ordered(
                f"MIOv3 has more negative eigenvalues than {other}",
                records,
                (other, "MIOv3"),
                count_negative,
                spread_of_batches(results, scale, count_negative),
            )
            for other in ("MIOv1", "MIOv2")
        ),
    ]
    return Rendered(
        tables=[
            Sheet(header, rows, "of 100 Ritz values" if scale != "smoke" else ""),
            table(all_records, "spectra"),
            variants_table(
                repeated, "MIOv3 at the same weights of its first seed, asked otherwise"
            ),
        ],
        verdicts=verdicts,
        pictures={"figure2": functools.partial(_bars, records)},
        notes=[
            *notes(scale, all_records),
            "the paper draws the negative counts without printing them; a difference must also be "
            "larger than twice the standard deviation over batches of MIOv3",
            RULE,
        ],
    )


def _ours(
    records: list[SpectrumRecord] | None, count: Callable[[SpectrumRecord], float]
) -> list[str | None]:
    return [format_over_seeds(map(count, records)) if records else None]


def _bars(records: dict[str, list[SpectrumRecord]]) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    def series(title: str, count: Callable[[SpectrumRecord], float]) -> Series:
        levels = [spread(map(count, records.get(name, ()))) for name in LOSSES]
        means = [None if level is None else level.mean for level in levels]
        return Series(
            title, LOSSES, means, [None if level is None else level.deviation for level in levels]
        )

    bars = [
        series("negative", count_negative),
        series("flat", count_flat),
        Series("flat, paper", LOSSES, [PAPER[name] for name in LOSSES]),
    ]
    return charts([Chart("", bars, y="Ritz values", kind="bars")])


ARTIFACT = Artifact(
    title="figure 2: negative and flat directions of MIOv1, MIOv2, MIOv3, counted",
    jobs=jobs,
    render=render,
)
