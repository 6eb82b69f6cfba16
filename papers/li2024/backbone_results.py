"""The losses of tables 3 to 5 on one backbone: the measured and the printed scores."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from papers.li2024.losses import (
    BACKBONES,
    BERT,
    EFFECTIVE,
    EVERY,
    TITLES,
    TableLoss,
    untrained,
)
from papers.li2024.simulated import PAPER
from papers.machinery.artifact import Results, Scale, Table
from papers.machinery.job import PaperJob
from papers.machinery.over_seeds import by_seed, combine_by_seed, format_change, format_spread
from papers.machinery.verdicts import (
    RULE,
    UNDECIDED,
    Answer,
    BySeed,
    Spread,
    above,
    minus,
    spread,
)
from papers.paper_numbers import printed

__all__ = ["AVERAGE", "BackboneResults", "averages", "backbone_results", "notes", "tasks"]

AVERAGE = "average"  # of the seven STS tasks

Rows = Mapping[str, tuple[float | str | None, ...]]


WORDS: Mapping[Answer, str | None] = {
    True: "raises",
    False: "loses",
    UNDECIDED: UNDECIDED,
    None: None,
}


@dataclass(frozen=True)
class BackboneResults:
    """The results of one backbone at one scale.

    Metrics are named without their step: ``average`` of the STS tasks, ``transfer``, a task.
    """

    scale: Scale
    results: Results
    base: str = BERT

    @property
    def here(self) -> bool:
        """Whether this scale has it at all."""
        return self.scale == "paper" or self.base == BERT

    @property
    def end(self) -> str:
        """Which step is scored: papers take the best on the dev set."""
        return "best" if self.scale == "paper" else "last"

    @property
    def title(self) -> str:
        """The backbone, and its substitute."""
        substitute = "a stand-in" if self.here else "none at this scale"
        return TITLES[self.base] + ("" if self.scale == "paper" else f" (ours: {substitute})")

    @property
    def who(self) -> str:
        """The beginning of a claim where there are several backbones."""
        return f"{TITLES[self.base]}: " if self.scale == "paper" else ""

    def named(self, artifact: str) -> str:
        """The file of its picture."""
        return artifact if self.base == BERT else f"{artifact}-{self.base}"

    def of(self, loss: TableLoss, metric: str = AVERAGE, *, step: str | None = None) -> BySeed:
        """Return the final scores of training with a loss."""
        return self.end_of(loss.jobs(self.scale, self.base, step=step), metric)

    def end_of(self, jobs: Sequence[PaperJob], metric: str = AVERAGE) -> BySeed:
        """Return the final scores of trainings."""
        return by_seed(self.results, jobs, f"{metric} {self.end}")

    def start(self, metric: str = AVERAGE) -> float | None:
        """Return the scores of the encoder before training."""
        scores = by_seed(self.results, untrained(self.scale, self.base), f"{metric} first")
        return next(iter(scores.values()), None)

    def gain(self, loss: TableLoss, metric: str = AVERAGE) -> Spread | None:
        """Return the change by training."""
        return minus(self.of(loss, metric), self.start(metric))

    def change(self, loss: TableLoss, metric: str = AVERAGE) -> str | None:
        """Return ``raises``, ``loses`` or ``undecided``."""
        return WORDS[above(self.gain(loss, metric))]

    def ahead(
        self, a: Sequence[TableLoss], b: Sequence[TableLoss], metric: str = AVERAGE
    ) -> Spread | None:
        """Return the lowest of some losses minus the highest of others."""
        low, high = ([self.of(loss, metric) for loss in losses] for losses in (a, b))
        return minus(combine_by_seed(min, low), combine_by_seed(max, high))

    def level(
        self, a: Sequence[TableLoss], b: Sequence[TableLoss], metric: str = AVERAGE
    ) -> Spread | None:
        """Return the mean of some losses minus the mean of others."""
        first, second = ([self.of(loss, metric) for loss in losses] for losses in (a, b))
        return minus(
            combine_by_seed(statistics.fmean, first), combine_by_seed(statistics.fmean, second)
        )

    def reach(self, metric: str = AVERAGE) -> Spread | None:
        """Return the highest of all losses minus the lowest."""
        scores = [self.of(loss, metric) for loss in EVERY]
        return minus(combine_by_seed(max, scores), combine_by_seed(min, scores))

    def evidence(self, losses: Sequence[TableLoss], metric: str = AVERAGE) -> str:
        """Return the change by training with each loss, as text."""
        changes = [(loss.name, format_change(self.gain(loss, metric))) for loss in losses]
        return ", ".join(f"{name} {change}" for name, change in changes if change)


def backbone_results(scale: Scale, results: Results) -> list[BackboneResults]:
    """Return both backbones."""
    return [BackboneResults(scale, results, base) for base in BACKBONES]


def averages(of: BackboneResults, metric: str, table: str, column: str) -> Table:
    """Return a row for each loss: the paper's average beside ours, and the verdict.

    Args:
        of: a backbone.
        metric: ``average`` or ``transfer``.
        table: of the printed numbers; its gains are in ``TABLE-gains``.
        column: of the printed numbers of the untrained encoder.
    """
    before = printed(PAPER, "table3-earlier")
    printed_rows, gains = (printed(PAPER, name).rows for name in (table, f"{table}-gains"))
    start = of.start(metric)
    start_text = None if start is None else f"{start:.2f}"
    first = before.rows[f"{of.base}/pretrained"][before.columns.index(column)]
    rows: list[list[str | None]] = [["untrained", *_text([first]), start_text, "-", "-"]]
    for loss in EVERY:
        paper = _printed_average(printed_rows, gains, f"{of.base}/", loss.row)
        measured, gain = spread(of.of(loss, metric).values()), of.gain(loss, metric)
        rows.append(
            [
                loss.name,
                paper,
                format_spread(measured),
                format_change(gain),
                of.change(loss, metric),
            ]
        )
    header = ["loss", "paper (gain by modification)", "ours", "against untrained", "verdict"]
    return Table(header, rows, title=f"{of.title}: average")


def _printed_average(averages: Rows, gains: Rows, base: str, row: str) -> str:
    """An original's is its modified form's without the gain, which has one digit."""
    if base + row in gains:
        return f"{averages[base + row][-1]:.2f} ({gains[base + row][-1]:+.1f})"
    if base + row in averages:
        return f"{averages[base + row][-1]:.2f}"
    after, gain = (float(str(of[f"{base}modified{row}"][-1])) for of in (averages, gains))
    return f"{after - gain:.1f}"


def tasks(of: BackboneResults, names: Sequence[str], table: str) -> Table:
    """Return a row for each loss and who measured it: every task."""
    printed_rows = printed(PAPER, table).rows
    rows: list[list[str | None]] = []
    for loss in EVERY:
        row = f"{of.base}/{loss.row}"
        if row in printed_rows and printed_rows[row][0] is not None:
            rows.append([loss.name, "paper", *_text(printed_rows[row])[:-1]])
        levels = [spread(of.of(loss, name).values()) for name in names]
        rows.append([loss.name, "ours", *map(format_spread, levels)])
    return Table(["loss", "whose", *names], rows, title=f"{of.title}: each task")


def _text(row: Sequence[float | str | None], form: str = ".2f") -> list[str]:
    return ["-" if value is None else format(value, form) for value in row]


def notes(scale: Scale) -> list[str]:
    """Return the differences of these trainings from the paper's, and the rule of the verdicts."""
    settings = EFFECTIVE[0].jobs(scale)[0].settings
    ours_note = (
        f"ours: {settings['encoder']}, {settings.get('max_steps')} steps of "
        f"{settings['batch_size']} at {settings['learning_rate']:g} for every "
        "loss, scored after the last; paper: BERT-base and RoBERTa-base, "
        "a million sentences, rates of their own, scored where dev is best"
    )
    paper_note = (
        "the released code freezes the embedding layers, has a head without activation and picks "
        "the best of every 125 steps: here all layers train, the head is SimCSE's, and the "
        "best is of the steps that are kept"
    )
    return [
        paper_note if scale == "paper" else ours_note,
        "trained is the form of the released code, with which the paper's numbers were measured: "
        "see table 2",
        f"{RULE}",
    ]
