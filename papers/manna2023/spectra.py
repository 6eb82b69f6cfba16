"""Spectra for several figures: reading, counting, tables, pictures and verdicts.

Counts are those of Ritz values, as the paper's; ``Spectrum`` says what they are worth. A difference
of counts is one if its interval over seeds (``verdicts.RULE``) lies above twice the standard
deviation over the batches on which MIOv3's Hessian was taken at the same weights.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isotrope.reports import Picture
from papers.machinery.artifact import Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Ruling, above, all_of, minus
from papers.manna2023.frameworks import at_end, run_at
from papers.manna2023.spectrum import THRESHOLD, Ritz, Spectrum, density, grid
from papers.plots.charts import Chart, Series, charts

_NEAR = 0.01  # of the largest eigenvalue in size: what lies around zero
_FLOOR = 1e-8  # of the largest density; one of a million eigenvalues is still drawn
_HEADER = (
    *("", "epoch", "lambda_min", "lambda_max", "negative", "flat", "above", "trace"),
    *("gradient norm", "rate x lambda_max"),
)


@dataclass(frozen=True)
class SpectrumRecord:
    """One spectrum of a framework.

    Attributes:
        name: of the framework.
        seed: of its training.
        epoch: after which it was taken.
        about: of what the Hessian is, and how it was asked.
        spectrum: on one batch.
        peak: the largest learning rate of the training.
        variant: what was asked otherwise, if anything.
    """

    name: str
    seed: int
    epoch: float
    about: Mapping[str, Any]
    spectrum: Spectrum
    peak: float
    variant: Mapping[str, Any]


def spectra_of(results: Results, name: str, jobs: Sequence[PaperJob]) -> list[SpectrumRecord]:
    """Return the spectra of those jobs that were run, seed by seed, each by epoch."""
    records = [record for job in jobs for record in _all_records(results, name, job)]
    return [record for record in records if not record.variant]


def variants(results: Results, name: str, job: PaperJob) -> list[SpectrumRecord]:
    """Return the last spectrum, and its variants of the same weights."""
    changed = [record for record in _all_records(results, name, job) if record.variant]
    return [*spectra_of(results, name, [job])[-1:], *changed]


def last_spectra(
    results: Results, scale: Scale, names: tuple[str, ...], **other: Any
) -> dict[str, list[SpectrumRecord]]:
    """Return the last spectra of each framework that was run, one for each seed."""
    jobs_by_name = {name: at_end(scale, name, **other) for name in run_at(scale, names)}
    lasts = {
        name: [record for job in jobs for record in spectra_of(results, name, [job])[-1:]]
        for name, jobs in jobs_by_name.items()
    }
    return {name: records for name, records in lasts.items() if records}


def first_seeds(records: Mapping[str, Sequence[SpectrumRecord]]) -> list[SpectrumRecord]:
    """Return the spectrum of each framework's first seed, which is drawn."""
    return [group[0] for group in records.values()]


def first_seed_by_epoch(
    records: Mapping[str, Sequence[SpectrumRecord]],
) -> dict[str, list[SpectrumRecord]]:
    """Return the spectra of the first seed of each framework, by epoch."""
    return {name: [x for x in group if x.seed == group[0].seed] for name, group in records.items()}


def by_seed(
    records: Iterable[SpectrumRecord], measure: Callable[[SpectrumRecord], float]
) -> dict[int, float]:
    """Return a number of spectra, by seed."""
    return {record.seed: measure(record) for record in records}


def format_over_seeds(values: Iterable[float], form: str = ".4g") -> str:
    """Return a mean over seeds with its standard deviation, both to the latter's second digit.

    Of one value, or where all are equal, the mean is written in ``form``.
    """
    numbers = list(values)
    mean, deviation = (
        statistics.fmean(numbers),
        statistics.stdev(numbers) if len(numbers) > 1 else None,
    )
    if not deviation:
        return f"{mean:{form}}" if deviation is None else f"{mean:{form}} ± {deviation:g}"
    places = 1 - math.floor(math.log10(deviation))
    return " ± ".join(
        f"{round(number, places):,.{max(places, 0)}f}" for number in (mean, deviation)
    )


def _all_records(results: Results, name: str, job: PaperJob) -> list[SpectrumRecord]:
    result = results.get(job)
    if result is None:
        return []
    return [
        SpectrumRecord(
            name,
            job.seed,
            float(entry["epoch"]),
            entry["hessian"],
            _spectrum(spectrum),
            float(entry["learning_rate"]["peak"]),
            entry["variant"],
        )
        for entry in result.details["spectra"]
        for spectrum in entry["spectra"]
    ]


def _spectrum(stored: Mapping[str, Any]) -> Spectrum:
    (probe,) = stored["probes"]
    ritz = Ritz(*(np.array(probe[name]) for name in ("values", "errors", "weights")))
    return Spectrum(stored["size"], stored["loss"], stored["gradient_norm"], ritz)


def count_negative(record: SpectrumRecord) -> float:
    """Return how many Ritz values are below zero."""
    return record.spectrum.count(-np.inf, 0.0)


def count_flat(record: SpectrumRecord) -> float:
    """Return how many Ritz values lie between zero and the threshold, 1 in the paper."""
    return record.spectrum.count(0.0, THRESHOLD)


def largest_eigenvalue(record: SpectrumRecord) -> float:
    """Return the largest Ritz value, that of lambda_max."""
    return record.spectrum.largest[0]


def count_above(record: SpectrumRecord) -> float:
    """Return how many Ritz values lie above the threshold."""
    return len(record.spectrum.ritz.values) - count_negative(record) - count_flat(record)


def share_around_zero(record: SpectrumRecord) -> float:
    """Return the estimated share of eigenvalues within a hundredth of the largest around zero."""
    spectrum = record.spectrum
    near = _NEAR * max(abs(spectrum.largest[0]), abs(spectrum.smallest[0]))
    return spectrum.eigenvalues(-near, near) / spectrum.size


def around_zero(claim: str, records: Sequence[SpectrumRecord], wanted: int) -> Ruling:
    """Return whether more than half of every spectrum lies around zero."""
    shares: dict[str, list[float]] = {}
    for record in records:
        shares.setdefault(record.name, []).append(100 * share_around_zero(record))
    evidence = ", ".join(
        f"{name} {format_over_seeds(values, '.1f')}" for name, values in shares.items()
    )
    least = min((share for values in shares.values() for share in values), default=0.0)
    holds = None if len(records) < wanted else least > 50
    return Ruling(
        claim, holds, evidence and f"percent within a hundredth of the largest: {evidence}"
    )


def second_bulk(record: SpectrumRecord) -> float | None:
    """Return the middle one of the Ritz values above the threshold, or None without any.

    What is far from zero Lanczos finds one by one: there a Ritz value is an eigenvalue.
    """
    values = record.spectrum.ritz.values
    above = values[values > THRESHOLD]
    return float(np.median(above)) if len(above) else None


def spread_of_batches(
    results: Results, scale: Scale, count: Callable[[SpectrumRecord], float]
) -> float | None:
    """Return the standard deviation of a count over batches, at MIOv3's last weights."""
    repeated = variants(results, "MIOv3", at_end(scale, "MIOv3")[0])
    alike = [count(x) for x in repeated if set(x.variant) <= {"seeds"}]
    return statistics.stdev(alike) if len(alike) > 1 else None


def epoch(record: SpectrumRecord) -> str:
    """Return the label of a curve among those of one framework."""
    return f"epoch {record.epoch:g}"


def no_minimum(records: Sequence[SpectrumRecord], claim: str, wanted: int) -> Ruling:
    """Return whether each spectrum has an eigenvalue below zero, error bounds included."""
    least = [(f"{x.name} at {x.epoch:g}, seed {x.seed}", x.spectrum.smallest) for x in records]
    missing = [name for name, (value, error) in least if value + error >= 0]
    most = max((value for _, (value, _) in least), default=0.0)
    evidence = f"lambda_min at most {most:.3g} in {len(records)} spectra"
    if missing:
        evidence = f"not below zero: {', '.join(missing)}"
    holds = None if len(records) < wanted else not missing
    return Ruling(claim, holds, evidence if records else "")


def has_grown(
    claim: str, records: Sequence[SpectrumRecord], measure: Callable[[SpectrumRecord], float | None]
) -> Ruling:
    """Return whether a number is larger after the last epoch than after the first."""
    course: dict[float, dict[int, float | None]] = {}
    for record in records:
        course.setdefault(record.epoch, {})[record.seed] = measure(record)
    evidence = ", ".join(
        f"epoch {after:g}: {_format_measured(values)}" for after, values in course.items()
    )
    if len(course) < 2:
        return Ruling(claim, None, evidence)
    before, after = (_complete(course[epoch]) for epoch in (min(course), max(course)))
    if before is None or after is None:
        return Ruling(claim, False, evidence)
    return Ruling(claim, above(minus(after, before)), evidence)


def _format_measured(values: Mapping[int, float | None]) -> str:
    complete = _complete(values)
    return "none" if complete is None else format_over_seeds(complete.values())


def _complete(values: Mapping[int, float | None]) -> dict[int, float] | None:
    """Return the numbers, unless one of them is missing."""
    complete = {seed: value for seed, value in values.items() if value is not None}
    return complete if len(complete) == len(values) else None


def table(records: Sequence[SpectrumRecord], title: str = "") -> Sheet:
    """Return a row for each framework and epoch, with mean and deviation over its seeds."""
    groups: dict[tuple[str, float], list[SpectrumRecord]] = {}
    for record in records:
        groups.setdefault((record.name, record.epoch), []).append(record)
    return Sheet(_HEADER, [_row(name, group) for (name, _), group in groups.items()], title)


def is_ordered(
    claim: str,
    records: Mapping[str, Sequence[SpectrumRecord]],
    order: Sequence[str],
    count: Callable[[SpectrumRecord], float],
    noise: float | None,
) -> Ruling:
    """Return whether a count rises from each framework to the next."""
    values = {name: by_seed(records[name], count) for name in order if name in records}
    evidence = ", ".join(
        f"{name} {format_over_seeds(by_seed_values.values())}"
        for name, by_seed_values in values.items()
    )
    if len(values) < len(order):
        return Ruling(claim, None, evidence)
    evidence += "" if noise is None else f"; standard deviation over batches {noise:.2g}"
    gaps = [minus(b, a) for a, b in itertools.pairwise(values.values())]
    return Ruling(claim, all_of(above(gap, 2 * (noise or 0.0)) for gap in gaps), evidence)


def variants_table(records: Sequence[SpectrumRecord], title: str) -> Sheet:
    """Return a row for each spectrum of the same weights, by its variant."""
    rows: list[list[str]] = []
    for record in records:
        changes = {k: v for k, v in record.variant.items() if k != "seeds"}
        name = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in changes.items())
        batches = sum(row[0].startswith("batch ") for row in rows)
        rows.append(_row(name or f"batch {batches + 1}", [record]))
    return Sheet(_HEADER, rows, title)


def _row(name: str, records: Sequence[SpectrumRecord]) -> list[str]:
    def mean(form: str, measure: Callable[[SpectrumRecord], float]) -> str:
        return format_over_seeds(map(measure, records), form)

    trace = mean(".3g", lambda record: record.spectrum.trace[0])
    if len(records) == 1:
        trace += f" ± {records[0].spectrum.trace[1]:.1g}"
    return [
        name,
        f"{records[0].epoch:g}",
        mean(".4g", lambda record: record.spectrum.smallest[0]),
        mean(".4g", lambda record: record.spectrum.largest[0]),
        mean(".4g", count_negative),
        mean(".4g", count_flat),
        mean(".4g", count_above),
        trace,
        mean(".3g", lambda record: record.spectrum.gradient_norm),
        mean(".3g", lambda record: record.peak * record.spectrum.largest[0]),
    ]


def notes(records: Sequence[SpectrumRecord]) -> list[str]:
    """Describe the Hessians."""
    if not records:
        return []
    about, settings = records[0].about, records[0].about["asked"]
    sizes = sorted({f"{x.spectrum.size:,}" for x in records})
    return [
        f"Hessian of the objective on 1 batch of {about['batch_size']} pairs of crops that came "
        f"next, by all {' or '.join(sizes)} parameters of encoder and head ({about['head']}); "
        f"batch norm: {about['batch_norm']}; no weight decay (it would add "
        f"{about['weight_decay']:g} to every eigenvalue); {settings['iterations']} iterations of "
        "Lanczos from 1 start vector. The paper says none of this but the iterations"
    ]


def draw_panels(
    groups: Mapping[str, Sequence[SpectrumRecord]],
    label: Callable[[SpectrumRecord], str],
    columns: int = 3,
) -> Callable[[], Picture]:
    """Return a function that draws a panel of densities for each group."""
    return functools.partial(_drawn, dict(groups), label, columns)


def _drawn(
    groups: Mapping[str, Sequence[SpectrumRecord]],
    label: Callable[[SpectrumRecord], str],
    columns: int,
) -> Picture:
    panels = []
    for title, records in groups.items():
        lines = []
        if records:
            low = min(record.spectrum.smallest[0] for record in records)
            high = max(record.spectrum.largest[0] for record in records)
            width = (high - low) / 200 or 1.0
            where = grid(low, high, width=width, points=500)
            densities = [density(record.spectrum.ritz, where, width=width) for record in records]
            least = _FLOOR * max(float(values.max()) for values in densities)
            lines = [
                Series(
                    "" if label(record) == title else label(record),
                    where.tolist(),
                    [y if y > least else None for y in values],
                )
                for record, values in zip(records, densities, strict=True)
            ]
        panels.append(Chart(title, lines, x="eigenvalue", y="density", log_y=True))
    return charts(panels, columns=columns)
