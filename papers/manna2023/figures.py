"""Figures 2 to 6 and figure 3 of the supplement: spectra of the frameworks' losses.

Each is a function that artifacts.toml names, and one that names its trainings.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from isotrope.reports import Picture
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Ruling, above, minus, spread
from papers.manna2023.frameworks import EPOCHS, EVOLVING, OTHER, at_end, evolving, run_at
from papers.manna2023.spectra import (
    SpectrumRecord,
    around_zero,
    by_seed,
    count_flat,
    count_negative,
    draw_panels,
    epoch,
    first_seed_by_epoch,
    first_seeds,
    format_over_seeds,
    has_grown,
    is_ordered,
    largest_eigenvalue,
    last_spectra,
    no_minimum,
    notes,
    second_bulk,
    spectra_of,
    spread_of_batches,
    table,
    variants,
    variants_table,
)
from papers.manna2023.spectrum import density
from papers.paper_numbers import printed
from papers.plots.charts import Chart, Series, charts

Records = Mapping[str, list[SpectrumRecord]]

LOSSES = ("MIOv1", "MIOv2", "MIOv3")
PANELS = {
    "(a)": ("MIOv3", "SimCLR", "Barlow Twins"),
    "(b)": ("MIOv3", "SimCLR", "DCL", "DCLW"),
    "(c)": ("MIOv3", "DCL", "BYOL"),
}
COMPARED = tuple(dict.fromkeys(name for names in PANELS.values() for name in names))
ELSEWHERE = (*LOSSES, "DCLW")
FOLLOWED = ("MIOv3", "SimCLR")
_MANY = 10  # of 100: the paper says "a large number"
_POINTS = 1000
_name = operator.attrgetter("name")


def _all(records: Records) -> list[SpectrumRecord]:
    return [record for group in records.values() for record in group]


def _rendered(
    records: Records, verdicts: Sequence[Ruling], pictures: Mapping[str, Callable[[], Picture]]
) -> Rendered:
    """Return verdicts and pictures beside the table of all spectra and what they are of."""
    every = _all(records)
    return Rendered([table(every)], verdicts, pictures, notes(every))


def _jobs(scale: Scale, names: tuple[str, ...]) -> list[PaperJob]:
    return [job for name in run_at(scale, names) for job in at_end(scale, name)]


def jobs_of_losses(scale: Scale) -> list[PaperJob]:
    """Return the spectra of the three losses, for figures 2 and 3."""
    return _jobs(scale, LOSSES)


def figure2(scale: Scale, results: Results) -> Rendered:
    """Count negative and flat directions, and vary the choices that the paper leaves open."""
    records = last_spectra(results, scale, LOSSES)
    paper = printed("mio", "figure2").rows
    theirs = {name: float(paper[name.lower()][0] or 0) for name in LOSSES}
    rows = []
    for name in LOSSES:
        ours = [
            format_over_seeds(map(count, records[name])) if records.get(name) else None
            for count in (count_flat, count_negative)
        ]
        rows.append([name, f"{theirs[name]:g}", *ours])
    repeated = variants(results, "MIOv3", at_end(scale, "MIOv3")[0])
    claims: list[tuple[str, tuple[str, str], Callable[[SpectrumRecord], float]]] = [
        *(
            (f"{fewer} leaves fewer flat directions than {more}", (fewer, more), count_flat)
            for fewer, more in (("MIOv3", "MIOv1"), ("MIOv1", "MIOv2"))
        ),
        *(
            (f"MIOv3 has more negative eigenvalues than {other}", (other, "MIOv3"), count_negative)
            for other in ("MIOv1", "MIOv2")
        ),
    ]
    counts = Sheet(
        ("loss", "flat, paper", "flat, ours", "negative, ours"),
        rows,
        "of 100 Ritz values" if scale != "smoke" else "",
    )
    verdicts = [
        is_ordered(claim, records, order, count, spread_of_batches(results, scale, count))
        for claim, order, count in claims
    ]
    asked = "MIOv3 at the same weights of its first seed, asked otherwise"
    every = _all(records)
    return Rendered(
        [counts, table(every, "spectra"), variants_table(repeated, asked)],
        verdicts,
        {"figure2": functools.partial(_bars, records, theirs)},
        notes(every),
    )


def _bars(records: Records, theirs: Mapping[str, float]) -> Picture:
    bars = []
    for title, count in (("negative", count_negative), ("flat", count_flat)):
        levels = [spread(map(count, records.get(name, ()))) for name in LOSSES]
        means = [None if level is None else level.mean for level in levels]
        deviations = [None if level is None else level.deviation for level in levels]
        bars.append(Series(title, LOSSES, means, deviations))
    bars.append(Series("flat, paper", LOSSES, list(theirs.values())))
    return charts([Chart("", bars, y="Ritz values", kind="bars")])


def figure3(scale: Scale, results: Results) -> Rendered:
    """Draw the densities of the three losses, and compare the eigenvalues above the bulk."""
    records = last_spectra(results, scale, LOSSES)
    wanted = len(jobs_of_losses(scale))
    none = no_minimum(_all(records), "none of the three losses ends in a minimum", wanted)
    pictures = {"figure3": draw_panels({"": first_seeds(records)}, _name)}
    return _rendered(records, [none, _reach(records), _denser(records)], pictures)


def _reach(records: Records) -> Ruling:
    claim = "the eigenvalues of MIOv3 reach beyond the largest of MIOv1 and MIOv2"
    tops = {name: by_seed(group, largest_eigenvalue) for name, group in records.items()}
    evidence = ", ".join(
        f"{name} {format_over_seeds(values.values())}" for name, values in tops.items()
    )
    if len(tops) < len(LOSSES):
        return Ruling(claim, None, evidence)
    seeds = set.intersection(*(set(values) for values in tops.values()))
    others = {seed: max(tops[name][seed] for name in ("MIOv1", "MIOv2")) for seed in sorted(seeds)}
    return Ruling(claim, above(minus(tops["MIOv3"], others)), evidence)


def _denser(records: Records) -> Ruling:
    """Section 3.4: to the right, the density of MIOv3 is the largest for most of the interval."""
    claim = (
        "above 1 the density of MIOv3's eigenvalues is the largest on most of the interval where "
        "all three have some"
    )
    if len(records) < len(LOSSES):
        return Ruling(claim, None)
    spectra = {name: {of.seed: of.spectrum for of in group} for name, group in records.items()}
    shares = {}
    for seed in set.intersection(*(set(group) for group in spectra.values())):
        end = min(group[seed].largest[0] for group in spectra.values())
        if end <= 1:
            return Ruling(claim, False, f"one of them has none above 1 (lambda_max {end:.3g})")
        where = np.linspace(1.0, end, _POINTS)
        heights = {
            name: density(group[seed].ritz, where, width=end / 100)
            for name, group in spectra.items()
        }
        largest = heights["MIOv3"] > np.maximum(heights["MIOv1"], heights["MIOv2"])
        shares[seed] = float(largest.mean())
    if not shares:
        return Ruling(claim, None)
    evidence = f"on {format_over_seeds([100 * share for share in shares.values()], '.0f')}% of it"
    return Ruling(claim, above(minus(shares, 0.5)), evidence)


def jobs_of_figure4(scale: Scale) -> list[PaperJob]:
    """Return the spectra of all frameworks in its panels."""
    return _jobs(scale, COMPARED)


def figure4(scale: Scale, results: Results) -> Rendered:
    """Draw MIOv3 against other frameworks, and test the claims of section 3.4."""
    records = last_spectra(results, scale, COMPARED)
    count = len(jobs_of_figure4(scale))
    noise = spread_of_batches(results, scale, count_negative)
    first = {record.name: record for record in first_seeds(records)}
    panels = {p: [first[n] for n in names if n in first] for p, names in PANELS.items()}
    panels |= {name: [record] for name, record in first.items()}  # each on axes of its own
    most = "most eigenvalues of every framework lie around zero"
    verdicts = [
        no_minimum(_all(records), "no framework ends in a minimum", count),
        around_zero(most, _all(records), count),
        _sharp(records),
        *(_fewer(records, name, noise) for name in ("BYOL", "DCL", "DCLW")),
        *(_above(records, name) for name in ("DCL", "DCLW")),
    ]
    return _rendered(records, verdicts, {"figure4": draw_panels(panels, _name)})


def _sharp(records: Records) -> Ruling:
    sharp = float(printed("mio", "figure4").rows["byol/some eigenvalues above"][0] or 0)
    claim = f"BYOL has eigenvalues above {sharp:g}"
    if "BYOL" not in records:
        return Ruling(claim, None)
    tops = {name: by_seed(group, largest_eigenvalue) for name, group in records.items()}
    measured = [name for name in ("BYOL", "MIOv3") if name in tops]
    evidence = ", ".join(f"{name} {format_over_seeds(tops[name].values())}" for name in measured)
    return Ruling(claim, above(minus(tops["BYOL"], sharp)), f"lambda_max: {evidence}")


def _fewer(records: Records, name: str, noise: float | None) -> Ruling:
    claim = f"{name} has less than half as many negative eigenvalues as MIOv3"
    if name not in records or "MIOv3" not in records:
        return Ruling(claim, None)
    rows = printed("mio", "figure4").rows
    share = float(rows["negative eigenvalues over miov3's, below"][0] or 0)
    counts, reference = (by_seed(records[n], count_negative) for n in (name, "MIOv3"))
    half = {seed: share * count for seed, count in reference.items()}
    evidence = (
        f"{format_over_seeds(counts.values())} against "
        f"{format_over_seeds(reference.values())} Ritz values"
    )
    return Ruling(claim, above(minus(half, counts), 2 * (noise or 0.0)), evidence)


def _above(records: Records, name: str) -> Ruling:
    claim = f"{name} has many eigenvalues above all but one of MIOv3's"
    if name not in records or "MIOv3" not in records:
        return Ruling(claim, None)
    seconds = by_seed(records["MIOv3"], lambda record: float(record.spectrum.ritz.values[-2]))
    counts = {
        record.seed: record.spectrum.count(seconds[record.seed], float("inf"))
        for record in records[name]
        if record.seed in seconds
    }
    if not counts:
        return Ruling(claim, None)
    evidence = f"{format_over_seeds(counts.values())} above {format_over_seeds(seconds.values())}"
    return Ruling(claim, min(counts.values()) >= _MANY, evidence)


def jobs_of_figure5(scale: Scale) -> list[PaperJob]:
    """Return the spectra of the three losses and of the runner-up of table 2 on other data."""
    names = run_at(scale, ELSEWHERE)
    return [
        job for data in OTHER[scale] for name in names for job in at_end(scale, name, data=data)
    ]


def figure5(scale: Scale, results: Results) -> Rendered:
    """See whether the pattern on other data is that of CIFAR-10."""
    wanted = len(jobs_of_figure5(scale)) // len(OTHER[scale])
    tables, verdicts, pictures, every = [], [], {}, []
    for place, data in enumerate(OTHER[scale]):
        records = last_spectra(results, scale, ELSEWHERE, data=data)
        of_set = _all(records)
        every += of_set
        tables.append(table(of_set, data))
        verdicts.append(no_minimum(of_set, f"no framework ends in a minimum on {data}", wanted))
        verdicts.append(around_zero(f"most eigenvalues lie around zero on {data}", of_set, wanted))
        name = "figure5" if place == 0 else f"figure5{'abc'[place]}"
        pictures[name] = draw_panels({"": first_seeds(records)}, _name)
    return Rendered(tables=tables, verdicts=verdicts, pictures=pictures, notes=notes(every))


def jobs_of_figure6(scale: Scale) -> list[PaperJob]:
    """Return MIOv3 and SimCLR, each at several epochs."""
    return [job for name in FOLLOWED for job in evolving(scale, name)]


def figure6(scale: Scale, results: Results) -> Rendered:
    """Draw both over the epochs; the third verdict of section 3.4."""
    records = _followed(scale, results, FOLLOWED)
    wanted = len(jobs_of_figure6(scale)) * len(EPOCHS[scale])
    none = "neither is at a minimum at any of the epochs"
    moves = "SimCLR's second bulk moves towards higher eigenvalues"
    verdicts = [
        no_minimum(_all(records), none, wanted),
        has_grown(moves, records["SimCLR"], second_bulk),
    ]
    panels = draw_panels(first_seed_by_epoch(records), epoch)
    return _rendered(records, verdicts, {"figure6": panels})


def _followed(scale: Scale, results: Results, names: tuple[str, ...]) -> Records:
    return {name: spectra_of(results, name, evolving(scale, name)) for name in names}


def jobs_of_supplement_figure3(scale: Scale) -> list[PaperJob]:
    """Return four frameworks, each at several epochs."""
    return [job for name in run_at(scale, EVOLVING) for job in evolving(scale, name)]


def supplement_figure3(scale: Scale, results: Results) -> Rendered:
    """Draw the four over the epochs; the fourth verdict of section 3.4."""
    records = _followed(scale, results, EVOLVING)
    wanted = len(jobs_of_supplement_figure3(scale)) * len(EPOCHS[scale])
    none = "none of the four is at a minimum at any of the epochs"
    since = "from the first to the last epoch"
    mass = since + " the mass of {}'s spectrum moves to positive eigenvalues"
    grow = since + " {}'s positive eigenvalues grow"
    verdicts = [
        no_minimum(_all(records), none, wanted),
        *(has_grown(mass.format(name), group, _positive) for name, group in records.items()),
        *(
            has_grown(grow.format(name), group, largest_eigenvalue)
            for name, group in records.items()
        ),
    ]
    panels = draw_panels(first_seed_by_epoch(records), epoch, columns=2)
    return _rendered(records, verdicts, {"supplement-figure3": panels})


def _positive(record: SpectrumRecord) -> float:
    """Return the share of positive eigenvalues in the sum of all sizes: 1 at a minimum."""
    ritz = record.spectrum.ritz
    sizes = ritz.weights * abs(ritz.values)
    return float(sizes[ritz.values > 0].sum() / sizes.sum())
