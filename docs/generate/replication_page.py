"""The page that says whether the papers replicate, and its forest plot: docs/replication.md.

Written by `make docs` from papers/claims.toml and from what has been measured.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import get_args

from docs.generate.errata_page import errata
from docs.generate.legend import legend
from docs.generate.objective_pages import grid
from isotrope.core.files import write_text
from papers import image_trainings, starts, text_protocol
from papers.machinery.claims import Claim, claims, judge_claim, reference_encoder
from papers.machinery.data_registry import RAW
from papers.machinery.rule import MOST, ClaimJudgement, Word
from papers.machinery.store import JobStore
from papers.text_command import stored

ROOT = Path(__file__).parents[2]
_TEXT = ROOT / "papers" / "results" / "text"
_OF_STARTS = " ([table and picture](../papers/results/starts/starts.md))"
_IMAGES = ROOT / "docs" / "results" / "reproduce" / "cells"
_TABLES = {
    "Draganov et al. 2024, table 2": "results/reproduce/cosine-pitfalls/table2.md",
    "Draganov et al. 2024, table 3": "results/reproduce/cosine-pitfalls/table3.md",
    "Manna et al. 2023, table 2": "results/reproduce/mio/table2.md",
}
_REASONS: dict[str, str] = {
    "undecided": "the interval includes both 0 and an effect that matters",
    "opposite": "the whole interval is on the other side of 0",
    "smaller than a quarter": "the whole interval is below {least}",
    "same direction, uncertain size": "the interval is above 0, but includes less than {least}",
    "replicated": "the whole interval is at least {least}",
}

LARGE = ("li-table3-mhe", "li-table3-barlowtwins", "li-table3-vicreg")
_LOSS_NAMES = {"mhe": "MHE", "mhs": "MHS", "barlowtwins": "Barlow Twins", "vicreg": "VICReg"}
_FOR: set[str] = {"replicated", "same direction, uncertain size"}
_DECIDED = _FOR | {"smaller than a quarter", "opposite"}
_UNMEASURED = "not measured yet"
_NEVER_FELL = (
    "in {} of {} seeds, a value is lowest at the first measurement, so no share of a fall is known"
)

PIXELS = 33.0
"""Accuracy of nearest neighbours by pixels on the 5,000 images (tests/evaluation)."""

_SHORT: dict[str, str] = {
    "Li et al. 2024": "The authors replace the three factors of a loss's gradient. {letters} "
    "Replacing all three raises the STS average of [MHE](objectives/mhe.md) (hyperspherical "
    "energy), Barlow Twins and VICReg. The STS average of [MHS](objectives/mhs.md) (hyperspherical "
    "separation) rises on one of three encoders and falls on another. {steps} Some "
    "results are the opposite of the paper's: r = 2 instead "
    "of 1 (R about 4 and 2) lowers the STS-B dev score. Replacing all three lowers the "
    "transfer average of Barlow Twins and VICReg (undecided on seed0).",
    "Nie et al. 2023": "InfoNCE scores above [DCL](objectives/dcl.md) and above alignment and "
    "uniformity. Claims about [MET](objectives/met.md) and [MAT](objectives/mat.md) are not "
    "tested: the paper prints the same numbers for two encoders ([E43](errata.md#E43)). Most other "
    "tested claims are undecided.",
    "Manna et al. 2023": "On images, MIOv3 is ahead of MIOv1, MIOv2 and four other losses. Its "
    "lead over SimCLR is not clear. In the paper, BYOL is ahead of MIOv3; here it is behind, and "
    "not better than pixels.",
    "Draganov et al. 2024": "Dividing the initial weights is a *cut*. In the paper, cuts raise "
    "the accuracy. With a warm-up, they raise it here at small learning rates, but not at larger "
    "ones ([details](#what-the-results-depend-on)).",
}
_PAGE = """# Do the papers replicate?

The papers replicate in part, on small encoders. Three large effects on text (12.7 to 15.8 points in the paper) have the same direction on all three text encoders, with {least:.2f} to {most:.2f} of the paper's size. Smaller effects are often undecided.

{counts}

Each fact is counted once. All other numbers are points out of 100. The STS average is over seven tasks of sentence similarity, the transfer average over seven of classification.

{short}

[All numbers](results/claims.md).

![Our effects divided by the papers'](replication.svg)

In the table, positive numbers support the paper.

- *ours* is the mean difference over n paired seeds, with Student's 90% interval (95% if n is 15).
- An effect matters if it is at least a quarter of the paper's ([rule](results/claims.md#how-a-verdict-is-reached)). *Same direction, uncertain size*: the interval is above 0, but includes effects that do not matter. *Not tested*: the trainings also changed something else, or the paper's number is in doubt.
- † marks claims about images. The others, about text, were measured on the encoder `{encoder}`; seed0 and seed1 are others.
- ‡ marks claims written down after their results were known.
- *Effective* losses: InfoNCE, ArcCon, MPT, MET. *Small rate*: a thirtieth of the learning rate of the row above it.

{headline}
{waiting}
## What the results depend on

- **The encoder.** {encoders}
- **The score before training.** {starts}
- **The setting nu.** {held}
- **The learning rate and the warm-up.** Without a warm-up, after 2 epochs, cuts raise the accuracy at a small rate (SimSiam: undecided) and lower it at the larger rate ([numbers](results/claims.md)). The larger rate is the recipe's, for BYOL twice that. In the table, the warm-up takes 10 of 20 epochs (later code: 10 of 512).
- **The length of the trainings on images.** {pixels}

## What the intervals leave out

- Intervals cover only the training seeds: those of MHE on `{encoder}` and seed1 do not overlap. Tuning used one seed and 250 steps; such scores have standard deviations of {noise} points.
- Several rows share trainings. Intervals are not corrected for the number of rows; some miss the true effect.
- `{encoder}` replaced seed0 after its results were known. {changed}
- In the mean of the first five seeds, every loss lowers the transfer average (65.6 at the start). In the papers, on BERT-base, it changes by -1.0 to +2.2 (without MET and MAT).

**Encoders.** Text: BERTs [made from scratch](reproduce.md#sentence-embeddings-on-raw-encoders) (2 layers, 128 dimensions), trained for 500 steps; {whitening}. Images: ResNet-18 with 16 channels on 5,000 images of CIFAR-10 (Manna et al.: 8 epochs; cuts: 20; [settings that differ from the recipes](results/claims.md)).

**More**: [all {total} claims](results/claims.md) with repeats, [tables by task, tuning, curves](../papers/results/text/{encoder}/tables.md), [tables and figures of the papers](results/reproduce/verdicts.md), [{errata} errata](errata.md). `python -m papers bench my_loss.py` compares your loss.
"""  # noqa: E501 - Markdown
_ALL = """# All claims that trainings decide

Use this page to look up a claim of the four papers, with the number that the paper prints, our number, and the verdict. [Another page](../replication.md) has only the main claims. {counts}{waiting}

How to read the table:

- *paper* is the difference that the paper prints. *ours* is the mean difference over n paired seeds, with its interval. Both are in points out of 100.
- Rows without † are about text. They were measured on `{encoder}`, a BERT of 2 layers and 128 dimensions made from scratch.
- † marks rows about images. They were measured with a ResNet-18 of 16 channels on 5,000 images of CIFAR-10. In the rows of Manna et al., it was trained for 8 epochs. {short_trainings} {pixels}
- ‡ marks rows that were written after their results were known. All other rows about text were committed before their trainings.
- *follows X* marks a row on the same trainings as row X, or on the same fact of the paper. The counts above leave it out.
- *E12*, *E39* and *E43* are [errata](../errata.md). The warm-up in the code of Draganov et al.'s later paper is 10 of 512 epochs.
- *dev probe 'alignment'* is the alignment loss on held-out sentences, computed during the training; likewise for 'contrastive' and 'uniformity'.
- *+GD*, *+W* and *+R* are the steps of Li et al.: they exchange the three components of a gradient one after the other. {letters}

{every}

## How a verdict is reached

A difference is the mean over n paired seeds, with Student's 90% interval. It is in points out of 100, with two exceptions: claims with *positives end closer* compare cosines, and claims with *rises again* or *stays down* compare shares of a fall. A difference matters if it is at least a quarter of the paper's effect. If the paper prints no number, a difference matters if it is at least as large as a limit that we set beforehand. Small trainings are judged like large ones.

| verdict | the whole interval is |
|---|---|
| *replicated* | at an effect that matters, or above |
| *same direction, uncertain size* | above 0, but not wholly at an effect that matters or above |
| *smaller than a quarter* | below an effect that matters, but not wholly below 0 |
| *opposite* | below 0. For a claim that losses are *not behind* others, the whole interval is below minus the margin in the row |
| *undecided* | none of these |
| *not tested* | not judged, because the trainings did not make the change that the claim is about, or also made another change, or because the paper's number is in doubt; the table shows our numbers |
| *not testable here* | not measured, because nothing was trained that could decide the claim |

Claims about text that are undecided after five seeds are judged a second and last time, on 15 seeds with the 95% interval. The linked tables show the first five seeds. For an undecided claim, the last column has the number of seeds that would decide the claim if mean and deviation stayed the same. We do not plan to run these seeds ([rule](../../papers/machinery/rule.py), [claims](../../papers/claims.toml)).
"""  # noqa: E501 - Markdown

_SHORT_TRAININGS = (
    "Settings differ from the recipes: gradients of MIO, Barlow Twins and VICReg are "
    "clipped; the predictors of SimSiam and BYOL have ten times the learning rate; BYOL has the "
    "learning rate 0.06, twice its recipe's, and a batch norm at the end of its projector."
)
Judged = Sequence[tuple[Claim, ClaimJudgement]]


def judged_claims() -> Judged:
    """Return every claim with its verdict on what there is."""
    images = image_trainings.measured(JobStore(_IMAGES).find)
    text = _judged_on(reference_encoder(), _TEXT)
    return [
        (claim, text[claim.id] if claim.on == "text" else judge_claim(claim, images))
        for claim in claims()
    ]


def _judged_on(encoder: str, results: Path) -> dict[str, ClaimJudgement]:
    measured = text_protocol.measured(encoder, stored(encoder, results))
    return {claim.id: judge_claim(claim, measured) for claim in claims() if claim.on == "text"}


def other_encoders(results: Path) -> dict[str, dict[str, ClaimJudgement]]:
    """Return the claims on the other encoders that were trained, by encoder and claim.

    Args:
        results: Folder with a subfolder for each encoder.
    """
    names = sorted(cells.parent.name for cells in results.glob("*/cells"))
    judged = {n: _judged_on(n, results) for n in names if n != reference_encoder()}
    return {n: of for n, of in judged.items() if any(j.change for j in of.values())}


def _elsewhere(claim: Claim, others: Mapping[str, Mapping[str, ClaimJudgement]]) -> str:
    """What became of a claim on the other encoders, one after the other."""
    if claim.on != "text":
        return "-"
    cells = [
        f"{name.rpartition('-')[2]}: {_measured(judged)}, n={judged.change.count}, {judged.word}"
        for name, of in others.items()
        if (judged := of[claim.id]).change is not None
    ]
    return "; ".join(cells) or "-"


def replication_page(judged: Judged) -> str:
    """Return the page in Markdown."""
    others = other_encoders(_TEXT)
    by_id = {claim.id: judgement for claim, judgement in judged}
    shares = large_effects((by_id, *others.values()))
    return _PAGE.format(
        total=len(judged),
        least=min(shares),
        most=max(shares),
        counts=_by_paper(judged),
        headline=_headline([row for row in judged if row[0].headline], others),
        encoder=reference_encoder(),
        errata=sum(row.kind in ("result", "misprint") for row in errata()),
        encoders=_encoders(by_id, others),
        changed=_changed(by_id, others),
        noise=_noise(),
        pixels=_below_pixels([c for c, _ in judged if not c.follows]),
        starts=starts.sentence() + (_OF_STARTS if starts.recorded() else ""),
        held=_held(by_id),
        short=_short(by_id),
        waiting=f"{left}\n" if (left := missing_trainings(_TEXT)) else "",
        whitening=_whitening(),
    )


def _short(by_id: Mapping[str, ClaimJudgement]) -> str:
    """Say of each paper what became of it, in a line; test_replication.py holds the words to it."""
    letters = (
        f"{legend('GD')} W (weight) is the push of each negative, R (ratio) the pull of the "
        "positive divided by that push."
    )
    lines = []
    for paper, says in _SHORT.items():
        lines.append(f"- **{paper}**: {says.format(letters=letters, steps=_steps(by_id))}")
    return "\n".join(lines)


def _steps(by_id: Mapping[str, ClaimJudgement]) -> str:
    """What the step W of table 5 adds, and what the steps before it leave to add to."""
    encoder, names = reference_encoder(), [name.removeprefix("li-table3-") for name in LARGE]
    find = JobStore(_TEXT / encoder / "cells").find
    values = text_protocol.measured(encoder, find)
    before = statistics.fmean(values("before training", "average").values())
    added, only = [], []
    for name in names:
        added.append(f"{_LOSS_NAMES[name]} {_measured(by_id[f'li-table5-{name}-weight'])}")
        first = sorted(values(f"modified{name} GD", "average").items())[: len(text_protocol.SEEDS)]
        only.append(f"{statistics.fmean(value for _, value in first):.1f}")
    return (
        f"The gain comes from W, replaced after GD: {'; '.join(added)} "
        f"(n={len(text_protocol.SEEDS)}). Replacing GD alone, at the published nu, gains nothing: "
        f"{', '.join(only)} (untrained: {before:.2f}). R is not tested for two of the three."
    )


def large_effects(judged: Iterable[Mapping[str, ClaimJudgement]]) -> list[float]:
    """Return our effects over the paper's where these are large, on each encoder."""
    printed = {claim.id: claim.effect for claim in claims() if claim.id in LARGE}
    return [
        change.mean / effect
        for of in judged
        for name, effect in printed.items()
        if effect and (change := of[name].change) is not None
    ]


def _changed(
    by_id: Mapping[str, ClaimJudgement], others: Mapping[str, Mapping[str, ClaimJudgement]]
) -> str:
    """How many verdicts the change of the encoder changed."""
    name = next((name for name in others if name.endswith("seed0")), "")
    if not name:
        return ""
    pairs = [
        (by_id[c.id].word, others[name][c.id].word)
        for c in claims()
        if c.on == "text" and not c.follows and not c.untested
        if by_id[c.id].change is not None and others[name][c.id].change is not None
    ]
    return (
        f"This changed {sum(a != b for a, b in pairs)} of {len(pairs)} verdicts "
        f"([those on seed0](../papers/results/text/{name}/claims.md))."
    )


def _noise() -> str:
    """How much scores of the trainings that choose settings deviate, where there are five seeds."""
    encoder = reference_encoder()
    values = text_protocol.measured(encoder, JobStore(_TEXT / encoder / "cells").find)
    curves = (
        "baseline",
        *(f"baseline {k}={v:g}" for k, vs in text_protocol.CURVES.items() for v in vs),
    )
    scores = [values(name, "dev").values() for name in curves]
    spreads = [statistics.stdev(of) for of in scores if len(of) == len(text_protocol.SEEDS)]
    return f"{min(spreads):.1f} to {max(spreads):.1f}"


def _below_pixels(of: Iterable[Claim], form: str = "") -> str:
    """Which trainings of claims about images end no better than neighbours by pixels."""
    measured = image_trainings.measured(JobStore(_IMAGES).find)
    found: dict[int, dict[str, str]] = {}
    for claim in of:
        if claim.metric in ("knn", "knn early"):
            for name in (*claim.a, *claim.b):
                epochs = 2 if claim.metric == "knn early" else 20 if "warm-up" in name else 8
                values = measured(name, claim.metric).values()
                if values and round(mean := statistics.fmean(values), 1) <= PIXELS:
                    found.setdefault(epochs, {})[name] = name + form.format(mean)
    told = ". ".join(f"After {n} epochs: {'; '.join(found[n].values())}" for n in sorted(found))
    return (
        f"Nearest neighbours by pixels, without an encoder, reach an accuracy of {PIXELS:.1f}. "
        f"These encoders are not better{' (*slow*: small rate)' * bool(form)}. {told}."
    )


def _encoders(
    by_id: Mapping[str, ClaimJudgement], others: Mapping[str, Mapping[str, ClaimJudgement]]
) -> str:
    """Name the claims whose verdicts are for the paper on one encoder and against it on another."""
    turned = []
    for claim in claims():
        if not claim.headline or claim.on != "text":
            continue
        words = {of[claim.id].word for of in (by_id, *others.values()) if of[claim.id].change}
        if len({word in _FOR for word in words & _DECIDED}) == 2:
            turned.append(claim.headline)
    first = (
        f"The settings were tuned on `{reference_encoder()}` and used on seed1. seed0 is an "
        "earlier encoder with its own tuning."
    )
    named = ", ".join(f'"{name}"' for name in turned) or "no claim"
    return f"{first} For the paper on one encoder, against it on another: {named}."


def _held(by_id: Mapping[str, ClaimJudgement]) -> str:
    """What is known of the first step of table 5 with nu and the rate held."""
    known = [
        f"{shown} {_measured(j)}{_fewer(j.change.count)}"
        for name, shown in _LOSS_NAMES.items()
        if (j := by_id[f"li-table5-{name}-dissipation-held-released"]).change is not None
    ]
    return (
        "nu is the weight of the part of a loss that spreads embeddings. In table 5, replacing GD "
        "also changes nu; in our trainings, from the tuned to the published value. At an unchanged "
        "nu and learning rate, replacing GD as in the authors' code changes the STS average by: "
        f"{'; '.join(known) or 'not measured yet'} (n={len(text_protocol.SEEDS)})."
    )


def _fewer(count: int) -> str:
    return "" if count == len(text_protocol.SEEDS) else f" (n = {count})"


def _whitening() -> str:
    """What whitening explains on the reference encoder, in the average of the seven STS tasks."""
    find = JobStore(_TEXT / reference_encoder() / "cells").find
    if (before := find(text_protocol.start(reference_encoder()))) is None:
        return "not measured before training"
    raw, white = (before.metrics[f"average {kind}first"] for kind in ("", "whitened "))
    return f"STS {raw:.2f} before training, {white:.2f} with whitening alone"


def claims_page(judged: Judged) -> str:
    """Return the page of all claims in Markdown."""
    every = _table(judged, "../")
    waiting = missing_trainings(_TEXT)
    return _ALL.format(
        counts=_counts(judged),
        waiting=waiting,
        every=every,
        encoder=reference_encoder(),
        letters=legend("", everything=True),
        pixels=_below_pixels([c for c, _ in judged], " {:.1f}"),
        short_trainings=_SHORT_TRAININGS,
    )


def missing_trainings(results: Path) -> str:
    """Say how many trainings on text there are to come, and what they cost by those that are there.

    Args:
        results: Folder with a subfolder for each encoder.
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
        f"\nOn text, {len(left)} trainings with the encoder `{RAW}` are still missing (about "
        f"{math.ceil(hours)} h on one core, `python -m papers text`)."
    )


def _counts(judged: Judged) -> str:
    once = [(claim, judgement) for claim, judgement in judged if not claim.follows]
    open_ = sum(_why(c, j) == _UNMEASURED for c, j in once)
    counted = _words(once)
    waiting = f" ({open_} of these not measured yet)" if open_ else ""
    more = f". {left} more rows follow from these" if (left := len(judged) - len(once)) else ""
    counted = counted.replace("undecided", f"undecided{waiting}")
    return f"Among {len(once)} claims, each fact counted once: {counted}{more}."


def _by_paper(judged: Judged) -> str:
    """A table of how many claims of each paper have each verdict, each fact counted once."""
    once = [(claim, judgement) for claim, judgement in judged if not claim.follows]
    papers = list(dict.fromkeys(claim.paper for claim, _ in once))
    count = Counter((judgement.word, claim.paper) for claim, judgement in once)
    open_ = Counter(claim.paper for claim, j in once if _why(claim, j) == _UNMEASURED)
    lines = []
    for word in get_args(Word):
        of = [count[word, paper] for paper in papers]
        if any(of):
            lines.append([word, *map(str, of), str(sum(of))])
        if word == "undecided" and open_:
            of = [open_[paper] for paper in papers]
            lines.append([f"- of these, {_UNMEASURED}", *map(str, of), str(sum(of))])
    return grid(["number of claims", *papers, "all"], lines).rstrip()


def _words(judged: Judged) -> str:
    words = Counter(judgement.word for claim, judgement in judged if not claim.follows)
    return "; ".join(f"{words[word]} {word}" for word in get_args(Word) if words[word])


def _headline(judged: Judged, others: Mapping[str, Mapping[str, ClaimJudgement]]) -> str:
    header = ["claim", "paper", "ours (interval)", "verdict (ours/paper)", "other encoders"]
    rows = []
    for claim, judgement in judged:
        _, _, paper, ours, count, word, _ = _row(claim, judgement, "")
        if claim.printed and claim.effect and judgement.change is not None:
            word += f" ({judgement.change.mean / claim.effect:.2f})"
        if _why(claim, judgement) == _UNMEASURED:
            word = _UNMEASURED
        author = claim.paper.partition(" ")[0]  # with the list above, it names the paper
        marks = (
            " †" * (claim.on == "images") + (" ‡" if claim.on != "images" else "‡") * claim.after
        )
        said = f"{claim.headline}{marks} ({author}, {claim.where.partition(', ')[0]})"
        rows.append([said, paper, f"{ours}, n={count}", word, _elsewhere(claim, others)])
    return grid(header, rows).rstrip()


def _table(judged: Judged, up: str = "") -> str:
    header = ["claim", "printed in", "paper", "ours (interval)", "n", "verdict", "why"]
    return grid(header, [_row(claim, judgement, up) for claim, judgement in judged]).rstrip()


def _row(claim: Claim, judgement: ClaimJudgement, up: str) -> list[str]:
    change = judgement.change
    where = f"{claim.paper}, {claim.where}"
    link = next((page for table, page in _TABLES.items() if where.startswith(table)), "")
    if any("warm-up" in name for name in claim.a):
        link = ""  # the table has none of these trainings
    if claim.on == "text" and "table" in claim.where:
        link = f"../papers/results/text/{reference_encoder()}/tables.md"
    return [
        claim.says + " †" * (claim.on == "images") + " ‡" * claim.after,
        where,
        f"{claim.effect:+.2f}" if claim.printed and claim.effect is not None else "-",
        f"[{_measured(judgement)}]({up}{link})" if link and change else _measured(judgement),
        str(change.count if change is not None else 0),
        judgement.word,
        _why(claim, judgement) + f" (follows `{claim.follows}`)" * bool(claim.follows),
    ]


def _measured(judgement: ClaimJudgement) -> str:
    change = judgement.change
    if change is None:
        return "-"
    low, high = judgement.interval
    interval = f" ({low:+.2f} to {high:+.2f})" if change.count > 1 else ""
    return f"{change.mean:+.2f}{interval}"


def _why(claim: Claim, judgement: ClaimJudgement) -> str:
    if claim.untestable or claim.untested:
        return claim.untestable or claim.untested
    without = _without_value(claim, judgement)
    if judgement.change is None:
        return without or _UNMEASURED
    return "; ".join(filter(None, (_reason(claim, judgement), without)))


def _reason(claim: Claim, judgement: ClaimJudgement) -> str:
    """Why a claim about which something was measured has its verdict."""
    assert judgement.change is not None
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


def _without_value(claim: Claim, judgement: ClaimJudgement) -> str:
    """In how many trained seeds a share of a fall has no value, if in any."""
    if not claim.metric.endswith(" regained"):
        return ""
    encoder = reference_encoder()
    find = JobStore(_TEXT / encoder / "cells").find
    trained = set.intersection(
        *(
            {job.seed for job in text_protocol.trainings(encoder, find, name) if find(job)}
            for name in (*claim.a, *claim.b)
        )
    )
    without = len(trained) - (judgement.change.count if judgement.change else 0)
    return _NEVER_FELL.format(without, len(trained)) if without > 0 else ""


def _seeds(judgement: ClaimJudgement) -> str:
    if judgement.seeds is None:
        return f"more than {MOST} seeds would be needed"
    return f"{judgement.seeds} seeds would decide it if nothing else changed"


_COLOURS: dict[str, str] = {
    "replicated": "#1a7f37",
    "same direction, uncertain size": "#9a6700",
    "undecided": "#6e7781",
    "smaller than a quarter": "#bc4c00",
    "opposite": "#cf222e",
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
        "brown: uncertain size, grey: undecided, orange: smaller, red: opposite; "
        "from 0.25 on it matters</text>"
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
        write_text(folder / name, text)
