"""What the figures of spectra share: reading, counting, tables, pictures, when a claim holds.

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
from typing import TYPE_CHECKING, Any

import numpy as np

from isotrope.diagnostics.curvature import Ritz, Spectrum, density, grid
from isotrope.diagnostics.curvature.lanczos import Floats
from papers.machinery.artifact import Results, Scale, Table
from papers.machinery.job import Job
from papers.machinery.verdicts import Verdict, above, all_of, minus
from papers.manna2023.frameworks import among, at_end

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

__all__ = [
    "Look",
    "around_zero",
    "at_first",
    "at_seeds",
    "beyond",
    "drawn",
    "ends",
    "epoch",
    "first",
    "flat",
    "grown",
    "looks",
    "negative",
    "no_minimum",
    "notes",
    "ordered",
    "paneled",
    "said",
    "second_bulk",
    "spread_of_batches",
    "table",
    "told",
    "top",
    "variants",
]

_NEAR = 0.01  # of the largest eigenvalue in size: what lies around zero
_FLOOR = 1e-8  # of the largest density; one of a million eigenvalues is still drawn
_HEADER = (
    *("", "epoch", "lambda_min", "lambda_max", "negative", "flat", "above", "trace"),
    *("gradient norm", "rate x lambda_max"),
)


@dataclass(frozen=True)
class Look:
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


def looks(results: Results, name: str, jobs: Sequence[Job]) -> list[Look]:
    """Return the spectra of those jobs that were run, seed by seed, each by epoch."""
    every = [look for job in jobs for look in _everything(results, name, job)]
    return [look for look in every if not look.variant]


def variants(results: Results, name: str, job: Job) -> list[Look]:
    """Return the last spectrum, and those of the same weights that were asked otherwise."""
    changed = [look for look in _everything(results, name, job) if look.variant]
    return [*looks(results, name, [job])[-1:], *changed]


def ends(
    results: Results,
    scale: Scale,
    names: tuple[str, ...],
    **other: Any,  # noqa: ANN401 - of `at_end`
) -> dict[str, list[Look]]:
    """Return the last spectra of each framework that was run, one for each seed."""
    every = {name: at_end(scale, name, **other) for name in among(scale, names)}
    lasts = {
        name: [look for job in jobs for look in looks(results, name, [job])[-1:]]
        for name, jobs in every.items()
    }
    return {name: own for name, own in lasts.items() if own}


def first(some: Mapping[str, Sequence[Look]]) -> list[Look]:
    """Return one spectrum of each framework, that of its first seed: what is drawn."""
    return [own[0] for own in some.values()]


def at_first(some: Mapping[str, Sequence[Look]]) -> dict[str, list[Look]]:
    """Return the spectra of the first seed of each framework, by epoch."""
    return {name: [x for x in own if x.seed == own[0].seed] for name, own in some.items()}


def at_seeds(some: Iterable[Look], measure: Callable[[Look], float]) -> dict[int, float]:
    """Return a number of spectra, by seed."""
    return {look.seed: measure(look) for look in some}


def said(values: Iterable[float], form: str = ".4g") -> str:
    """Return a mean over seeds with its standard deviation, both to the latter's second digit.

    Of one value, or where all are equal, the mean is written in ``form``.
    """
    every = list(values)
    mean, deviation = statistics.fmean(every), statistics.stdev(every) if len(every) > 1 else None
    if not deviation:
        return f"{mean:{form}}" if deviation is None else f"{mean:{form}} ± {deviation:g}"
    places = 1 - math.floor(math.log10(deviation))
    return " ± ".join(f"{round(one, places):,.{max(places, 0)}f}" for one in (mean, deviation))


def _everything(results: Results, name: str, job: Job) -> list[Look]:
    result = results.get(job)
    if result is None:
        return []
    return [
        Look(
            name,
            job.seed,
            float(one["epoch"]),
            one["hessian"],
            _spectrum(spectrum),
            float(one["learning_rate"]["peak"]),
            one["variant"],
        )
        for one in result.details["spectra"]
        for spectrum in one["spectra"]
    ]


def _spectrum(kept: Mapping[str, Any]) -> Spectrum:
    probes = []
    for probe in kept["probes"]:
        values, errors, weights = (np.array(probe[k]) for k in ("values", "errors", "weights"))
        probes.append(Ritz(values, errors, weights, np.full(len(values), math.nan)))
    return Spectrum(kept["size"], kept["loss"], kept["gradient_norm"], tuple(probes))


def negative(look: Look) -> float:
    """Return how many Ritz values are below zero."""
    return look.spectrum.negative()


def flat(look: Look) -> float:
    """Return how many Ritz values lie between zero and the threshold, 1 in the paper."""
    return look.spectrum.count(0.0, _threshold(look))


def top(look: Look) -> float:
    """Return the largest Ritz value, that of lambda_max."""
    return look.spectrum.largest[0]


def beyond(look: Look) -> float:
    """Return how many Ritz values lie above the threshold."""
    probes = look.spectrum.probes
    values = sum(len(ritz.values) for ritz in probes) / len(probes)
    return values - negative(look) - flat(look)


def bulk(look: Look) -> float:
    """Return the estimated share of eigenvalues within a hundredth of the largest around zero."""
    spectrum = look.spectrum
    near = _NEAR * max(abs(spectrum.largest[0]), abs(spectrum.smallest[0]))
    return spectrum.eigenvalues(-near, near) / spectrum.size


def around_zero(claim: str, some: Sequence[Look], wanted: int) -> Verdict:
    """Return whether more than half of every spectrum lies around zero.

    Args:
        claim: in words.
        some: spectra.
        wanted: how many there are if all were run.
    """
    shares: dict[str, list[float]] = {}
    for look in some:
        shares.setdefault(look.name, []).append(100 * bulk(look))
    told = ", ".join(f"{name} {said(own, '.1f')}" for name, own in shares.items())
    least = min((share for own in shares.values() for share in own), default=0.0)
    holds = None if len(some) < wanted else least > 50
    return Verdict(claim, holds, told and f"percent within a hundredth of the largest: {told}")


def second_bulk(look: Look) -> float | None:
    """Return the middle one of the Ritz values above the threshold, or None without any.

    What is far from zero Lanczos finds one by one: there a Ritz value is an eigenvalue.
    """
    values = np.concatenate([ritz.values for ritz in look.spectrum.probes])
    above = values[values > _threshold(look)]
    return float(np.median(above)) if len(above) else None


def _threshold(look: Look) -> float:
    return float(look.about["asked"]["threshold"])


def spread_of_batches(
    results: Results, scale: Scale, count: Callable[[Look], float]
) -> float | None:
    """Return the standard deviation of a count over batches, at MIOv3's last weights."""
    asked = variants(results, "MIOv3", at_end(scale, "MIOv3")[0])
    alike = [count(x) for x in asked if set(x.variant) <= {"seeds"}]
    return statistics.stdev(alike) if len(alike) > 1 else None


def epoch(look: Look) -> str:
    """Return what a curve is called among those of one framework."""
    return f"epoch {look.epoch:g}"


def no_minimum(some: Sequence[Look], claim: str, wanted: int) -> Verdict:
    """Return whether each spectrum has an eigenvalue below zero, error bounds included.

    Args:
        some: spectra.
        claim: in words.
        wanted: how many there are if all were run.
    """
    least = [(f"{x.name} at {x.epoch:g}, seed {x.seed}", x.spectrum.smallest) for x in some]
    missing = [name for name, (value, error) in least if value + error >= 0]
    most = max((value for _, (value, _) in least), default=0.0)
    told = f"lambda_min at most {most:.3g} in {len(some)} spectra"
    if missing:
        told = f"not below zero: {', '.join(missing)}"
    holds = None if len(some) < wanted else not missing
    return Verdict(claim, holds, told if some else "")


def grown(claim: str, some: Sequence[Look], measure: Callable[[Look], float | None]) -> Verdict:
    """Return whether a number is larger after the last epoch than after the first.

    Args:
        claim: in words.
        some: spectra of one framework.
        measure: returns None where there is nothing to measure; then nothing has grown.
    """
    course: dict[float, dict[int, float | None]] = {}
    for look in some:
        course.setdefault(look.epoch, {})[look.seed] = measure(look)
    told = ", ".join(f"epoch {after:g}: {_told(own)}" for after, own in course.items())
    if len(course) < 2:
        return Verdict(claim, None, told)
    before, after = (_known(course[epoch]) for epoch in (min(course), max(course)))
    if before is None or after is None:
        return Verdict(claim, False, told)
    return Verdict(claim, above(minus(after, before)), told)


def _told(own: Mapping[int, float | None]) -> str:
    known = _known(own)
    return "none" if known is None else said(known.values())


def _known(own: Mapping[int, float | None]) -> dict[int, float] | None:
    """Return the numbers, unless one of them is missing."""
    known = {seed: value for seed, value in own.items() if value is not None}
    return known if len(known) == len(own) else None


def table(some: Sequence[Look], title: str = "") -> Table:
    """Return a row for each framework and epoch, with mean and deviation over its seeds."""
    groups: dict[tuple[str, float], list[Look]] = {}
    for look in some:
        groups.setdefault((look.name, look.epoch), []).append(look)
    return Table(_HEADER, [_row(name, own) for (name, _), own in groups.items()], title)


def ordered(
    claim: str,
    some: Mapping[str, Sequence[Look]],
    order: Sequence[str],
    count: Callable[[Look], float],
    noise: float | None,
) -> Verdict:
    """Return whether a count rises from each framework to the next.

    Args:
        claim: in words.
        some: spectra by framework, one for each seed.
        order: frameworks, that with the smallest count first.
        count: of Ritz values.
        noise: standard deviation over batches, if it was measured.
    """
    values = {name: at_seeds(some[name], count) for name in order if name in some}
    told = ", ".join(f"{name} {said(own.values())}" for name, own in values.items())
    if len(values) < len(order):
        return Verdict(claim, None, told)
    told += "" if noise is None else f"; standard deviation over batches {noise:.2g}"
    gaps = [minus(b, a) for a, b in itertools.pairwise(values.values())]
    return Verdict(claim, all_of(above(gap, 2 * (noise or 0.0)) for gap in gaps), told)


def told(some: Sequence[Look], title: str) -> Table:
    """Return a row for each spectrum of the same weights, by what was asked otherwise."""
    rows: list[list[str]] = []
    for look in some:
        changes = {k: v for k, v in look.variant.items() if k != "seeds"}
        name = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in changes.items())
        batches = sum(row[0].startswith("batch ") for row in rows)
        rows.append(_row(name or f"batch {batches + 1}", [look]))
    return Table(_HEADER, rows, title)


def _row(name: str, own: Sequence[Look]) -> list[str]:
    def mean(form: str, measure: Callable[[Look], float]) -> str:
        return said(map(measure, own), form)

    trace = mean(".3g", lambda look: look.spectrum.trace[0])
    if len(own) == 1:
        trace += f" ± {own[0].spectrum.trace[1]:.1g}"
    return [
        name,
        f"{own[0].epoch:g}",
        mean(".4g", lambda look: look.spectrum.smallest[0]),
        mean(".4g", lambda look: look.spectrum.largest[0]),
        mean(".4g", negative),
        mean(".4g", flat),
        mean(".4g", beyond),
        trace,
        mean(".3g", lambda look: look.spectrum.gradient_norm),
        mean(".3g", lambda look: look.peak * look.spectrum.largest[0]),
    ]


def notes(scale: Scale, some: Sequence[Look]) -> list[str]:
    """Say of what the Hessians are, and what at this scale is smaller than the paper's."""
    found = []
    if some:
        look = some[0]
        about, asked = look.about, look.about["asked"]
        decay = "the run's" if asked["weight_decay"] else "no"
        sizes = sorted({f"{x.spectrum.size:,}" for x in some})
        found = [
            f"Hessian of the objective on {asked['batches']} batch of {about['batch_size']} pairs "
            f"of crops that came next, by all {' or '.join(sizes)} parameters of encoder and head "
            f"({about['head']}); batch norm: {about['batch_norm']}; {decay} weight decay (it "
            f"would add {about['weight_decay']:g} to every eigenvalue); "
            f"{asked['iterations']} iterations of Lanczos from {asked['probes']} start vector. The "
            "paper says none of this but the iterations",
            f"of the Ritz values, negative: below 0; flat: from there to {_threshold(look):g}; "
            "above: the others. Those far from zero are eigenvalues, one of those near zero stands "
            "for thousands. trace: of one training with its standard error; rate: the peak of the "
            "learning rate, "
            "which paper 004, section 2.5, wants within 1/lambda_max. A point that is no minimum "
            "is a saddle, as the paper says, only where the gradient vanishes",
        ]
    if scale == "cpu":
        found.append(
            "paper: ResNet-18 of 64 channels, 50,000 images, batch 128, 200 to 500 epochs; here 16 "
            "channels, 5,000 images, batch 64, 8 epochs: signs and order can be compared, sizes "
            "of eigenvalues cannot. Mean and standard deviation over seeds; drawn: the first seed"
        )
    return found


def drawn(some: Sequence[Look], label: Callable[[Look], str]) -> "Callable[[], Picture]":
    """Return what draws densities over each other."""
    return functools.partial(_drawn, tuple(some), label)


def _drawn(some: Sequence[Look], label: Callable[[Look], str]) -> "Picture":
    from isotrope.reports.spectra import DensityCurve, spectra
    from papers.plots.charts import Chart, charts

    if not some:
        return charts([Chart("", ())])
    where, width = _axis(some, 1000)
    return spectra(
        [
            DensityCurve(
                label(look),
                where,
                density(look.spectrum.probes, where, width=width),
                look.spectrum.probes[0].values,
            )
            for look in some
        ]
    )


def paneled(
    groups: Mapping[str, Sequence[Look]], label: Callable[[Look], str], columns: int = 3
) -> "Callable[[], Picture]":
    """Return what draws a panel of densities for each group."""
    return functools.partial(_paneled, dict(groups), label, columns)


def _paneled(
    groups: Mapping[str, Sequence[Look]], label: Callable[[Look], str], columns: int
) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    panels = []
    for title, some in groups.items():
        lines = []
        if some:
            where, width = _axis(some, 500)
            found = [density(look.spectrum.probes, where, width=width) for look in some]
            least = _FLOOR * max(float(values.max()) for values in found)
            lines = [
                Series(
                    _unlike(label(look), title),
                    where.tolist(),
                    [y if y > least else None for y in values],
                )
                for look, values in zip(some, found, strict=True)
            ]
        panels.append(Chart(title, lines, x="eigenvalue", y="density", log_y=True))
    return charts(panels, columns=columns)


def _unlike(label: str, title: str) -> str:
    """A label, but not what stands above the panel already."""
    return "" if label == title else label


def _axis(some: Sequence[Look], points: int) -> tuple[Floats, float]:
    """Places that show all of several spectra, and the width of their Gaussians."""
    every = [ritz for look in some for ritz in look.spectrum.probes]
    low = min(float(ritz.values[0]) for ritz in every)
    high = max(float(ritz.values[-1]) for ritz in every)
    width = (high - low) / 200 or 1.0
    return grid(every, width=width, points=points), width
