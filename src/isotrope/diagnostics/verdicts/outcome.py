"""Verdicts on the course of a training: nothing to learn, a weak pull, a falling dev score."""

import math
import statistics

from isotrope.diagnostics import proposals
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Evidence
from isotrope.diagnostics.readings import (
    dead_share_after_start,
    deciding_part,
    further_evidence,
    gain_in_score,
    is_contrastive,
)
from isotrope.diagnostics.verdict import Change, Found, Threshold, Verdict, compared, crosses
from isotrope.diagnostics.verdicts.sources import NEWER, OURS, ZOO
from isotrope.paradigm.graph import number_of

_LOGGED_STEPS = 3  # with fewer, the anchors of the first step are not judged
_LEAST_DONE = 5  # logged steps that a share of finished anchors needs
_LEARNING = 9  # logged steps that show whether anything was learnt
_CHANCE = 3.5  # median differences of two batches, which are about 3.5 standard deviations
_CLEAR = 2.5  # standard errors by which cosines follow labels
_STILL = 0.5  # share of dead anchors; if more are dead, the loss is near its floor
_LEARNT = ("loss", "norm", "std", "positive_mean", "negative_mean", "label_gap")
_MOVED = 10  # logged steps that a risen angle needs


def _done_at_first(case: RunEvidence) -> float | None:
    dead = case.series("dead")
    if len(dead) < _LOGGED_STEPS:
        return None
    # the log of a resumed training may begin later than one interval of logging
    first, second = (row.get("step") or 0 for row in case.rows[:2])
    return dead[0] if 2 * first <= second else None


def _done_throughout(case: RunEvidence) -> float | None:
    dead = case.series("dead")
    return statistics.median(dead) if dead and gain_in_score(case) is not None else None


def _done_without_score(case: RunEvidence) -> Evidence | None:
    done = case.series("dead")
    return compared("dead_early", statistics.median(done)) if gain_in_score(case) is None else None


def _active_without_score(case: RunEvidence) -> bool:
    done = _done_without_score(case) if case.series("dead") else None
    return done is not None and not crosses("dead_early", done.number)


_GAIN = Threshold(
    "gain",
    "gain on the dev set",
    "if there is a dev set: highest dev score minus the first dev score. If the dev score rises by "
    "the limit or more, three verdicts are not given: `nothing-left-to-learn`, `dissipated-early` "
    "and `temperature-too-low`",
    OURS,
    below=1.0,
    unit="points",
    measure=gain_in_score,
    optional=True,
)

NOTHING_LEFT_TO_LEARN = Verdict(
    "nothing-left-to-learn",
    "most anchors had nothing left to learn at the start, and no higher dev score was measured",
    "Before the first update, the positives of most anchors were already much closer than all "
    "negatives. The dev score did not rise, or was not measured. The encoder already knows these "
    "data.",
    (
        Threshold(
            "done_at_first",
            "gradient dissipation (GD) below 0.01 at the first logged step",
            "at the first logged step: share of the anchors with GD below 0.01",
            NEWER,
            above=0.5,
            unit="of the anchors",
            measure=_done_at_first,
        ),
        Threshold(
            "done_throughout",
            "gradient dissipation (GD) below 0.01 in the whole run",
            "share of the anchors with GD below 0.01, median over all logged steps. Without a dev "
            "score, the limit is that of `dead_early` of the verdict `dissipated-early`",
            NEWER,
            above=0.75,
            unit="of the anchors",
            measure=_done_throughout,
            optional=True,
        ),
        _GAIN,
    ),
    Change(
        "another FILE (your data with hard negatives as a third column, or other data)",
        lambda case: f"{case.words.harder}, or other data",
    ),
    explains=("dissipated-early",),
    unless=(
        lambda case: case.judgement is not None and case.judgement.outcome == "improved",
        _active_without_score,
    ),
    shows=(_done_without_score, "dissipation", "positive_mean", "negative_mean"),
)


def _dead_early(case: RunEvidence) -> float | None:
    return dead_share_after_start(case) if len(case.series("dead")) >= _LEAST_DONE else None


def _harder(case: RunEvidence) -> str:
    for name, factor in (("temperature", 2), ("margin", 1.5)):
        if (now := number_of(getattr(deciding_part(case, "dissipation"), name, None))) is not None:
            return proposals.objective_flag(case, "dissipation", name, factor * now)
    return "--batch-size 256 (more negatives, and harder ones among them)"


DISSIPATED_EARLY = Verdict(
    "dissipated-early",
    "almost no anchor learns after the first steps",
    "Soon after the start, almost no anchor has a gradient left. The held-out score has not risen, "
    "or was not measured. More steps will not improve the model.",
    (
        Threshold(
            "dead_early",
            "gradient dissipation (GD) below 0.01",
            "share of the anchors with GD below 0.01, median over the last four fifths of the "
            "logged steps",
            f"the number 0.01 is from the code of Li et al. (2024). For the limit of 90%: {OURS}",
            above=0.9,
            unit="of the anchors",
            measure=_dead_early,
        ),
        _GAIN,
    ),
    Change(_harder, proposals.harder_negatives),
    shows=("dissipation", "positive_mean", "negative_mean"),
)


def _does_not_pull(case: RunEvidence) -> bool:
    """Whether a loss of another library no longer pulls; at a margin, that is not a fault."""
    ratio = case.end("ratio")
    return case.objective is None and ratio is not None and crosses("pull", abs(ratio))


def _risen_angle(case: RunEvidence) -> Evidence | None:
    risen = _risen(case, "positive_mean")
    return None if risen is None else Evidence("positive_angle_risen", risen, unit="rad")


def _risen(case: RunEvidence, column: str) -> float | None:
    values, end = case.series(column), case.end(column)
    return end - values[0] if len(values) > 1 and end is not None else None


LOSING_PULL = Verdict(
    "losing-pull",
    "the pull is too weak to bring positives closer",
    "The pull of the positives is too weak against the push of the negatives. A small step moves "
    "most anchors away from their positives, and the mean angle between anchors and positives has "
    "not fallen.",
    (
        Threshold(
            "above_bound",
            "anchors whose ratio R of pull to push is above the bound of Lemma 1 (Li et al., 2024)",
            "at the end: share of the active anchors (GD of at least 0.01) whose ratio R is above "
            "the bound in Lemma 1 of Li et al. (2024). Above this bound, a small step brings an "
            "anchor nearer to its positive",
            f"Li et al., 2024, Lemma 1 and figure 8; {OURS}",
            below=0.5,
            unit="of the active anchors",
            measure=lambda case: case.end("above_bound"),
        ),
        Threshold(
            "positive_closer",
            "change of the angle to positives since the first logged step",
            "mean angle between anchors and positives at the end, minus its value at the first "
            "logged step. If this number is below the limit, positives have come closer, so the "
            "verdict is not given",
            NEWER,
            below=-0.02,
            unit="rad",
        ),
        Threshold(
            "pull",
            "ratio (R) at the end",
            "for a loss of another library: absolute value of the mean ratio R of pull to push at "
            "the end. If this value is below the limit, the verdict is not given, because a loss "
            "with a margin may stop pulling",
            OURS,
            below=0.01,
        ),
    ),
    Change(
        "--objective.ratio 1.5",
        lambda case: (
            case.words.related  # in a softmax, the pull equals the push already
            if any(loss.get("family") == "softmax" for loss in case.losses)
            else f"{case.words.contrastive}, whose pull equals its push"
        ),
    ),
    unless=(lambda case: crosses("positive_closer", _risen(case, "positive_mean")), _does_not_pull),
    shows=(_risen_angle, "ratio", "positive_mean", "negative_mean"),
)


def _contrastive_training(case: RunEvidence) -> str:
    """Return the flag for infonce; if it was infonce already, for a higher learning rate."""
    if case.rows and case.objective is not None and case.objective.name == "infonce":
        return proposals.rate_flag(case, 10)
    return "--objective infonce (a short `isotrope train` from this encoder)"


def _short_training(case: RunEvidence) -> str:
    if not is_contrastive(case):
        return f"a short training with {case.words.contrastive}"
    return proposals.rate_in_trainer(case, 10)


ANISOTROPIC_START = Verdict(
    "anisotropic-start",
    "the embeddings of different texts have nearly the same direction",
    "The embeddings of different texts have nearly the same direction, as in a language model that "
    "was never trained to compare texts. Until training changes this, cosines tell little about "
    "the texts.",
    (
        Threshold(
            "mean_cosine",
            "mean cosine of different texts",
            "mean cosine of different texts. The diagnosed model embeds the texts; for a run, its "
            "saved model embeds them",
            OURS,
            above=0.6,
            measure=lambda case: None if case.probe is None else case.probe["mean_cosine"],
        ),
        Threshold(
            "spread",
            "uniformity at the end (0: one point, -4: evenly spread)",
            "for a training: uniformity at the end (0: one point, -4: evenly spread)",
            f"the verdict `negatives-not-hard` uses the same limit; {ZOO}",
            above=-1.0,
        ),
    ),
    Change(_contrastive_training, _short_training),
    texts_only=True,
    unless=(lambda case: bool(case.rows) and not crosses("spread", case.end("uniformity")),),
    shows=("uniformity", "effective_rank"),
)


def nothing_learnt(case: RunEvidence) -> Found | None:
    """Return a sign that the model has learnt nothing, and the remedy; None without one."""
    if len({*case.series("loss")}) < _LEARNING or gain_in_score(case) is not None:
        return None
    steps = Evidence("logged_steps", len(case.rows))
    left, changed = case.end("unexplained") or 0.0, any(_changed(case, x) for x in _LEARNT)
    # an offset of the labels or noise in them also leaves much unexplained
    late = case.series("label_gap")[-len(case.rows) // 2 :] or [0.0]
    follows = math.sqrt(len(late)) * statistics.fmean(late) > _CLEAR * statistics.pstdev(late)
    outside = (case.end("loss") or 0.0) > left  # labels from -1 to 1 have a variance of at most 1
    if crosses("unexplained", left) and (outside or not (changed and follows)):
        return Found(
            (compared("unexplained", left), *further_evidence(case, "loss")),
            "At the end, the cosines predict the labels hardly better than the mean label would: "
            "the model has not learnt the labels.",
            "labels between -1 and 1 if some are outside, more steps, or another learning rate",
        )
    done = case.series("dead") or [0.0] * len(case.series("unexplained"))
    if not done or statistics.median(done) > _STILL or changed:
        return None
    return Found(
        (steps, *further_evidence(case, "loss", "positive_mean", "negative_mean")),
        "Neither the loss nor the embeddings changed by more than batches differ by chance: "
        "nothing shows that the model has learnt anything.",
        "more steps, larger batches or, if it is lower than usual, a higher learning rate",
    )


def _changed(case: RunEvidence, column: str) -> bool:
    """Whether a column's first and last third differ by more than batches differ by chance."""
    values = case.series(column)
    third = len(values) // 3
    if not third:
        return False
    change = abs(statistics.fmean(values[-third:]) - statistics.fmean(values[:third]))
    apart = ([abs(b - a) for a, b in zip(values, values[k:], strict=False)] for k in (1, 2))
    chance = min(map(statistics.median, apart))  # batches of two data sets may take turns
    return change > _CHANCE * chance * math.sqrt(2 / third)


def _overfitting(case: RunEvidence) -> Found | None:
    if len(case.scores) < 2:
        return None
    step, best = max(case.scores, key=lambda pair: (pair[1], -pair[0]))
    last = case.scores[-1][1]
    name = "dev_fall_images" if case.kind == "images" else "dev_fall"
    if not crosses(name, best - last):
        return None
    never_rose = step == 0
    if never_rose and case.judgement is not None and case.judgement.outcome == "undecided":
        return None
    return Found(
        (
            compared(name, best - last),
            *further_evidence(
                case, "loss", "dissipation", best_score=best, last_score=last, best_step=step
            ),
        ),
        "The score on held-out data has fallen from its highest value while training continued."
        + (" No score was above the score before training." if never_rose else ""),
        proposals.rate_flag(case, 1 / 3) if never_rose else f"--max-steps {step}",
    )


OVERFITTING = Verdict(
    "overfitting",
    "the dev score falls while training continues",
    "The score on held-out data fell while training continued. `isotrope train` saves the model "
    "with the highest score (with `--prefer trained`, and on images: the last model).",
    thresholds=(
        Threshold(
            "dev_fall",
            "best dev score minus the last",
            "for texts: highest dev score minus the last dev score",
            OURS,
            above=1.5,
            unit="points",
        ),
        Threshold(
            "dev_fall_images",
            "best dev score minus the last",
            "for images: highest kNN accuracy minus the last kNN accuracy",
            OURS,
            above=5.0,
            unit="points",
        ),
    ),
    change=Change(loop=lambda case: case.words.best),
    when=_overfitting,
)


def _spreading(case: RunEvidence) -> Found | None:
    if len(case.series("positive_mean")) < _MOVED:
        return None
    positive, negative = _risen(case, "positive_mean"), _risen(case, "negative_mean")
    above = case.end("above_bound")
    if above is None or positive is None or negative is None or crosses("above_bound", above):
        return None
    if not crosses("both_fall", positive) or negative <= positive:
        return None
    return Found(
        (
            compared("both_fall", positive),
            Evidence("negative_angle_risen", negative, unit="rad"),
            compared("above_bound", above),
            *further_evidence(case, "ratio", "positive_mean", "negative_mean"),
        ),
        decided_by="above_bound",
    )


SPREADING = Verdict(
    "spreading",
    "healthy: similarities to positives and negatives fall, because the embeddings spread out",
    "Nothing is wrong. The embeddings were close together at first and spread out. The similarity "
    "of anchors to positives therefore falls; their similarity to negatives falls more.",
    (
        Threshold(
            "both_fall",
            "change of the angle to positives since the first logged step",
            "mean angle between anchors and positives at the end, minus its value at the first "
            "logged step. The mean angle between anchors and negatives must have risen even more",
            "we chose the limit; it only decides whether `spreading` is printed after `healthy`",
            above=0.05,
            unit="rad",
        ),
    ),
    Change("none"),
    when=_spreading,
    only_if_healthy=True,
    is_fault=False,
)
