"""Supplement, figure 3: how the spectra of four frameworks change while they are trained."""

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import RULE
from papers.manna2023.frameworks import EPOCHS, EVOLVING, evolving, run_at
from papers.manna2023.spectra import (
    SpectrumRecord,
    draw_panels,
    epoch,
    first_seed_by_epoch,
    has_grown,
    largest_eigenvalue,
    no_minimum,
    notes,
    spectra_of,
    table,
)


def jobs(scale: Scale) -> list[PaperJob]:
    """The four, each at several epochs."""
    return [job for name in run_at(scale, EVOLVING) for job in evolving(scale, name)]


def render(scale: Scale, results: Results) -> Rendered:
    """Draw each over the epochs; the fourth verdict of section 3.4."""
    records = {name: spectra_of(results, name, evolving(scale, name)) for name in EVOLVING}
    all_records = [record for group in records.values() for record in group]
    return Rendered(
        tables=[table(all_records)],
        verdicts=[
            no_minimum(
                all_records,
                "none of the four is at a minimum at any of the epochs",
                len(jobs(scale)) * len(EPOCHS[scale]),
            ),
            *(
                has_grown(
                    f"from the first to the last epoch the mass of {name}'s spectrum moves to "
                    "positive eigenvalues",
                    group,
                    positive,
                )
                for name, group in records.items()
            ),
            *(
                has_grown(
                    f"from the first to the last epoch {name}'s positive eigenvalues grow",
                    group,
                    largest_eigenvalue,
                )
                for name, group in records.items()
            ),
        ],
        pictures={
            "supplement-figure3": draw_panels(first_seed_by_epoch(records), epoch, columns=2)
        },
        notes=[
            *notes(scale, all_records),
            "mass on the positive side: of the sum of all eigenvalues' sizes, estimated by the "
            "weights of the Ritz values, the share of the positive ones",
            RULE,
        ],
    )


def positive(record: SpectrumRecord) -> float:
    """Return the share of positive eigenvalues in the sum of all sizes: 1 at a minimum."""
    shares = []
    for ritz in record.spectrum.probes:
        sizes = ritz.weights * abs(ritz.values)
        shares.append(float(sizes[ritz.values > 0].sum() / sizes.sum()))
    return sum(shares) / len(shares)


ARTIFACT = Artifact(
    title="supplement, figure 3: spectra of four frameworks over the epochs",
    jobs=jobs,
    render=render,
)
