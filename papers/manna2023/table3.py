"""Table 3: accuracy with fewer parameters, and the counts of eigenvalues."""

import functools

from isotrope.reports import Picture
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import RULE, Ruling, Spread, ahead, each, shown, spread
from papers.manna2023.frameworks import ENCODERS, EPOCHS, EVOLVING, PRINTED, at_end, run_at, trained
from papers.manna2023.spectra import (
    SpectrumRecord,
    count_above,
    count_flat,
    count_negative,
    format_over_seeds,
    last_spectra,
    notes,
)
from papers.paper_numbers import printed
from papers.plots.charts import Chart, Series, charts

PAPER = printed("mio", "table3")
_ENCODERS = printed("mio", "table3-encoders")
LARGER, SMALLER = ENCODERS

_Accuracies = dict[tuple[str, str], Spread | None]
_Spectra = dict[tuple[str, str], list[SpectrumRecord]]


def _sets(scale: Scale) -> dict[str, dict[str, str | int]]:
    """Names of the paper, and what differs from the trainings of table 2."""
    if scale != "paper":
        return {"CIFAR-10": {}}
    return {"CIFAR-10": {"epochs": EPOCHS[scale][-1]}, "CIFAR-100": {"data": "cifar100"}}


def _measured(
    scale: Scale, name: str, encoder: str, settings: dict[str, str | int]
) -> list[PaperJob]:
    return at_end(scale, name, encoder=encoder, **settings)  # type: ignore[arg-type]


def _trainings(
    scale: Scale, name: str, encoder: str, settings: dict[str, str | int]
) -> list[PaperJob]:
    """One for each seed: those of the spectra, unless table 2 has them."""
    jobs = trained(scale, name, encoder=encoder, **settings)  # type: ignore[arg-type]
    if jobs == trained(scale, name):
        return jobs
    records = {job.seed: job for job in _measured(scale, name, encoder, settings)}
    return [records.get(job.seed, job) for job in jobs]


def jobs(scale: Scale) -> list[PaperJob]:
    """Trainings of both encoders, and their spectra."""
    jobs_ = []
    for settings in _sets(scale).values():
        for name in _names(scale):
            for encoder in ENCODERS:
                jobs_ += _measured(scale, name, encoder, settings)
                jobs_ += _trainings(scale, name, encoder, settings)
    return list(dict.fromkeys(jobs_))


def _names(scale: Scale) -> tuple[str, ...]:
    return run_at(scale, EVOLVING)[:1] if scale == "smoke" else EVOLVING


def render(scale: Scale, results: Results) -> Rendered:
    """Return accuracies, counts, and what fewer parameters cost."""
    tables, verdicts = [], []
    all_records: list[SpectrumRecord] = []
    first: tuple[_Accuracies, _Spectra] = ({}, {})
    for title, settings in _sets(scale).items():
        accuracies = {
            (name, encoder): results.spread(_trainings(scale, name, encoder, settings), "knn")
            for name in EVOLVING
            for encoder in ENCODERS
        }
        spectra = {
            (name, encoder): records
            for encoder in ENCODERS
            for name, records in last_spectra(
                results, scale, EVOLVING, encoder=encoder, **settings
            ).items()
        }
        all_records += [record for records in spectra.values() for record in records]
        first = first if any(first) else (accuracies, spectra)
        tables += [_accuracies(title, accuracies), _counts(title, spectra)]
        verdicts += _verdicts(title, accuracies)
    return Rendered(
        tables=tables,
        verdicts=verdicts,
        pictures={"table3": functools.partial(_bars, first)},
        notes=_notes(all_records),
    )


def _accuracies(title: str, accuracies: _Accuracies) -> Sheet:
    rows = []
    for name in EVOLVING:
        column = PAPER.columns.index(PRINTED[name])
        paper = [PAPER.rows[f"{title}/{kind}"][column] for kind in (*ENCODERS, "difference")]
        large, small = (accuracies[name, encoder] for encoder in ENCODERS)
        less = f"{small.mean - large.mean:+.2f}" if large and small else None
        rows.append([name, *(f"{value:.2f}" for value in paper), shown(large), shown(small), less])
    header = ("framework", *(f"{k}, paper" for k in (*ENCODERS, "difference")))
    return Sheet((*header, *ENCODERS, "difference"), rows, f"accuracy, {title}")


def _counts(title: str, spectra: _Spectra) -> Sheet:
    rows: list[list[str | None]] = []
    for name in EVOLVING:
        for encoder in ENCODERS:
            records = spectra.get((name, encoder))
            row: list[str | None] = [None] * 6
            if records:
                row = [
                    f"{records[0].spectrum.size:,}",
                    *(
                        format_over_seeds(map(count, records))
                        for count in (count_negative, count_flat, count_above)
                    ),
                    *(
                        format_over_seeds(map(count, records), ",.0f")
                        for count in (_rather, _positive)
                    ),
                ]
            rows.append([name, encoder, *row])
    header = ("framework", "encoder", "parameters", "negative", "flat", "above")
    return Sheet(
        (*header, "eigenvalues not positive", "eigenvalues positive"), rows, f"counts, {title}"
    )


def _rather(record: SpectrumRecord) -> float:
    return record.spectrum.eigenvalues(-float("inf"), record.spectrum.zero)


def _positive(record: SpectrumRecord) -> float:
    return record.spectrum.eigenvalues(record.spectrum.zero, float("inf"))


def _verdicts(title: str, accuracies: _Accuracies) -> list[Ruling]:
    small = {name: accuracies[name, SMALLER] for name in EVOLVING}
    large = {name: accuracies[name, LARGER] for name in EVOLVING}
    return [
        *each(
            f"{title}: fewer parameters cost {{}} accuracy",
            {
                name: (
                    ahead(large[name], small[name]),
                    f"{large[name]} to {small[name]}" if large[name] and small[name] else "",
                )
                for name in EVOLVING
            },
        ),
        *(
            Ruling(
                f"{title}: with the smaller encoder MIOv3 is ahead of {other}",
                ahead(small["MIOv3"], small[other]),
                ", ".join(f"{key} {small[key]}" for key in ("MIOv3", other) if small[key]),
            )
            for other in EVOLVING
            if other != "MIOv3"
        ),
    ]


def _bars(first: tuple[_Accuracies, _Spectra]) -> Picture:
    accuracies, spectra = first

    def accuracy(encoder: str) -> Series:
        levels = [accuracies.get((name, encoder)) for name in EVOLVING]
        means = [None if s is None else s.mean for s in levels]
        deviations = [None if s is None else s.deviation for s in levels]
        return Series(encoder, EVOLVING, means, spread=deviations)

    def counted(encoder: str) -> Series:
        levels = [spread(map(_positive, spectra.get((name, encoder), ()))) for name in EVOLVING]
        means = [None if s is None else s.mean for s in levels]
        deviations = [None if s is None else s.deviation for s in levels]
        return Series(encoder, EVOLVING, means, spread=deviations)

    return charts(
        [
            Chart("accuracy", [accuracy(e) for e in ENCODERS], y="percent", kind="bars"),
            Chart("positive eigenvalues, estimated", [counted(e) for e in ENCODERS], kind="bars"),
        ]
    )


def _notes(records: list[SpectrumRecord]) -> list[str]:
    large, small = (_ENCODERS.rows[encoder] for encoder in ENCODERS)
    return [
        f"encoders: {large[0]} and {small[0]} basic blocks in each of four stages, in the paper of "
        f"about {large[2]} and {small[2]} million parameters",
        "eigenvalues are estimated by the weights of the Ritz values; positive: above 1e-4 of the "
        "largest in size. The Ritz values themselves cannot decide about H0: positive and others "
        "add up to the iterations. The paper counts none: it rejects H0 because accuracy falls",
        "the printed 84.97 of SimCLR after 500 epochs is what table 2 has for DCL after 200",
        RULE,
        *notes(records),
    ]
