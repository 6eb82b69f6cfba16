"""Three losses as probes of any training, on train and dev: figures 3c and 3d.

InfoNCE at tau = .05, alignment at alpha = 2 and uniformity at t = 2 are measured at every kept
step, whatever is trained. A curve begins at the first of them after the untrained encoder, from
which all fall so far that nothing else would show. It *falls* if its lowest value lies below its
first one, and *rises* if its last lies above the lowest, by more than a twentieth of its range,
over the seeds by ``verdicts.RULE``. One that falls and then rises on the dev set is the overfitting
that the paper speaks of.
"""

import itertools
from collections.abc import Iterable, Sequence
from functools import partial

from isotrope.reports import Picture
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.logged import by_seed, number, rows_of, steps
from papers.machinery.recipes import smaller_text
from papers.machinery.verdicts import (
    RULE,
    UNDECIDED,
    Ruling,
    above,
    all_of,
    minus,
    shown,
    signed_each,
    spread,
)
from papers.nie2023.losses import MARGINS, PAPER, end, with_margin
from papers.paper_numbers import printed
from papers.plots.charts import Chart, Series, charts

SYMBOLS = {"contrastive": "L_cl", "alignment": "L_align", "uniformity": "L_uniform"}
SIDES = ("train", "dev")
TRAIN = tuple(f"train {probe}" for probe in SYMBOLS)
DEV = tuple(f"dev {probe}" for probe in SYMBOLS)

AGAIN, STAYS, RISES, STILL = "falls, then rises", "falls and stays", "rises", "stays"
_CLEARLY = 0.05  # of the range of a curve
SMALL, BEST, _ = MARGINS


def jobs_of_figure3c(scale: Scale) -> list[PaperJob]:
    """Return MPT with the small margin, and with the best one to compare it with."""
    return [*with_margin(scale, SMALL), *with_margin(scale, BEST)]


def figure3c(scale: Scale, results: Results) -> Rendered:
    """Show the curves of the small margin, and how their ends differ from the best one's."""
    ends = {
        (margin, side, probe): by_seed(
            results, with_margin(scale, margin), "last", f"{side} {probe}"
        )
        for margin, side, probe in itertools.product((SMALL, BEST), SIDES, SYMBOLS)
    }
    more = {
        f"{side} {probe}": minus(ends[SMALL, side, probe], ends[BEST, side, probe])
        for probe in ("contrastive", "uniformity")
        for side in SIDES
    }
    wider = {}
    for side in SIDES:  # by how much the difference in uniformity is larger than in alignment
        sizes = []
        for probe in ("uniformity", "alignment"):
            a, b = ends[SMALL, side, probe], ends[BEST, side, probe]
            sizes.append({seed: abs(a[seed] - b[seed]) for seed in a if seed in b})
        wider[side] = minus(*sizes)
    less = signed_each(wider, 3)
    align = {s: minus(ends[SMALL, s, "alignment"], ends[BEST, s, "alignment"]) for s in SIDES}
    verdicts = [
        Ruling(
            f"m = {SMALL:.2f} leaves L_cl and L_uniform higher than m = {BEST:.2f}, on both sets",
            all_of(above(change) for change in more.values()),
            signed_each(more, 3),
        ),
        Ruling(
            "the two margins differ less in L_align than in L_uniform, on both sets (ours; the "
            "paper: L_align remains almost constant)",
            all_of(above(change) for change in wider.values()),
            f"how much less: {less}; L_align: {signed_each(align, 3)}" if less else "",
        ),
    ]
    return _probed(scale, results, "figure3c", SMALL, verdicts)


def jobs_of_figure3d(scale: Scale) -> list[PaperJob]:
    """Return MPT as in table 1."""
    return with_margin(scale, BEST)


def figure3d(scale: Scale, results: Results) -> Rendered:
    """Show the curves of the best margin and how they go."""
    courses = {probe: course(results, with_margin(scale, BEST), probe) for probe in (*TRAIN, *DEV)}
    claims = {
        "m = .23 does not overfit: on dev no probe falls and then rises": (
            DEV,
            (STAYS, RISES, STILL),
        ),
        "with m = .23 L_cl falls and stays down, on both sets": ((TRAIN[0], DEV[0]), (STAYS,)),
    }
    verdicts = []
    for claim, (probes, wanted) in claims.items():
        words = {probe: courses[probe] for probe in probes}
        holds = all_of(w if w in (None, UNDECIDED) else w in wanted for w in words.values())
        told = [f"{_name(probe)} {word}" for probe, word in words.items() if word is not None]
        verdicts.append(Ruling(claim, holds, ", ".join(told)))
    return _probed(scale, results, "figure3d", BEST, verdicts)


def _probed(
    scale: Scale, results: Results, name: str, margin: float, verdicts: Sequence[Ruling]
) -> Rendered:
    """Return table and picture of the curves of one training."""
    jobs = with_margin(scale, margin)
    rows = []
    for probe in (*TRAIN, *DEV):
        before = _curves(results, jobs, probe, trained=False)
        curves = _curves(results, jobs, probe, trained=True)
        levels = [
            spread(values[0] for values in before),
            spread(values[0] for values in curves),
            spread(min(values) for values in curves),
            spread(values[-1] for values in curves),
        ]
        word = course(results, jobs, probe)
        rows.append([_name(probe), *(shown(level, 3) for level in levels), word])
    header = ["probe", "untrained", "first", "lowest", "last", "course"]
    drawn = {name: partial(_drawn, results, jobs)}
    return Rendered([Sheet(header, rows)], verdicts, drawn, notes(scale, jobs))


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
    values_by_seed = [
        [number(row, probe) for row in rows_of(results, job) if (row["step"] > 0) == trained]
        for job in trainings
    ]
    measured = [[value for value in values if value is not None] for values in values_by_seed]
    return [values for values in measured if values]


def _name(probe: str) -> str:
    side, symbol = probe.split()
    return f"{SYMBOLS[symbol]} on {side}"


def _drawn(results: Results, jobs: Sequence[PaperJob]) -> Picture:
    panels = []
    for probe, symbol in SYMBOLS.items():
        lines = [Series(side, *steps(results, jobs, f"{side} {probe}")) for side in SIDES]
        panels.append(Chart(symbol, lines, x="step", y=symbol))
    return charts(panels)
