"""Figure 4: MIOv3's spectrum against those of other frameworks; three verdicts of section 3.4."""

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import RULE, Ruling, above, minus
from papers.manna2023.frameworks import at_end, run_at
from papers.manna2023.spectra import (
    SpectrumRecord,
    around_zero,
    by_seed,
    count_negative,
    draw_panels,
    first_seeds,
    format_over_seeds,
    largest_eigenvalue,
    last_spectra,
    no_minimum,
    notes,
    spread_of_batches,
    table,
)
from papers.paper_numbers import printed

PANELS = {
    "(a)": ("MIOv3", "SimCLR", "Barlow Twins"),
    "(b)": ("MIOv3", "SimCLR", "DCL", "DCLW"),
    "(c)": ("MIOv3", "DCL", "BYOL"),
}
FRAMEWORKS = tuple(dict.fromkeys(name for names in PANELS.values() for name in names))
PAPER = printed("mio", "figure4").rows
SHARP = float(PAPER["byol/some eigenvalues above"][0] or 0)
HALF = float(PAPER["negative eigenvalues over miov3's, below"][0] or 0)
_MANY = 10  # of 100: the paper says "a large number"


def jobs(scale: Scale) -> list[PaperJob]:
    """One spectrum of each framework."""
    return [job for name in run_at(scale, FRAMEWORKS) for job in at_end(scale, name)]


def render(scale: Scale, results: Results) -> Rendered:
    """Draw the three panels and all together, and test the claims of section 3.4."""
    records = last_spectra(results, scale, FRAMEWORKS)
    all_records = [record for group in records.values() for record in group]
    count = len(jobs(scale))
    noise = spread_of_batches(results, scale, count_negative)
    first = {record.name: record for record in first_seeds(records)}
    panels = {p: [first[n] for n in names if n in first] for p, names in PANELS.items()}
    panels |= {name: [record] for name, record in first.items()}  # each on axes of its own
    return Rendered(
        tables=[table(all_records)],
        verdicts=[
            no_minimum(all_records, "no framework ends in a minimum", count),
            around_zero("most eigenvalues of every framework lie around zero", all_records, count),
            _sharp(records),
            *(_fewer(records, name, noise) for name in ("BYOL", "DCL", "DCLW")),
            *(_above(records, name) for name in ("DCL", "DCLW")),
        ],
        pictures={"figure4": draw_panels(panels, lambda record: record.name)},
        notes=[
            *notes(scale, all_records),
            f"section 3.4 names no number for its large number of eigenvalues: {_MANY} of 100 are "
            "taken for one, in every seed; fewer than half is decided with two standard deviations "
            "over batches, too",
            RULE,
        ],
    )


def _sharp(records: dict[str, list[SpectrumRecord]]) -> Ruling:
    claim = f"BYOL has eigenvalues above {SHARP:g}"
    if "BYOL" not in records:
        return Ruling(claim, None)
    tops = {name: by_seed(group, largest_eigenvalue) for name, group in records.items()}
    measured = [name for name in ("BYOL", "MIOv3") if name in tops]
    evidence = ", ".join(f"{name} {format_over_seeds(tops[name].values())}" for name in measured)
    return Ruling(claim, above(minus(tops["BYOL"], SHARP)), f"lambda_max: {evidence}")


def _fewer(records: dict[str, list[SpectrumRecord]], name: str, noise: float | None) -> Ruling:
    claim = f"{name} has less than half as many negative eigenvalues as MIOv3"
    if name not in records or "MIOv3" not in records:
        return Ruling(claim, None)
    counts, reference = (by_seed(records[n], count_negative) for n in (name, "MIOv3"))
    half = {seed: HALF * count for seed, count in reference.items()}
    evidence = (
        f"{format_over_seeds(counts.values())} against "
        f"{format_over_seeds(reference.values())} Ritz values"
    )
    return Ruling(claim, above(minus(half, counts), 2 * (noise or 0.0)), evidence)


def _above(records: dict[str, list[SpectrumRecord]], name: str) -> Ruling:
    claim = f"{name} has many eigenvalues above all but one of MIOv3's"
    if name not in records or "MIOv3" not in records:
        return Ruling(claim, None)
    seconds = by_seed(records["MIOv3"], lambda record: float(record.spectrum.probes[0].values[-2]))
    counts = {
        record.seed: record.spectrum.count(seconds[record.seed], float("inf"))
        for record in records[name]
        if record.seed in seconds
    }
    if not counts:
        return Ruling(claim, None)
    evidence = f"{format_over_seeds(counts.values())} above {format_over_seeds(seconds.values())}"
    return Ruling(claim, min(counts.values()) >= _MANY, evidence)


ARTIFACT = Artifact(
    title="figure 4: the spectrum of MIOv3 against those of other frameworks",
    jobs=jobs,
    render=render,
)
