"""Table 1: averages of STS and of transfer after training with each of the seven losses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table
from papers.machinery.job import PaperJob
from papers.machinery.over_seeds import by_seed, format_change, format_changes, format_spread
from papers.machinery.recipes import SEEDS
from papers.machinery.verdicts import (
    RULE,
    BySeed,
    Spread,
    Verdict,
    above,
    all_of,
    below,
    minus,
    negated,
    spread,
)
from papers.nie2023.losses import (
    DECOUPLED,
    NAMES,
    PAPER,
    backbones,
    end,
    trained,
    untrained,
)
from papers.paper_numbers import printed

if TYPE_CHECKING:
    from isotrope.reports.surfaces import Picture

METRICS = {"average": "STS", "transfer": "TR"}
MARGINS = {"bert-large": ("mpt",)}
"""Losses with a margin whose printed rows can be believed: of BERT-large not MET's and MAT's."""


@dataclass(frozen=True)
class BackboneScores:
    """What there is of one backbone at one scale."""

    scale: Scale
    results: Results
    base: str

    @property
    def margins(self) -> tuple[str, ...]:
        """Losses with a margin that the paper supports a claim on."""
        return MARGINS.get(self.base, ("mpt", "met", "mat"))

    def of(self, objective: str, metric: str = "average") -> BySeed:
        """Return a score by seed; of ``untrained`` the same for every seed."""
        if objective != "untrained":
            trainings = trained(self.scale, objective, self.base)
            return by_seed(self.results, trainings, f"{metric} {end(self.scale)}")
        first = by_seed(self.results, untrained(self.scale, self.base), f"{metric} first")
        return {seed: value for value in first.values() for seed in SEEDS[self.scale]}

    def over(self, a: str, b: str, metric: str = "average") -> Spread | None:
        """Return the difference of two losses."""
        return minus(self.of(a, metric), self.of(b, metric))

    def printed(self, objective: str, metric: str = "average") -> float:
        """Return the paper's number."""
        row = "pretrained" if objective == "untrained" else objective
        paper = printed(PAPER, "table1")
        return float(paper.rows[f"{self.base}/{row}"][list(METRICS).index(metric)] or 0)


def jobs(scale: Scale) -> list[PaperJob]:
    """Seven losses on every backbone that a scale has, and the encoders as they were."""
    jobs_of_table = []
    for base in backbones(scale):
        jobs_of_table += untrained(scale, base)
        jobs_of_table += [job for objective in NAMES for job in trained(scale, objective, base)]
    return jobs_of_table


def render(scale: Scale, results: Results) -> Rendered:
    """Return the averages beside the paper's, and what becomes of its claims."""
    backbone_scores = [BackboneScores(scale, results, base) for base in backbones(scale)]
    return Rendered(
        tables=[_table(of) for of in backbone_scores],
        verdicts=[verdict for of in backbone_scores for verdict in _verdicts(of)],
        pictures={"table1": partial(_drawn, backbone_scores)},
        notes=_notes(scale),
    )


def _table(of: BackboneScores) -> Table:
    rows: list[list[str | None]] = []
    for objective in ("untrained", *NAMES):
        row: list[str | None] = [NAMES.get(objective, objective)]
        for metric in METRICS:
            scores = spread(of.of(objective, metric).values())
            row += [f"{of.printed(objective, metric):.2f}", format_spread(scores)]
        rows.append([*row, *_against_infonce(of, objective)])
    header = [f"{name}, {whose}" for name in METRICS.values() for whose in ("paper", "ours")]
    title = of.base if of.scale == "paper" else f"paper: {of.base}; ours: its stand-in"
    return Table(["loss", *header, "ours against InfoNCE", "verdict"], rows, title=title)


def _against_infonce(of: BackboneScores, objective: str) -> tuple[str | None, str | None]:
    """The difference in STS, and whether it is on the paper's side of InfoNCE."""
    if objective == "infonce":
        return "-", "-"
    change = of.over(objective, "infonce")
    if change is None:
        return None, None
    if objective in ("met", "mat") and objective not in of.margins:
        return format_change(change), "-"
    same = above if of.printed(objective) > of.printed("infonce") else below
    return format_change(change), "as in the paper" if same(change) else "otherwise"


def _verdicts(of: BackboneScores) -> list[Verdict]:
    on = "" if of.scale != "paper" else f" on {of.base}"
    three = ("infonce", *DECOUPLED)
    gains = {NAMES[o]: of.over(o, "untrained") for o in three}
    behind = {NAMES[o]: of.over("infonce", o) for o in DECOUPLED}
    plus = {"DCL+ over DCL": of.over("dclplus", "dcl")}
    level = {NAMES[o]: of.over(o, "infonce") for o in of.margins}
    ahead = {f"{NAMES[o]} over {NAMES[d]}": of.over(o, d) for o in of.margins for d in DECOUPLED}
    transfer = {NAMES[o]: of.over(o, "infonce", "transfer") for o in DECOUPLED}
    more = {NAMES[o]: minus(_gain(of, o, "average"), _gain(of, o, "transfer")) for o in three}
    printed_gain = of.printed("dclplus") - of.printed("dcl")
    return [
        _every(f"InfoNCE and its decoupled forms raise STS{on}", gains),
        _every(f"InfoNCE ends above both decoupled forms in STS{on}", behind),
        _every(f"they gain more in STS than in transfer{on}", more),
        Verdict(
            f"the decoupled forms are not below InfoNCE in transfer{on}",
            all_of(negated(below(change)) for change in transfer.values()),
            format_changes(transfer),
        ),
        _every(
            f"cutting DCL off at 0 (DCL+) raises STS{on}", plus, f"; paper: +{printed_gain:.2f}"
        ),
        Verdict(
            f"losses with a margin are not below InfoNCE in STS{on}",
            all_of(negated(below(change)) for change in level.values()),
            format_changes(level),
        ),
        _every(f"losses with a margin end above the decoupled forms in STS{on}", ahead),
    ]


def _gain(of: BackboneScores, objective: str, metric: str) -> BySeed:
    before = of.of("untrained", metric)
    after = of.of(objective, metric)
    return {seed: after[seed] - before[seed] for seed in after if seed in before}


def _every(claim: str, changes: Mapping[str, Spread | None], more: str = "") -> Verdict:
    """Hold a claim that each of some differences is positive."""
    text = format_changes(changes)
    holds = all_of(above(change) for change in changes.values())
    return Verdict(claim, holds, text + more if text else "")


def _notes(scale: Scale) -> list[str]:
    settings = trained(scale, "dcl")[0].settings
    tasks = [name for name in settings["scores"] if name != "sts"]
    ours_note = (
        f"ours: {settings['encoder']}, {settings.get('max_steps')} steps of "
        f"{settings['batch_size']} at {settings['learning_rate']:g} for every loss, "
        "hyperparameters of table 2's column bert-base, "
        "scored after the last step; paper: a million sentences, the best step on STS-B dev"
    )
    paper = (
        f"dev is scored every {settings['keep_every']:,} steps (paper: 125): "
        "each is a kept checkpoint; "
        "the paper's row of the untrained BERT is of another pooling than the trained encoders'"
    )
    return [
        paper if scale == "paper" else ours_note,
        f"TR: average of {', '.join(tasks)} ({settings['mode']} mode)",
        "the column verdict says whether a loss is on the paper's side of InfoNCE in STS",
        RULE,
        *printed(PAPER, "table1").notes,
        *printed(PAPER, "claims").notes,
        "section 2.3 also finds the decoupled forms as good as InfoNCE in transfer, or better; DCL "
        "on BERT-base is printed with 85.18 against 86.38",
    ]


def _drawn(all_scores: Sequence[BackboneScores]) -> "Picture":
    from papers.plots.charts import Chart, Series, charts

    panels = []
    for of in all_scores:
        for metric, name in METRICS.items():
            spreads = [spread(_gain(of, objective, metric).values()) for objective in NAMES]
            y = [None if level is None else level.mean for level in spreads]
            error = [None if level is None else level.deviation for level in spreads]
            title = f"{name}, {of.base}" if len(all_scores) > 1 else name
            bars = Series("", list(NAMES.values()), y, error)
            panels.append(Chart(title, [bars], y="gain over the untrained", kind="bars"))
    return charts(panels, columns=2)


ARTIFACT = Artifact(
    title="table 1: STS and transfer averages after training with seven losses",
    jobs=jobs,
    render=render,
)
