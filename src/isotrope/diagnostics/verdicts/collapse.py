"""Verdicts on embeddings that collapse or grow: divergence, collapse, large norms."""

import math
import statistics
from collections.abc import Callable, Iterator

from isotrope.core.image_methods import METHODS, ImageMethodRecord
from isotrope.diagnostics import proposals
from isotrope.diagnostics.evidence import RunEvidence, sane
from isotrope.diagnostics.findings import Evidence
from isotrope.diagnostics.metrics import MEASURED
from isotrope.diagnostics.readings import (
    collapsed_at_start,
    deciding_part,
    further_evidence,
    has_copies,
    negative_count,
    objective_margin,
    objective_temperature,
    planned,
    pushes_apart,
    rank_limit,
    separation,
    usual_change,
)
from isotrope.diagnostics.verdict import Change, Found, Threshold, Verdict, compared, crosses
from isotrope.diagnostics.verdicts.sources import DONE, EFFECTS, ZOO

ANOTHER = "--encoder all-MiniLM-L6-v2 (or another encoder)"
_LEAST_GAPS, _LEAST_GAP, _APART, _BY_CHANCE = 6, 0.3, 2, 2.5  # others may be, or fall, by chance
_LITTLE, _LEARNT = 0.05, 0.7  # of the loss of guessing: least divisor, InfoNCE of learnt pairs


def _not_finite(case: RunEvidence) -> Found | None:
    broken = [
        row
        for row in case.rows
        if any(not sane(x) for name in ("loss", *MEASURED) if (x := row.get(name)) is not None)
    ]
    if not crosses("rows_not_finite", len(broken)):
        return None
    more = {"logged_steps": len(case.rows), "learning_rate": planned(case, "learning-rate")}
    return Found(
        (compared("rows_not_finite", len(broken)), *further_evidence(case, **more)),
        "The loss or the embeddings overflowed, or were NaN from the start. The first logged step "
        f"with NaN or infinity is {broken[0].get('step') or 0:.0f}: ignore the log from there on.",
        proposals.rate_flag(case, 0.1),
    )


def _diverging(case: RunEvidence) -> Found | None:
    if _decayed(case) or _nothing_pushes(case) or collapsed_at_start(case):
        return None
    for sign, numbers in _signs_of_large_steps(case):
        evidence = [compared(k, v) for k, v in numbers.items() if v is not None and crosses(k, v)]
        if len(evidence) == len(numbers):
            rate = planned(case, "learning-rate")
            more = further_evidence(case, "uniformity", "norm", "loss", learning_rate=rate)
            detail = f"The steps are too large: {sign}."
            return Found((*evidence, *more), detail, proposals.rate_flag(case, 0.1))
    return None


def _signs_of_large_steps(case: RunEvidence) -> Iterator[tuple[str, dict[str, float | None]]]:
    """Yield signs of large steps, with numbers by their thresholds; a sign needs all to cross."""
    gap, rise = {"lost_gap": _unlearnt(case)}, {"loss_rise": _rise(case)}
    spread = _over_first(case, "std", case.end)
    if case.series("label_gap") and (case.end("label_gap") or 0.0) < _APART:
        sign = "the gap in angle between pairs with low and high labels halved, and the loss rose"
        yield sign, gap | rise
    sign = "the embeddings moved together, and the gap in angle of positives and negatives halved"
    yield sign, gap | {"lost_spread_at_the_end": spread}
    # a growing penalty raises the loss although the pairs are learnt
    if _knew_pairs(case) and not any(0 < (x.get("over_guess") or 0) < _LEARNT for x in case.losses):
        sign = "the embeddings moved together instead of apart, and the loss hardly fell"
        yield sign, {"lost_room": spread, "loss_not_lower": _over_least(case)}
    sign = "the embeddings moved together, and the loss is higher at the end than at step 0"
    yield sign, {"lost_spread": _over_first(case, "std", case.early)} | rise
    sign = "the loss is far above its value at step 0, and above the loss of random guessing"
    yield sign, {"loss_explodes": _over_guess(case)}
    rank = _over_first(case, "effective_rank", case.early)
    sign = "the loss rose at first, and the effective rank of the embeddings fell"
    yield sign, {"lost_rank": rank, "loss_up_early": _early_loss(case)}
    if _may_explode(case):
        jump = "norm_jump" if case.kind == "images" else "norm_jump_text"
        sign = "the embeddings became so long that later steps hardly change their directions"
        yield sign, {jump: _over_first(case, "norm", case.early)}


def _knew_pairs(case: RunEvidence) -> bool:
    """Return whether positives of a softmax were nearer at first, without copies or a queue."""
    # pushing copies apart moves embeddings together, and the keys of a queue are random at first
    if has_copies(case.first, case.early) or case.settings.get("queue") or not case.rows:
        return False
    tau, lead = objective_temperature(case) or case.end("temperature"), separation(case.rows[0])
    return None not in (tau, lead) and not crosses("separation", lead)


def _may_explode(case: RunEvidence) -> bool:
    """Return whether longer embeddings are a fault. With ``--cut`` they start short on purpose."""
    if crosses("radial", case.end("radial")):
        return False
    if case.kind == "images":
        return crosses("norm", case.early("norm"))
    return (case.settings.get("cut") or 1) <= 1


def _over_first(
    case: RunEvidence, column: str, later: Callable[[str], float | None]
) -> float | None:
    """Return the value of a column later in the run, divided by its value before training."""
    first, value = case.first(column), later(column)
    return value / first if first and value is not None and case.rows else None


def _unlearnt(case: RunEvidence) -> float | None:
    """Return the separation of the pairs at the end, divided by their separation at the start."""
    # With labels: the separation of pairs with low and high labels. One batch is a small sample.
    known = [gap for row in case.rows if (gap := separation(row)) is not None]
    gaps = case.series("label_gap") or known
    end = statistics.median(gaps[-len(gaps) // 3 :] or [0.0])
    least = max(_LEAST_GAP, end + _BY_CHANCE * usual_change(gaps))
    return end / gaps[0] if len(gaps) >= _LEAST_GAPS and gaps[0] > least else None


def guess(case: RunEvidence) -> float:
    """Return the softmax loss of an encoder that guesses among the positive and the negatives."""
    return math.log(1 + (negative_count(case) or 1))


def _over_guess(case: RunEvidence) -> float | None:
    """Return the final loss divided by the loss at step 0 or of guessing, whichever is larger."""
    first, end = case.first("loss"), case.end("loss")
    if first is None or end is None or not crosses("radial", case.end("radial")):
        return None  # a loss of cosines is limited by its temperature
    return end / max(first, guess(case))


def _over_least(case: RunEvidence) -> float | None:
    """Return the final loss divided by the loss at step 0 or of guessing, whichever is smaller."""
    first, end = case.first("loss"), case.end("loss")
    return end / min(first, guess(case)) if first and first > 0 and end is not None else None


def _early_loss(case: RunEvidence) -> float | None:
    """Return the loss in the first third, divided by the loss at step 0 (at least ``_LITTLE``)."""
    first, early = case.first("loss"), case.early("loss")
    return None if first is None or early is None else early / max(first, _LITTLE * guess(case))


def _rise(case: RunEvidence) -> float | None:
    """Return the final loss divided by the loss at step 0; None if that divisor is not positive."""
    # A queue holds random vectors at first, so its divisor is the loss in the first third.
    first = case.early("loss") if case.settings.get("queue") else case.first("loss")
    end = case.end("loss")
    return end / first if first is not None and first > 0 and end is not None else None


DIVERGING = Verdict(
    "diverging",
    "the learning rate is too high",
    "The steps are so large that they destroy what the encoder has learnt. The loss rises or "
    "hardly falls, embeddings move together or become much longer, or numbers become NaN.",
    thresholds=(
        Threshold(
            "rows_not_finite",
            "logged steps with numbers that are not finite",
            "number of logged steps with a value that is NaN, infinite or above 1e30",
            "by definition: one such step is a fault",
            above=0,
        ),
        Threshold(
            "lost_spread",
            "spread of the embeddings in the first third of the run",
            "standard deviation of an embedding coordinate, averaged over the coordinates, in the "
            "first third of the run, divided by its value at step 0",
            ZOO,
            below=0.2,
            unit="of the first value",
        ),
        Threshold(
            "lost_gap",
            "how much closer positives are than negatives at the end",
            "gap at the end, divided by the first gap. The gap says how much larger the mean angle "
            "to negatives is than the mean angle to positives, in units of the larger standard "
            "deviation of the angles. With labels, pairs with low labels count as negatives",
            "we chose the limit after the Doctor had wrongly called two public trainings healthy",
            below=0.5,
            unit="of the first value",
        ),
        Threshold(
            "lost_spread_at_the_end",
            "spread of the embeddings at the end",
            "standard deviation of an embedding coordinate, averaged over the coordinates, at the "
            "end, divided by its value at step 0",
            "the same limit as for `lost_spread`. If the embeddings are spread evenly at step 0, a "
            "number of 0.2 means that their mean cosine has become 0.96. In a healthy training of "
            "a masked language model at a temperature of 0.02, the spread fell to 73%",
            below=0.2,
            unit="of the first value",
        ),
        Threshold(
            "lost_room",
            "spread of the embeddings at the end",
            "the same number as for `lost_spread_at_the_end` (the row above)",
            "in trainings that diverged, the spread fell to 12% to 66% of its first value "
            "(benchmarks/hosts.py: two layers of all-MiniLM-L6-v2, 100 times the usual rate)",
            below=0.7,
            unit="of the first value",
        ),
        Threshold(
            "loss_not_lower",
            "loss at the end",
            "loss at the end, divided by the smaller of two losses: the loss at step 0, and the "
            "loss of guessing the positive at random. It does not count if InfoNCE of the pairs in "
            f"the last measured batch is below {_LEARNT:g} times the loss of guessing",
            "we chose the limit; in trainings that diverged, this quotient was 0.95 to 1.8",
            above=0.9,
            unit="of the first loss, or of the loss of guessing",
        ),
        Threshold(
            "loss_explodes",
            "loss at the end",
            "for a loss that does not compare cosines: loss at the end, divided by the larger of "
            "two losses: the loss at step 0, and the loss of guessing the positive at random",
            "we chose the limit; if a training learns nothing, the loss stays near its first value",
            above=3.0,
            unit="times the first loss, or the loss of guessing",
        ),
        Threshold(
            "lost_rank",
            "effective rank in the first third of the run",
            "effective rank of the embeddings in the first third of the run, divided by that at "
            "step 0",
            "in a network with batch normalisation, the rank fell to 62% at 100 times the usual "
            "learning rate, and did not fall at the usual rate (benchmarks/hosts.py)",
            below=0.75,
            unit="of the first value",
        ),
        Threshold(
            "loss_up_early",
            "loss in the first third of the run",
            "loss in the first third of the run, divided by the larger of two numbers: the loss at "
            "step 0, and 5% of the loss of guessing the positive at random",
            "we chose the limit; in a network with batch normalisation at 100 times the usual "
            "learning rate, this quotient was 1.9",
            above=1.3,
            unit="of the first value",
        ),
        Threshold(
            "loss_rise",
            "loss at the end",
            "loss at the end, divided by the loss at step 0. For a training with a queue: loss at "
            "the end, divided by the loss in the first third of the run",
            ZOO,
            above=1.0,
            unit="of the first value",
        ),
        Threshold(
            "norm_jump",
            "norm in the first third of the run",
            "for images: mean norm of the embeddings, before they are scaled to length 1, in the "
            "first third of the run, divided by their mean norm at step 0",
            "a step adds (learning rate x gradient length)^2 to the squared norm of an embedding "
            f"(Draganov et al., 2024, corollary 3.2); {ZOO}",
            above=10.0,
            unit="times the first value",
        ),
        Threshold(
            "norm_jump_text",
            "norm in the first third of the run",
            "for texts: the same number as for `norm_jump` (the row above)",
            f"each step makes the embeddings longer (see `norm_jump`); {ZOO}",
            above=4.0,
            unit="times the first value",
        ),
    ),
    change=Change(loop=proposals.rate_in_trainer),
    explains=("diverging", "collapsed", *DONE, *EFFECTS),
    when=_diverging,
    before_all=_not_finite,
)


def _collapsed(case: RunEvidence) -> Found | None:
    numbers = {"collapse_uniformity": case.end("uniformity"), "collapse_std": case.end("std")}
    evidence = [compared(k, v) for k, v in numbers.items() if v is not None and crosses(k, v)]
    if not evidence:
        return None
    why, change, more = _why_collapsed(case)
    return Found(
        (*evidence, *more, *further_evidence(case, "negative_mean", "std", "norm")),
        f"The embeddings of all inputs have nearly the same direction. {why}",
        change,
        decided_by=(*more, *evidence)[0].name,
    )


def _why_collapsed(case: RunEvidence) -> tuple[str, str, tuple[Evidence, ...]]:
    """Return the cause, the change, and the numbers that show the cause."""
    decay = planned(case, "weight-decay")
    if not case.rows or collapsed_at_start(case):
        why = "The encoder was already collapsed before training, and training did not fix it."
        return why, ANOTHER, ()
    if decay is not None and _decayed(case):
        why = "The weight decay has shrunk the weights faster than the loss renews them."
        return why, "--weight-decay 5e-4", (compared("decay_that_kills", decay),)
    if _nothing_pushes(case):
        why = "The objective does not push embeddings apart."
        return why, "--method byol" if case.kind == "images" else "--objective infonce", ()
    if crosses("gd_at_the_end", case.end("dissipation")) and objective_margin(case) is not None:
        why = (
            "The encoder could not tell inputs apart at the start. A loss that pushes only the "
            "hardest negative, or pushes less than it pulls, then moves all embeddings to one "
            "point, at which the loss equals its margin."
        )
        return why, "--objective infonce (until embeddings differ; then your objective again)", ()
    why = "No other setting explains the collapse, so the learning rate is probably too high."
    return why, proposals.rate_flag(case, 0.1), ()


def _decayed(case: RunEvidence) -> bool:
    return case.kind == "images" and crosses("decay_that_kills", planned(case, "weight-decay"))


def _nothing_pushes(case: RunEvidence) -> bool:
    if case.objective is None or pushes_apart(case.objective):
        return False
    method = _method(case)
    return method is None or not method.prevents_collapse


def _method(case: RunEvidence) -> ImageMethodRecord | None:
    return METHODS.get(str(case.settings.get("method")).lower())


COLLAPSED = Verdict(
    "collapsed",
    "all embeddings are one point",
    "All inputs get nearly the same embedding, so a search cannot tell them apart.",
    thresholds=(
        Threshold(
            "collapse_uniformity",
            "uniformity at the end (0: one point, -4: evenly spread)",
            "uniformity of the embeddings at the end (0: one point, -4: evenly spread)",
            ZOO,
            above=-0.01,
        ),
        Threshold(
            "collapse_std",
            "standard deviation per dimension at the end",
            "standard deviation of a coordinate of the normalised embeddings, averaged over the "
            "coordinates, at the end. Unlike uniformity, it exists for zero vectors too",
            "by definition: the standard deviation is 0 if all embeddings are equal, and 1/sqrt(d) "
            "if they are evenly spread over d dimensions",
            below=1e-5,
        ),
        Threshold(
            "decay_that_kills",
            "weight decay",
            "for images: weight decay of the training. A large weight decay alone is no fault. If "
            "embeddings collapse, a weight decay above this limit is named as the cause",
            "Draganov et al., 2024, table 1 (SimCLR): the accuracy is 81.3 with a weight decay of "
            "5e-4, 54.0 with 5e-3, and at chance with 5e-2",
            above=5e-3,
        ),
    ),
    change=Change(loop=proposals.rate_in_trainer),
    explains=(*DONE, *EFFECTS),
    when=_collapsed,
)


def _dimensional_collapse(case: RunEvidence) -> Found | None:
    rank, most = case.end("effective_rank"), rank_limit(case)
    if rank is None or not most or not crosses("rank_share", rank / most):
        return None
    began = case.first("effective_rank")
    if crosses("false_negatives", case.first("false_negatives")):
        return None  # copies in the data lower the rank
    if _decayed(case):
        why = "The weight decay has shrunk the weights faster than the loss renews them."
        change = "--weight-decay 5e-4"
    elif case.rows and getattr(deciding_part(case, "weight"), "cov_coeff", None) == 0:
        why = "Nothing decorrelates the coordinates, because the setting cov_coeff is 0."
        change = "--objective.cov_coeff 1"
    elif began is None or crosses("rank_share", began / most):
        why = "This is a property of the encoder, not an effect of training."
        change = ANOTHER
    else:
        why = "Before training, they spread over more directions."
        other = "vicreg" if getattr(case.objective, "name", "") == "infonce" else "infonce"
        change = "--method vicreg" if case.kind == "images" else f"--objective {other}"
    return Found(
        (
            compared("rank_share", rank / most),
            *further_evidence(case, "effective_rank", "uniformity", "std"),
        ),
        f"The embeddings spread over about {rank:.1f} of {most} directions. {why}",
        change,
    )


DIMENSIONAL_COLLAPSE = Verdict(
    "dimensional-collapse",
    "the embeddings spread over only a few dimensions",
    "The embeddings differ, but only along a few directions. Most of their dimensions carry no "
    "information.",
    thresholds=(
        Threshold(
            "rank_share",
            "effective rank of a batch",
            "effective rank of the embeddings of a batch, divided by the largest possible rank: "
            "min(n - 1, d) for n embeddings of d dimensions",
            ZOO,
            below=0.1,
            unit="of min(n - 1, d)",
        ),
    ),
    change=Change(loop=lambda case: f"another encoder, or {case.words.contrastive}"),
    explains=("false-negatives", "negatives-not-hard", "anisotropic-start"),
    when=_dimensional_collapse,
)


def _norms_too_large(case: RunEvidence) -> Found | None:
    norm, decay = case.end("norm"), planned(case, "weight-decay")
    if norm is None or (case.objective is not None and case.objective.space != "sphere"):
        return None  # without normalisation any norm is allowed
    fixed = case.losses and not crosses("norm_growth", _over_first(case, "norm", case.end))
    if fixed or crosses("radial", case.end("radial")):
        return None
    unlimited = case.kind == "images" and crosses("decay_that_holds", decay)
    if crosses("norm", norm):
        evidence, change = [compared("norm", norm)], _shorter(case)
    elif decay is not None and unlimited and crosses("norm_without_decay", norm):
        evidence = [compared("decay_that_holds", decay), compared("norm_without_decay", norm)]
        change = "--weight-decay 5e-4"
    else:
        return None
    more = further_evidence(case, "embedding_gradient", norm_at_the_start=case.first("norm"))
    return Found((*evidence, *more), change=change)


def _shorter(case: RunEvidence) -> str:
    if case.kind != "images" and case.settings.get("head") != "mlp":
        return "--head mlp (its tanh keeps norms under sqrt(d))"
    method = _method(case)
    return f"--cut {3 if method is None else method.cut}"


NORMS_TOO_LARGE = Verdict(
    "norms-too-large",
    "the embeddings are so long that a step hardly turns them",
    "The embeddings are so long that a step hardly turns them. In a loss of cosines, longer "
    "embeddings get smaller gradients, and every step makes the embeddings longer.",
    (
        Threshold(
            "radial",
            "gradient along the embedding",
            "share of the gradient that changes the length of the embedding. If it is above the "
            "limit, the loss uses lengths (as dot products do), so long embeddings are no fault",
            "for cosines, this share is 0 except for rounding; our gradient tests use this limit",
            above=0.05,
            unit="of the gradient",
        ),
        Threshold(
            "norm",
            "mean norm of the embeddings",
            "mean norm of the embeddings before they are scaled to length 1",
            "the gradient is proportional to 1/norm, and a step turns the embedding by an angle "
            f"proportional to 1/norm^2 (Draganov et al., 2024, proposition 3.1, figure 2); {ZOO}",
            above=100.0,
        ),
        Threshold(
            "norm_growth",
            "growth of the mean norm",
            "for a loss of another library: mean norm at the end, divided by the first",
            "we chose the limit ourselves: long embeddings of a last norm layer do not grow",
            above=1.5,
        ),
        Threshold(
            "norm_without_decay",
            "mean norm of the embeddings",
            "for images: the same number as for `norm`, if `decay_that_holds` is below its limit",
            "Draganov et al., 2024, table 1: the norm is 16.4 to 31.4 without weight decay, and "
            "0.41 to 0.81 with a weight decay of 5e-4",
            above=1.0,
        ),
        Threshold(
            "decay_that_holds",
            "weight decay",
            "for images: weight decay of the training",
            "Draganov et al., 2024, table 1: a decay of 5e-6 has no more effect than no decay",
            below=1e-5,
        ),
    ),
    Change(loop=lambda case: case.words.shorter),
    when=_norms_too_large,
)
