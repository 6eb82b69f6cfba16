"""Table 3: the counts of eigenvalues beside the accuracies, which artifacts.toml describes."""

import itertools

from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.manna2023.frameworks import ENCODERS, EVOLVING, TABLE3, named
from papers.manna2023.spectra import (
    SpectrumRecord,
    count_above,
    count_flat,
    count_negative,
    format_over_seeds,
    notes,
    spectra_of,
)

_HEADER = (
    *("framework", "encoder", "parameters", "negative", "flat", "above"),
    *("eigenvalues not positive", "eigenvalues positive"),
)


def counts(scale: Scale, results: Results) -> Rendered:
    """Return the counts of both encoders by framework, a table for each image set."""
    tables, every = [], []
    for title in TABLE3[scale]:
        rows: list[list[str | None]] = []
        for name, encoder in itertools.product(EVOLVING, ENCODERS):
            jobs = named(scale, f"spectra/{title}/{encoder}/{name}")
            records = [last for job in jobs for last in spectra_of(results, name, [job])[-1:]]
            every += records
            rows.append([name, encoder, *(_counted(records) if records else [None] * 6)])
        tables.append(Sheet(_HEADER, rows, f"counts, {title}"))
    return Rendered(tables, notes=notes(every))


def _counted(records: list[SpectrumRecord]) -> list[str]:
    spectra = [record.spectrum for record in records]
    negative = [s.eigenvalues(-float("inf"), s.zero) for s in spectra]
    positive = [s.eigenvalues(s.zero, float("inf")) for s in spectra]
    return [
        f"{spectra[0].size:,}",
        *(format_over_seeds(map(count, records)) for count in (count_negative, count_flat)),
        format_over_seeds(map(count_above, records)),
        *(format_over_seeds(values, ",.0f") for values in (negative, positive)),
    ]
