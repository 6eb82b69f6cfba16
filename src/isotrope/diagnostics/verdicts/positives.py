"""Verdicts on the pairs of a batch: no negatives, identical views, unrelated or equal pairs."""

import math
import statistics
from collections.abc import Sequence

from isotrope.diagnostics.evidence import Row, RunEvidence
from isotrope.diagnostics.findings import Evidence
from isotrope.diagnostics.proposals import larger_batch
from isotrope.diagnostics.readings import (
    collapsed_at_start,
    cosines_per_score,
    further_evidence,
    gain_in_score,
    has_copies,
    loss_falls,
    pushes_apart,
    separation,
    usual_change,
)
from isotrope.diagnostics.verdict import Change, Found, Threshold, Verdict, compared, crosses
from isotrope.diagnostics.verdicts.sources import DONE, EFFECTS, NEWER, ZOO

_MANY = 9  # logged steps
_LEAST_LABELLED = 3  # batches that all have to show inverted labels, if there are few of them
_LEAST_GRADED = 5  # measurements of a batch that show whether graded labels are inverted
_CHANCE = 2  # median differences of two batches, which are about two standard deviations
_CLEAR = 0.3  # how much nearer positives are than negatives, in standard deviations
_STILL = 0.8  # of the first spread; a healthy training of texts has 0.85 to 1.04
_NARROW = 5.0  # unexplained variance from which labels vary too little beside the cosines
_LEARNT_BY = 200  # steps; we chose the limit ourselves: small encoders learnt it in 20 to 80 steps
_UNRELATED, _OF_UNIT = (1.2, 2.5), 0.3  # unexplained variance; variance of labels from 0 to 1

_NOT_RELATED = (
    "Before training, positives are no closer to their anchors than other texts are. Texts that "
    "belong together would be closer, so the columns or lines of the file are probably mixed up."
)
_FROM_RANDOM_WEIGHTS = (
    f" If the encoder started from random weights, look again after {_LEARNT_BY} steps: it may not "
    "have learnt yet to separate pairs that belong together."
)


def _no_negatives(case: RunEvidence) -> Found | None:
    """A contrastive loss without negatives has no gradient; a loss of single pairs has one."""
    paired = [row for row in case.rows if row.get("positive_mean") is not None]
    # the angles of negatives that a loss picks itself are not measured
    alone = [row for row in paired if not (row.get("negative_mean") or row.get("negatives"))]
    share = len(alone) / max(1, len(paired))
    if not crosses("without_negatives", share):
        return None
    gradient = case.end("embedding_gradient")
    if case.objective is None and not crosses("gradient_alone", gradient):
        return None
    if case.objective is not None and not pushes_apart(case.objective):
        return None
    size = case.batch_size
    gradients = [] if gradient is None or case.objective is not None else [gradient]
    groups = "" if size == 1 else ", and more than one group in a batch (--groups)"
    return Found(
        (
            compared("without_negatives", share),
            *(compared("gradient_alone", number) for number in gradients),
            *further_evidence(case, "loss", batch_size=size),
        ),
        change=f"--batch-size {max(64, size or 0)}{groups}",
    )


NO_NEGATIVES = Verdict(
    "no-negatives",
    "no anchor has a negative in its batch",
    "No anchor has a negative in its batch, so a loss such as InfoNCE is 0 and the model learns "
    "nothing. A loss of 0 does not mean that training succeeded.",
    (
        Threshold(
            "without_negatives",
            "batches in which no anchor has a negative",
            "share of the logged steps in which no anchor has a negative",
            "we chose the limit ourselves: more than half of the steps. A batch has no negatives "
            "if it is a single row, or if all its rows belong to one group",
            above=0.5,
            unit="of the logged steps",
        ),
        Threshold(
            "gradient_alone",
            "mean length of the gradient on an anchor",
            "for a loss of another library: mean length of the gradient on an anchor. The verdict "
            "is given only if this length is below the limit, because a loss of single pairs "
            "learns without negatives",
            "without negatives, the gradient of a loss such as InfoNCE is 0, except for rounding",
            below=1e-6,
        ),
    ),
    Change(
        loop=lambda case: (
            larger_batch(case) + ("" if case.batch_size == 1 else f", or {case.words.negatives}")
        )
    ),
    explains=("collapsed", *DONE, *EFFECTS),
    when=_no_negatives,
)


def _largest_view_angle(case: RunEvidence) -> float | None:
    if angles := case.series("positive_mean"):  # a momentum encoder differs after the first step
        return angles[0] if case.settings.get("queue") else max(angles)
    return None if case.objective is None else (case.probe or {}).get("positive_mean")


DEAD_VIEWS = Verdict(
    "dead-views",
    "the two views of a text are the same",
    "The two views of a text have exactly the same embedding. The distance of an anchor to its "
    "positive is 0 before training begins, so the pair teaches nothing.",
    (
        Threshold(
            "view_angle",
            "largest mean angle between the two views of a text",
            "largest value, over all logged steps, of the mean angle between anchors and "
            "positives. If candidates get no gradient, as from a momentum encoder: the first value",
            f"without dropout, the angle is 0, except for rounding; {ZOO}",
            below=0.001,
            unit="rad",
            measure=_largest_view_angle,
        ),
    ),
    Change("--dropout 0.1", lambda case: case.words.views),
    explains=("unrelated-positives", *DONE, "false-negatives", "losing-pull"),
    unless=(collapsed_at_start,),
    shows=("negative_mean", "dead"),
)


def _unrelated_positives(case: RunEvidence) -> Found | None:
    """Return the finding; None for our crops of one image, because they do belong together."""
    if case.kind == "images" and not case.losses:
        return None
    inverted = _inverted(case)
    if inverted is not None:
        return Found(
            (inverted, *further_evidence(case, "loss")),
            "Pairs with higher labels are farther apart than pairs with lower labels, so the "
            "labels look inverted. Check whether the labels are distances, or whether a label of 1 "
            "means 'different'.",
            "--columns ANCHOR,POSITIVE (labels that are larger for pairs that belong together)",
        )
    decided = _decided(case)
    if decided is None or not crosses("separation", decided) or collapsed_at_start(case):
        return None
    sampled = case.start is not None or case.probe is not None
    unclear = _something_else(case) or _unclear_labels(case)
    explained = not sampled and (unclear or _learnt(case))
    if explained or _clear_at_first(case):
        return None
    columns = ("positive_mean", "negative_mean", "loss")
    shown = (compared("separation", decided), *further_evidence(case, *columns))
    is_young = not sampled and (case.rows[-1].get("step") or 0.0) < _LEARNT_BY
    return Found(shown, _NOT_RELATED + _FROM_RANDOM_WEIGHTS * is_young)


def _inverted(case: RunEvidence) -> Evidence | None:
    """Return the number that shows that labels are inverted; None if they are not."""
    name = "graded_gap" if case.series("graded_gap") else "label_gap"
    gap, gaps = case.first(name), case.series(name)
    if len(gaps) >= _LEAST_GRADED and (name == "graded_gap" or case.series("unexplained")):
        gap = statistics.median(gaps[: max(_LEAST_GRADED, len(gaps) // 3)])
    elif name == "graded_gap":  # of a single batch each
        gap = None
    elif case.series("unexplained"):
        gap = max(gaps) if len(gaps) >= _LEAST_LABELLED else None
    return compared(name, gap) if gap is not None and crosses(name, gap) else None


def _decided(case: RunEvidence) -> float | None:
    """Return how much nearer positives are in a data sample or, without one, early in the log."""
    # One batch is a small sample. An encoder that starts from random weights separates no pairs at
    # its first step, but learns within a few steps to separate pairs that belong together.
    sampled = separation(case.start if case.start is not None else case.probe)
    if sampled is not None or not case.rows or case.series("graded_gap"):
        return sampled
    if len(case.rows) < _MANY:  # labels show too little in one batch
        return None if case.series("label_gap") else separation(case.rows[0])
    least = _STILL * (case.first("std") or 0.0)  # embeddings that diverge move together
    fresh = [row for row in _fresh(case) if (row.get("std") or 0.0) >= least]
    leads = [x for row in fresh if (x := separation(row)) is not None]
    third = case.rows[: len(case.rows) // 3]
    return statistics.fmean(leads) if len(leads) >= _MANY else _median(third)


def _fresh(case: RunEvidence) -> Sequence[Row]:
    """Return the rows of the first epoch, in which each pair is seen for the first time."""
    return [row for row in case.rows if (at := row.get("epoch")) is not None and at < 1]


def _clear_at_first(case: RunEvidence, least: float = _CLEAR, steps: int = 1) -> bool:
    """Whether the first steps separate their pairs, by more than batches differ by chance."""
    leads = [x for row in _fresh(case) or case.rows if (x := separation(row)) is not None]
    first = statistics.fmean(leads[:steps] or [0.0])
    return first > max(least, _CHANCE * usual_change(leads) / math.sqrt(steps))


def _median(rows: Sequence[Row]) -> float | None:
    known = [x for row in rows if (x := separation(row)) is not None]
    return statistics.median(known) if known else None


def _something_else(case: RunEvidence) -> bool:
    """Whether copies, the temperature or a collapse explain why positives are no nearer."""
    # A copy of a positive among the negatives is as near as the positive itself. Two encoders with
    # random weights separate nothing at first, after a collapse, or at a very low temperature.
    sharp = crosses("hardest_of_cosines", case.first("hardest_share"))
    tau = case.first("temperature")
    cold = sharp and crosses("temperature_of_cosines", tau and tau / cosines_per_score(case))
    gone = crosses("collapse_uniformity", case.end("uniformity"))
    return cold or has_copies(case.early, case.end) or (case.settings.get("encoders") == 2 and gone)


def _learnt(case: RunEvidence) -> bool:
    """Whether the encoder has learnt the pairs, without signs that it only memorised them."""
    late = _median(case.rows[-max(1, len(case.rows) // 3) :])
    if late is None or len(case.rows) < _MANY or _by_heart(case):
        return False
    return late > _CLEAR and loss_falls(case)


def _unclear_labels(case: RunEvidence) -> bool:
    """Whether the labels of a squared error vary too little or are too noisy to be called wrong."""
    # If right labels are noisy, or vary less than the cosines, batches show hardly any relation.
    left, gaps = case.end("unexplained"), case.series("label_gap")
    if left is None or not gaps:
        return False
    # labels from 0 to 1 vary by at most 1/4; noise does not hide that larger ones are right
    known = [x / y for r in case.rows if (x := r.get("loss")) and (y := r.get("unexplained"))]
    varied = statistics.median(known or [math.inf])
    errors = 1 if left < _UNRELATED[1] else 2  # the cosines still vary more than the labels
    halves = (gaps, gaps[: max(_MANY, len(gaps) // 2)])  # later, pairs may be known by heart
    near = any(crosses("separation", _mean_plus(x, errors)) for x in halves)
    opposite = _mean_plus(gaps, 2) < 0  # right labels never are, however much they vary
    clear = left < _NARROW and (left > _UNRELATED[0] or varied < _OF_UNIT)
    return not opposite and not (near and clear)


def _mean_plus(values: Sequence[float], errors: float) -> float:
    """Return the mean plus a number of standard errors."""
    return statistics.fmean(values) + errors * statistics.pstdev(values) / math.sqrt(len(values))


def _by_heart(case: RunEvidence) -> bool:
    """Whether pairs that the first epoch did not separate are separated early in the second."""
    # Pairs that belong together are learnt step by step, in the first epoch too.
    epochs = [[r for r in case.rows if int(r.get("epoch") or 0) == epoch] for epoch in (0, 1)]
    if min(map(len, epochs)) < _MANY:
        return False
    halves = (half for e in epochs for half in (e[: len(e) // 2], e[len(e) // 2 :]))
    _, before, after, later = (_median(half) or 0.0 for half in halves)
    return before < _CLEAR / 2 and after - before > max(_CLEAR, 2 * (later - after))


def _perhaps_by_heart(case: RunEvidence) -> bool:
    """Whether pairs that were not separated at first were learnt later, perhaps by memorising."""
    # An encoder also learns pairs that do not belong together if it sees them again and again. In
    # the first epoch, it sees each pair once.
    if case.kind == "images" or len(case.rows) < _MANY:
        return False
    fresh = _fresh(case)
    learnt = (_median(fresh[-max(1, len(fresh) // 3) :]) or 0.0) > _CLEAR
    steps = 5 if case.series("unexplained") else 3  # a batch may have few labels of either kind
    decided = _decided(case) if case.series("unexplained") else None
    apart = decided is not None and crosses("separation", decided)  # by chance in the first steps
    return not learnt and (apart or not _clear_at_first(case, _CLEAR / 2, steps))


def relation_unknown(case: RunEvidence) -> bool:
    """Return whether nothing shows that the pulled pairs belong together."""
    gain = gain_in_score(case)
    if case.objective is not None or not case.losses or (gain and not crosses("gain", gain)):
        return False
    seen = any(separation(row) is not None for row in case.rows)
    if seen or case.kind == "images":
        return _perhaps_by_heart(case)
    return not (loss_falls(case) and all(loss.get("family") == "pairs" for loss in case.losses))


def _belonging(case: RunEvidence) -> str:
    if _inverted(case) is not None:
        return "1 - LABEL in place of LABEL, so that pairs that belong together have larger labels"
    if case.first("label_gap") is None:
        return case.words.related
    if case.series("unexplained"):
        return "each label beside its own pair, and larger labels for pairs that belong together"
    return "equal labels for rows that belong together, and different labels for all other rows"


UNRELATED_POSITIVES = Verdict(
    "unrelated-positives",
    "positives are no closer to their anchors than negatives",
    _NOT_RELATED,
    (
        Threshold(
            "separation",
            "how much closer positives are than negatives before training",
            "how much larger the mean angle between anchors and negatives is than that between "
            "anchors and positives, in units of the larger standard deviation of the angles. The "
            "list above the table says in which batches the angles are measured",
            ZOO,
            below=0.15,
            unit="standard deviations",
        ),
        Threshold(
            "label_gap",
            "how much closer pairs with high labels are in the first logged steps",
            "for labelled pairs, in the first logged steps with 8 pairs of either label: how much "
            "larger the mean angle is in pairs with lower labels than in pairs with higher labels, "
            "in units of the larger standard deviation of the angles. For a mean squared error: "
            "the median of the first five or more steps, or the largest of three or four",
            f"{NEWER}. With 8 pairs of low and 8 of high labels, the limit is two standard errors",
            below=-1.0,
            unit="standard deviations",
        ),
        Threshold(
            "graded_gap",
            "how much closer pulled pairs are than pushed ones",
            "for labels other than 0 and 1: how much larger the mean angle is in the pairs that "
            "the loss pushes apart than in the pairs that it pulls together, in units of the "
            "larger standard deviation: the median of the first measurements, at least five",
            "right labels may also give negative numbers: -1.7 to 2.3 in simulated batches whose "
            "cosines and labels correlate by 0.5 to 0.7. Inverted ones gave -1.6 to -3.7 at -0.8",
            below=-1.9,
            unit="standard deviations",
        ),
        Threshold(
            "copies_apart",
            "anchors with a negative that looks like a positive",
            "share of the anchors with a negative that looks like a positive. If the share is "
            "above the limit in the first third of the run and at the end, negatives are copies of "
            "positives. No positive can be closer than its copy, so the verdict is then given only "
            "if a sample of the data shows it",
            "with four captions for each picture and batches of 32, the share is 1; with shuffled "
            "captions, it is 0 to 0.05 (benchmarks/hosts.py)",
            above=0.5,
            unit="of the anchors",
        ),
    ),
    Change("--columns ANCHOR,POSITIVE (columns that belong together, or another file)", _belonging),
    explains=("diverging", "collapsed", *EFFECTS),
    when=_unrelated_positives,
)


ONLY_PULLED = Verdict(
    "only-pulled",
    "every pair is pulled together and none is pushed apart",
    "The loss pulls every pair together and pushes none apart: all pairs have the same high label, "
    "or all negatives are beyond the margin. Such a loss is smallest if all embeddings are equal, "
    "so training makes them equal.",
    (
        Threshold(
            "pulled",
            "pairs that are pulled together",
            "if all labels are equal: share of the pairs with a gradient that are pulled together",
            "by definition: if all labels are equal and high, this share is 1",
            above=0.99,
            unit="of the pairs",
            measure=lambda case: statistics.fmean(x) if (x := case.series("pulled")) else None,
        ),
    ),
    Change(
        "--objective infonce (its negatives are the other rows of the batch)",
        lambda case: (
            f"{case.words.contrastive}{case.words.without_labels}, a larger margin, or additional "
            "pairs that do not belong together, with a label of 0"
        ),
    ),
    explains=("diverging", "collapsed", *EFFECTS),
    # labels differ; pairs with low labels may be far apart already and not pushed
    unless=(
        lambda case: bool(case.series("label_gap")),
        # nothing is left to learn: the pairs beyond the margin are farther than the pulled ones
        lambda case: crosses("dead_early", statistics.median(case.series("dead") or [0.0])),
        # other pairs, which the loss leaves alone, are far apart
        lambda case: bool(case.end("negatives")) and not crosses("spread", case.end("uniformity")),
    ),
    shows=("uniformity", "std", "loss"),
)
