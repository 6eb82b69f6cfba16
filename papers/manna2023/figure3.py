"""Figure 3: densities of the eigenvalues of the three losses after the last epoch."""

import numpy as np

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.machinery.over_seeds import combine_by_seed
from papers.machinery.verdicts import RULE, Ruling, above, minus
from papers.manna2023.density import density
from papers.manna2023.frameworks import at_end, run_at
from papers.manna2023.spectra import (
    SpectrumRecord,
    by_seed,
    draw_densities,
    first_seeds,
    format_over_seeds,
    largest_eigenvalue,
    last_spectra,
    no_minimum,
    notes,
    table,
)

LOSSES = ("MIOv1", "MIOv2", "MIOv3")
_POINTS = 1000


def jobs(scale: Scale) -> list[PaperJob]:
    """The spectra of the three losses, those of figure 2."""
    return [job for name in run_at(scale, LOSSES) for job in at_end(scale, name)]


def render(scale: Scale, results: Results) -> Rendered:
    """Draw, and compare the eigenvalues above the bulk."""
    records = last_spectra(results, scale, LOSSES)
    all_records = [record for group in records.values() for record in group]
    wanted = len(jobs(scale))
    return Rendered(
        tables=[table(all_records)],
        verdicts=[
            no_minimum(all_records, "none of the three losses ends in a minimum", wanted),
            _reach(records),
            _denser(records),
        ],
        pictures={"figure3": draw_densities(first_seeds(records), lambda record: record.name)},
        notes=[*notes(scale, all_records), RULE],
    )


def _reach(records: dict[str, list[SpectrumRecord]]) -> Ruling:
    claim = "the eigenvalues of MIOv3 reach beyond the largest of MIOv1 and MIOv2"
    tops = {name: by_seed(group, largest_eigenvalue) for name, group in records.items()}
    evidence = ", ".join(
        f"{name} {format_over_seeds(values.values())}" for name, values in tops.items()
    )
    if len(tops) < len(LOSSES):
        return Ruling(claim, None, evidence)
    group = tops.pop("MIOv3")
    return Ruling(claim, above(minus(group, combine_by_seed(max, list(tops.values())))), evidence)


def _denser(records: dict[str, list[SpectrumRecord]]) -> Ruling:
    """Section 3.4: to the right, the density of MIOv3 is the largest for most of the interval."""
    claim = (
        "above 1 the density of MIOv3's eigenvalues is the largest on most of the interval where "
        "all three have some"
    )
    if len(records) < len(LOSSES):
        return Ruling(claim, None)
    shares = {}
    for seed in set.intersection(
        *({record.seed for record in group} for group in records.values())
    ):
        group = {
            n: record
            for n, own_records in records.items()
            for record in own_records
            if record.seed == seed
        }
        end = min(record.spectrum.largest[0] for record in group.values())
        if end <= 1:
            return Ruling(claim, False, f"one of them has none above 1 (lambda_max {end:.3g})")
        shares[seed] = _share(group, end)
    if not shares:
        return Ruling(claim, None)
    evidence = f"on {format_over_seeds([100 * share for share in shares.values()], '.0f')}% of it"
    return Ruling(claim, above(minus(shares, 0.5)), evidence)


def _share(spectra: dict[str, SpectrumRecord], end: float) -> float:
    """Return how much of the interval from 1 to a number MIOv3's density is the largest on."""
    where = np.linspace(1.0, end, _POINTS)
    densities = {
        name: density(record.spectrum.probes, where, width=end / 100)
        for name, record in spectra.items()
    }
    return float((densities["MIOv3"] > np.maximum(densities["MIOv1"], densities["MIOv2"])).mean())


ARTIFACT = Artifact(
    title="figure 3: eigenvalue densities of MIOv1, MIOv2, MIOv3", jobs=jobs, render=render
)
