"""Figure 6: how the spectra of MIOv3 and SimCLR change while they are trained."""

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import RULE
from papers.manna2023.frameworks import EPOCHS, evolving
from papers.manna2023.spectra import (
    draw_panels,
    epoch,
    first_seed_by_epoch,
    has_grown,
    no_minimum,
    notes,
    second_bulk,
    spectra_of,
    table,
)

FRAMEWORKS = ("MIOv3", "SimCLR")


def jobs(scale: Scale) -> list[PaperJob]:
    """The two, each at several epochs."""
    return [job for name in FRAMEWORKS for job in evolving(scale, name)]


def render(scale: Scale, results: Results) -> Rendered:
    """Draw each over the epochs; the third verdict of section 3.4."""
    records = {name: spectra_of(results, name, evolving(scale, name)) for name in FRAMEWORKS}
    all_records = [record for group in records.values() for record in group]
    return Rendered(
        tables=[table(all_records)],
        verdicts=[
            no_minimum(
                all_records,
                "neither is at a minimum at any of the epochs",
                len(jobs(scale)) * len(EPOCHS[scale]),
            ),
            has_grown(
                "SimCLR's second bulk moves towards higher eigenvalues",
                records["SimCLR"],
                second_bulk,
            ),
        ],
        pictures={"figure6": draw_panels(first_seed_by_epoch(records), epoch)},
        notes=[
            *notes(scale, all_records),
            "the paper sees its second bulk in a drawing; here it is the Ritz values above the "
            "threshold, its place the middle one of them, and it moves if that of the last epoch "
            "is larger than that of the first",
            RULE,
        ],
    )


ARTIFACT = Artifact(
    title="figure 6: the spectra of MIOv3 and SimCLR over the epochs", jobs=jobs, render=render
)
