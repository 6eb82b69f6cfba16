"""Three losses as probes of any training, on train and dev, for figures 1b-d and 3c-e.

InfoNCE at tau = .05, alignment at alpha = 2 and uniformity at t = 2 are measured at every kept
step, whatever is trained. A curve begins at the first of them after the untrained encoder, from
which all fall so far that nothing else would show. It *falls* if its lowest value lies below its
first one, and *rises* if its last lies above the lowest, by more than a twentieth of its range,
over the seeds by ``verdicts.RULE``. One that falls and then rises on the dev set is the overfitting
that the paper speaks of.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.logged import Row, by_step, curve
from papers.machinery.recipes import smaller_text
from papers.machinery.verdicts import RULE, UNDECIDED, Ruling, Spread, above, all_of, spread
from papers.nie2023.losses import PAPER, end
from papers.paper_numbers import printed

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture


SYMBOLS = {"contrastive": "L_cl", "alignment": "L_align", "uniformity": "L_uniform"}
TRAIN = tuple(f"train {probe}" for probe in SYMBOLS)
DEV = tuple(f"dev {probe}" for probe in SYMBOLS)

AGAIN, STAYS, RISES, STILL = "falls, then rises", "falls and stays", "rises", "stays"
NOT_AGAIN = (STAYS, RISES, STILL)
_CLEARLY = 0.05  # of the range of a curve


@dataclass(frozen=True)
class CurveClaim:
    """That curves take one of some courses.

    Attributes:
        text: the claim.
        probes: whose curves.
        courses: those of which each must take one.
    """

    text: str
    probes: Sequence[str]
    courses: Sequence[str]


def probed(
    scale: Scale,
    results: Results,
    name: str,
    trainings: Sequence[PaperJob],
    claims: Sequence[CurveClaim],
) -> Rendered:
    """Return the curves of one training, and what becomes of claims on them."""
    courses = {probe: course(results, trainings, probe) for probe in (*TRAIN, *DEV)}
    return Rendered(
        tables=[_table(results, trainings, courses)],
        verdicts=[_decided(claim, courses) for claim in claims],
        pictures={name: partial(_drawn, results, trainings)},
        notes=notes(scale, trainings),
    )


def course(results: Results, trainings: Iterable[PaperJob], probe: str) -> str | None:
    """Return how a curve goes: one of four words; None if it was not measured."""
    falls, rises = [], []
    for values in _curves(results, trainings, probe, trained=True):
        span = max(values) - min(values) or 1.0
        falls.append((values[0] - min(values)) / span - _CLEARLY)
        rises.append((values[-1] - min(values)) / span - _CLEARLY)
    if not falls:
        return None
    words = {(True, True): AGAIN, (True, False): STAYS, (False, True): RISES, (False, False): STILL}
    fall, rise = above(spread(falls)), above(spread(rises))
    return UNDECIDED if UNDECIDED in (fall, rise) else words[fall is True, rise is True]


def notes(scale: Scale, trainings: Sequence[PaperJob]) -> list[str]:
    """Return how the curves were measured, and what the paper's are."""
    settings = trainings[0].settings
    length = f"{settings['max_steps']} steps" if "max_steps" in settings else "one pass"
    whose = (
        "the last sentences of the file that is trained on"
        if end(scale) == "best"
        else "the last of the sentences trained on, which are passed over six times"
        if settings.get("held_from") == "trained"
        else "sentences that follow those trained on (in one pass a training batch is as new)"
    )
    return [
        *smaller_text(scale, trainings[0]),
        f"probes are the same for every loss: InfoNCE at tau = .05, alpha = 2, t = 2, every "
        f"{settings['keep_every']:,} steps of {length}, on the encoder without a head",
        "a curve is judged from its first value after training began: the untrained encoder is so "
        "far above that no rise would show beside it",
        RULE,
        f"train: {whose}, in two views by dropout; dev: up to 256 pairs of the dev set of STS-B "
        "scored above 4",
        "the paper's figure has curves without numbers in the text; the alignment that the "
        "released code logs in training compares sentences instead of views, and is not copied",
        f"hyperparameters are those of {printed(PAPER, 'table2').source}, column bert-base"
        + ("" if end(scale) == "best" else "; learning rate and batch size are the scale's"),
    ]


def _curves(
    results: Results, trainings: Iterable[PaperJob], probe: str, *, trained: bool
) -> list[list[float]]:
    """One list of values for each seed that has them: of the trained encoder, or else before."""
    results_run = [result for job in trainings if (result := results.get(job))]
    rows = [
        [row for row in r.details["looks"] if (row["step"] > 0) == trained] for r in results_run
    ]
    values_by_row = [[row.get(probe) for row in rows_of_seed] for rows_of_seed in rows]
    measured = [[float(value) for value in values if value is not None] for values in values_by_row]
    return [values for values in measured if values]


def _table(
    results: Results, trainings: Sequence[PaperJob], courses: Mapping[str, str | None]
) -> Sheet:
    rows: list[list[str | None]] = []
    for probe, word in courses.items():
        before = _curves(results, trainings, probe, trained=False)
        curves = _curves(results, trainings, probe, trained=True)
        numbers = [
            spread(values[0] for values in before),
            spread(values[0] for values in curves),
            spread(min(values) for values in curves),
            spread(values[-1] for values in curves),
        ]
        rows.append([_name(probe), *map(_text, numbers), word])
    return Sheet(["probe", "untrained", "first", "lowest", "last", "course"], rows)


def _decided(claim: CurveClaim, courses: Mapping[str, str | None]) -> Ruling:
    words = {probe: courses[probe] for probe in claim.probes}
    holds = all_of(
        word if word in (None, UNDECIDED) else word in claim.courses for word in words.values()
    )
    words_by_probe = [f"{_name(probe)} {word}" for probe, word in words.items() if word is not None]
    return Ruling(claim.text, holds, ", ".join(words_by_probe))


def _name(probe: str) -> str:
    side, symbol = probe.split()
    return f"{SYMBOLS[symbol]} on {side}"


def _text(value: Spread | None) -> str | None:
    return None if value is None else value.text(3)


def _drawn(results: Results, trainings: Sequence[PaperJob]) -> "Picture":
    from papers.plots.charts import Chart, charts

    panels = []
    for probe, symbol in SYMBOLS.items():
        readers = {side: partial(_read, f"{side} {probe}") for side in ("train", "dev")}
        lines = [curve(side, by_step(results, trainings, read)) for side, read in readers.items()]
        panels.append(Chart(symbol, lines, x="step", y=symbol))
    return charts(panels)


def _read(probe: str, row: Row) -> float | None:
    return row.get(probe)
