"""The page that says whether the papers replicate, and its forest plot: docs/replication.md.

Written by `make docs` from papers/claims.toml and from what has been measured.
"""

import math
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import get_args

from docs.generate.errata_page import errata
from docs.generate.objective_pages import grid
from isotrope.core.files import atomic_replace
from papers import image_claims, text_protocol
from papers.machinery.claims import Claim, claims, judge_claim, reference_encoder
from papers.machinery.data_registry import RAW
from papers.machinery.rule import MOST, ClaimJudgement, Word
from papers.machinery.store import JobStore
from papers.text_command import stored

__all__ = [
    "claims_page",
    "forest_plot",
    "judged_claims",
    "missing_trainings",
    "other_encoders",
    "replication_page",
    "write_replication_page",
]

ROOT = Path(__file__).parents[2]
_TEXT = ROOT / "papers" / "results" / "text"
_IMAGES = ROOT / "docs" / "results" / "reproduce" / "cells"
_TABLES = {
    "Draganov et al. 2024, table 2": "results/reproduce/cosine-pitfalls/table2.md",
    "Draganov et al. 2024, table 3": "results/reproduce/cosine-pitfalls/table3.md",
    "Manna et al. 2023, table 2": "results/reproduce/mio/table2.md",
}
_REASONS: dict[str, str] = {
    "undecided": "the interval holds both no effect and one that matters",
    "contradicted": "the effect that matters is outside the interval",
    "same direction, weaker": "less than {least} is within the interval",
    "replicated": "at least {least}",
}

_LOST = f"{RAW}-seed0"
_UNMEASURED = "not measured yet"
_NEVER_FELL = "in no seed does it fall in every training, so no share of a fall can be lost again"

_SHORT: dict[str, str] = {
    "Li et al. 2024": "Exchanging all [components](notation.md) of a loss gains {li-table3-mhe}, "
    "{li-table3-barlowtwins} and {li-table3-vicreg} STS points for MHE, Barlow Twins and VICReg "
    "(paper: 15.8, 12.7, 12.7), all of it by the weight, and {li-table3-mhs} for MHS (5.5). How "
    "much, and for MHS whether anything, depends on the [encoder](#on-other-encoders).",
    "Nie et al. 2023": "InfoNCE ends above DCL and above alignment and uniformity. MET and MAT do "
    "not end above InfoNCE; most of what else a margin or a cut-off adds is too small to tell.",
    "Manna et al. 2023": "MIOv3 is ahead of its earlier versions and of four other losses, and not "
    "clearly of SimCLR.",
    "Draganov et al. 2024": "Cut weights learn faster for SimCLR and BYOL, at a thirtieth of their "
    "learning rates.",
}
_PAGE = """# Do the papers replicate?

In part. {counts}

{short}

![The measured effects over the papers' effects, with their intervals](replication.svg)

The {shown} claims that the papers are read for (effective: InfoNCE, ArcCon, MPT, MET; †: images):

{headline}

Differences are over n paired seeds, in points out of 100, with Student's 90% interval (95% where n
is 15). An effect *matters* from a quarter of the paper's; *weaker* is above 0, but perhaps not
above that quarter ([all of the rule](results/claims.md#how-a-verdict-is-reached)).{waiting}

## What it was measured on

- **Text**: BERTs [made from scratch](reproduce.md#sentence-embeddings-on-raw-encoders), with one
  tuning budget for every loss; verdicts are of `{encoder}` ({whitening}).
- **Images**: ResNet-18 with 16 channels on 5,000 images of CIFAR-10, 4 or 8 epochs.
{others}
## Behind it

- [All {total} claims](results/claims.md) that trainings decide.
- [Errata](errata.md): {errata} places where a paper, or its code, is proven wrong; not counted.
- [Tables and figures](results/reproduce/verdicts.md): simulations, small trainings, self-checks.
- `python -m papers bench my_loss.py`: a loss of your own beside those of the papers.
"""
_ALL = """# All claims that trainings decide

Written by `make docs`; [the claims that the papers are read for](../replication.md) are on one
screen. {counts}{waiting}

{every}

## How a verdict is reached

A difference is over n paired seeds and has Student's 90% interval. Claims about text that five
seeds leave undecided are judged once more, on 15 seeds with the 95% interval; linked tables have
the first five. Differences are in points out of 100, but for cosines (*positives end closer*) and
shares of a fall (*rises again*, *stays down*).

An effect matters from a quarter of the paper's; where the paper prints no number, from the smallest
effect that was set beforehand. A claim is *replicated* where the whole interval is at that or more;
*same direction, weaker* where it is all above 0, but not above that; *contradicted* where it is all
below that, and not all above 0; else *undecided* ([rule](../../papers/machinery/rule.py),
[claims](../../papers/claims.toml)). Rows about text were committed before their trainings, those
about images (†) after them.
"""

Judged = Sequence[tuple[Claim, ClaimJudgement]]


def judged_claims() -> Judged:
    """Return every claim with its verdict on what there is."""
    images = image_claims.measured(JobStore(_IMAGES).find)
    text = _judged_on(reference_encoder(), _TEXT)
    return [
        (claim, text[claim.id] if claim.on == "text" else judge_claim(claim, images))
        for claim in claims()
    ]


def _judged_on(encoder: str, results: Path) -> dict[str, ClaimJudgement]:
    measured = text_protocol.measured(encoder, stored(encoder, results))
    return {claim.id: judge_claim(claim, measured) for claim in claims() if claim.on == "text"}


def other_encoders(results: Path) -> str:
    """Return the headline claims on the other encoders that were trained; nothing without any.

    Args:
        results: holds a folder for each encoder.
    """
    names = sorted(cells.parent.name for cells in results.glob("*/cells"))
    judged = {n: _judged_on(n, results) for n in names if n != reference_encoder()}
    judged = {n: of for n, of in judged.items() if any(j.change for j in of.values())}
    if not judged:
        return ""
    rows = [
        [
            claim.headline,
            *(_measured_and_judged(of[claim.id]) for of in judged.values()),
        ]
        for claim in claims()
        if claim.headline
        and claim.on == "text"
        and any(of[claim.id].change is not None for of in judged.values())
    ]
    header = ["claim", *map(_described, judged)]
    return f"\n## On other encoders\n\n{grid(header, rows).rstrip()}\n"


def _described(encoder: str) -> str:
    """An encoder and what its trainings are tuned on."""
    if (tuned := text_protocol.tuned_on(encoder)) != encoder:
        return f"{encoder} (settings of {tuned}: nothing was chosen on it)"
    if encoder == _LOST:
        return f"{encoder} (an earlier one, tuned by itself; its weights were not kept)"
    return encoder


def replication_page(judged: Judged) -> str:
    """Return the page in Markdown."""
    return _PAGE.format(
        total=len(judged),
        counts=_counts(judged),
        headline=_table([row for row in judged if row[0].headline]),
        encoder=reference_encoder(),
        errata=len(errata()),
        others=other_encoders(_TEXT),
        short=_short(judged),
        shown=sum(bool(claim.headline) for claim, _ in judged),
        waiting=missing_trainings(_TEXT),
        whitening=_whitening(),
    )


def _short(judged: Judged) -> str:
    """Say of each paper what became of it, in a line; test_replication.py holds the words to it."""
    means = {claim.id: judgement.change.mean for claim, judgement in judged if judgement.change}
    numbers = {name: f"{mean:.1f}" for name, mean in means.items()}
    lines = []
    for paper, says in _SHORT.items():
        of = [judgement for claim, judgement in judged if claim.paper == paper]
        lines.append(f"- **{paper}** ({_words(of)}): {says.format(**numbers)}")
    return "\n".join(lines)


def _whitening() -> str:
    """What whitening explains on the reference encoder, in the average of the seven STS tasks."""
    find = JobStore(_TEXT / reference_encoder() / "cells").find
    if (before := find(text_protocol.start(reference_encoder()))) is None:
        return "not measured before training"
    raw, white = (before.metrics[f"average {kind}first"] for kind in ("", "whitened "))
    return f"STS {raw:.2f} before training; {white:.2f} whitened, which no loss earns"


def claims_page(judged: Judged) -> str:
    """Return the page of all claims in Markdown."""
    every = _table(judged, "../")
    waiting = missing_trainings(_TEXT)
    return _ALL.format(counts=_counts(judged), waiting=waiting, every=every)


def missing_trainings(results: Path) -> str:
    """Say how many trainings on text there are to come, and what they cost by those that are there.

    Args:
        results: holds a folder for each encoder.
    """
    find = JobStore(results / RAW / "cells").find  # trainings on the one of before have ended
    seconds, steps, left = 0.0, 0, []
    for job in text_protocol.planned(RAW, find):
        if (result := find(job)) is None:
            left.append(job)
        else:
            seconds += float(result.provenance["cpu_seconds"])
            steps += int(job.settings["max_steps"])
    if not left or not steps:
        return ""
    hours = sum(int(job.settings["max_steps"]) for job in left) * seconds / steps / 3600
    return (
        f"\nOn text {len(left)} trainings are still to come, all on `{RAW}`: about "
        f"{math.ceil(hours)} h of one core (`python -m papers text`)."
    )


def _counts(judged: Judged) -> str:
    open_ = sum(_why(c, j) == _UNMEASURED for c, j in judged)
    counted = _words([judgement for _, judgement in judged])
    waiting = f" ({open_} of these not measured yet)" if open_ else ""
    return f"Of {len(judged)} claims: {counted.replace('undecided', f'undecided{waiting}')}."


def _words(judgements: Sequence[ClaimJudgement]) -> str:
    words = Counter(judgement.word for judgement in judgements)
    return ", ".join(f"{words[word]} {word}" for word in get_args(Word) if words[word])


def _table(judged: Judged, up: str = "") -> str:
    header = ["claim", "printed in", "paper", "ours (interval)", "n", "verdict", "why"]
    return grid(header, [_row(claim, judgement, up) for claim, judgement in judged]).rstrip()


def _row(claim: Claim, judgement: ClaimJudgement, up: str) -> list[str]:
    change = judgement.change
    where = f"{claim.paper}, {claim.where}"
    link = next((page for table, page in _TABLES.items() if where.startswith(table)), "")
    if claim.on == "text" and "table" in claim.where:
        link = f"../papers/results/text/{reference_encoder()}/tables.md"
    return [
        claim.says + " †" * (claim.on == "images"),
        where,
        f"{claim.effect:+.2f}" if claim.printed and claim.effect is not None else "-",
        f"[{_measured(judgement)}]({up}{link})" if link and change else _measured(judgement),
        str(change.count if change is not None else 0),
        judgement.word,
        _why(claim, judgement),
    ]


def _measured(judgement: ClaimJudgement) -> str:
    change = judgement.change
    if change is None:
        return "-"
    low, high = judgement.interval
    interval = f" ({low:+.2f} to {high:+.2f})" if change.count > 1 else ""
    return f"{change.mean:+.2f}{interval}"


def _measured_and_judged(judgement: ClaimJudgement) -> str:
    if judgement.change is None:
        return _UNMEASURED
    count = judgement.change.count
    return f"{_measured(judgement)}, {count} seed{'s' * (count > 1)}: {judgement.word}"


def _why(claim: Claim, judgement: ClaimJudgement) -> str:
    if claim.untestable:
        return claim.untestable
    if judgement.change is None:
        return _NEVER_FELL if _is_trained(claim) else _UNMEASURED
    if judgement.change.count < 2:
        return "one seed has no interval"
    if judgement.word == "undecided":
        return f"{_REASONS['undecided']}; {_seeds(judgement)}"
    if claim.margin is not None:
        side = "above" if claim.above else "behind"
        return f"{'not ' * (judgement.word == 'replicated')}{side} by more than {claim.margin:g}"
    least = f"{abs(judgement.interest):g}, the smallest effect that was set beforehand"
    return _REASONS[judgement.word].format(
        least="a quarter of the paper's effect" if claim.printed else least
    )


def _is_trained(claim: Claim) -> bool:
    """Whether a share of a fall is missing although there are all the trainings that it is of."""
    encoder = reference_encoder()
    find = JobStore(_TEXT / encoder / "cells").find
    return claim.metric.endswith(" regained") and all(
        any(map(find, text_protocol.trainings(encoder, find, name)))
        for name in (*claim.a, *claim.b)
    )


def _seeds(judgement: ClaimJudgement) -> str:
    if judgement.seeds is None:
        return f"more than {MOST} seeds would be needed"
    return f"{judgement.seeds} seeds would decide it if nothing else changed"


_COLOURS: dict[str, str] = {
    "replicated": "#1a7f37",
    "same direction, weaker": "#9a6700",
    "undecided": "#6e7781",
    "contradicted": "#cf222e",
}
_WIDTH, _LEFT, _LINE, _TOP = 860, 420, 26, 34
_ENDS = -1.0, 3.0  # of the axis: our effect over the paper's


def forest_plot(judged: Judged) -> str:
    """Return the headline claims with an effect as SVG: ours over the paper's, with intervals."""
    rows = [(c, j) for c, j in judged if c.headline and c.printed and c.effect]
    bottom = _TOP + _LINE * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 44}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{bottom + 44}" fill="#ffffff"/>',
        f'<text x="{_x(0) + 6:.0f}" y="18" fill="#1f2328">our effect over the paper\'s</text>',
    ]
    for value, name in ((0, "0"), (0.25, "0.25"), (1, "1: the paper's"), (2, "2")):
        dashes = ' stroke-dasharray="3 4"' if value else ""
        parts += [
            f'<line x1="{_x(value):.1f}" x2="{_x(value):.1f}" y1="{_TOP - 8}" y2="{bottom}" '
            f'stroke="#8c959f"{dashes}/>',
            f'<text x="{_x(value):.1f}" y="{bottom + 18}" text-anchor="middle" '
            f'fill="#1f2328">{name}</text>',
        ]
    for place, (claim, judgement) in enumerate(rows):
        parts += _drawn(claim, judgement, _TOP + _LINE * place + _LINE / 2)
    parts.append(
        f'<text x="8" y="{bottom + 36}" fill="#57606a">bars: intervals; green: replicated, '
        "brown: weaker, grey: undecided, red: contradicted; 0.25: the smallest effect of interest"
        "</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(value: float) -> float:
    low, high = _ENDS
    inside = min(max(value, low), high)
    return _LEFT + (inside - low) / (high - low) * (_WIDTH - _LEFT - 16)


def _drawn(claim: Claim, judgement: ClaimJudgement, y: float) -> list[str]:
    colour, change = _COLOURS.get(judgement.word, "#6e7781"), judgement.change
    name = f"{claim.headline} ({claim.paper})"
    text = f'<text x="8" y="{y + 4:.0f}" fill="#1f2328">{escape(name)}</text>'
    if change is None or claim.effect is None:
        return [
            text,
            f'<text x="{_x(0) + 6:.0f}" y="{y + 4:.0f}" fill="{colour}">{_UNMEASURED}</text>',
        ]
    ends = sorted(end / claim.effect for end in judgement.interval if math.isfinite(end))
    parts = [text]
    if ends:
        parts.append(
            f'<line x1="{_x(ends[0]):.1f}" x2="{_x(ends[-1]):.1f}" y1="{y:.0f}" y2="{y:.0f}" '
            f'stroke="{colour}" stroke-width="3"/>'
        )
    mean = _x(change.mean / claim.effect)
    return [*parts, f'<circle cx="{mean:.1f}" cy="{y:.0f}" r="5" fill="{colour}"/>']


def write_replication_page(folder: Path) -> None:
    """Write replication.md, its picture and results/claims.md into a folder."""
    judged = judged_claims()
    for name, text in (
        ("replication.md", replication_page(judged)),
        ("replication.svg", forest_plot(judged)),
        ("results/claims.md", claims_page(judged)),
    ):
        with atomic_replace(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
