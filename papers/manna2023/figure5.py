"""Figure 5: spectra of the three losses and of the runner-up of table 2 on other data."""

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.manna2023.frameworks import OTHER, at_end, run_at
from papers.manna2023.spectra import (
    around_zero,
    draw_densities,
    first_seeds,
    last_spectra,
    no_minimum,
    notes,
    table,
)

FRAMEWORKS = ("MIOv1", "MIOv2", "MIOv3", "DCLW")


def jobs(scale: Scale) -> list[PaperJob]:
    """One spectrum of each on every set."""
    names = run_at(scale, FRAMEWORKS)
    return [
        job for data in OTHER[scale] for name in names for job in at_end(scale, name, data=data)
    ]


def render(scale: Scale, results: Results) -> Rendered:
    """Draw, and see whether the pattern is that of CIFAR-10."""
    wanted = len(jobs(scale)) // len(OTHER[scale])
    tables, verdicts, pictures, all_records = [], [], {}, []
    for place, data in enumerate(OTHER[scale]):
        records = last_spectra(results, scale, FRAMEWORKS, data=data)
        records_of_set = [record for own_records in records.values() for record in own_records]
        all_records += records_of_set
        tables.append(table(records_of_set, data))
        verdicts.append(
            no_minimum(records_of_set, f"no framework ends in a minimum on {data}", wanted)
        )
        verdicts.append(
            around_zero(f"most eigenvalues lie around zero on {data}", records_of_set, wanted)
        )
        name = "figure5" if place == 0 else f"figure5{'abc'[place]}"
        pictures[name] = draw_densities(first_seeds(records), lambda record: record.name)
    remarks = notes(scale, all_records)
    if scale != "paper":
        remarks.append(
            "CIFAR-100 and Tiny-ImageNet are not here: handwritten digits (1,438 of 8 x 8 pixels, "
            "28 epochs) stand in for them"
        )
    return Rendered(tables=tables, verdicts=verdicts, pictures=pictures, notes=remarks)


ARTIFACT = Artifact(title="figure 5: spectra on other data", jobs=jobs, render=render)
