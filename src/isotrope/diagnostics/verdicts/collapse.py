"""Rules on diverging training, collapse to a point and dimensional collapse."""

import statistics

from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Evidence, Finding
from isotrope.diagnostics.readings import (
    collapsed_at_start,
    crosses,
    further_evidence,
    learning_rate,
    lower_rate_flag,
    parameters,
    pushing,
    rank_limit,
    separation,
    weight_decay,
)
from isotrope.diagnostics.verdict import THRESHOLDS, compared

__all__ = ["collapsed", "dimensional_collapse", "diverging"]

ANOTHER = "--encoder all-MiniLM-L6-v2 (another one than this)"
_LEAST_GAPS = 6
# methods that prevent collapse by a predictor or a centre, without negatives
_PREVENT_COLLAPSE = ("byol", "simsiam", "dino")


def diverging(case: RunEvidence) -> Finding | None:
    """The first steps destroy the embeddings: the loss does not recover, or norms explode."""
    if _decayed(case) or _nothing_pushes(case) or collapsed_at_start(case):
        return None
    lost, rise, jump = _over_first(case, "std"), _rise(case), _over_first(case, "norm")
    unlearnt, spread = _unlearnt(case), _end_over_first(case, "std")
    labelled = bool(case.series("label_gap"))
    if labelled and crosses("lost_gap", unlearnt) and crosses("loss_rise", rise):
        evidence = [("lost_gap", unlearnt), ("loss_rise", rise)]
        what = "undone what told the labelled pairs apart, and the loss is above its start"
    elif crosses("lost_gap", unlearnt) and crosses("lost_spread_at_the_end", spread):
        evidence = [("lost_gap", unlearnt), ("lost_spread_at_the_end", spread)]
        what = "thrown the embeddings together, and undone what told positives from negatives"
    elif crosses("lost_spread", lost) and crosses("loss_rise", rise):
        evidence = [("lost_spread", lost), ("loss_rise", rise)]
        what = "thrown the embeddings together, and the loss ends above its start"
    elif _exploding(case, jump):
        evidence = [("norm_jump" if case.kind == "images" else "norm_jump_text", jump)]
        what = "made the embeddings many times as long, where their directions hardly turn"
    else:
        return None
    rate = learning_rate(case)
    return Finding(
        "diverging",
        (
            *(compared(name, number) for name, number in evidence if number is not None),
            *([] if rate is None else [Evidence("learning_rate", rate)]),
            *further_evidence(case, "uniformity", "norm", "loss"),
        ),
        THRESHOLDS[evidence[0][0]].source,
        lower_rate_flag(case, 10),
        f"The steps have {what}: they are too long.",
    )


def _exploding(case: RunEvidence, jump: float | None) -> bool:
    """Return whether norms explode; after cut-initialization fast growth is intended."""
    if crosses("radial", case.end("radial")):
        return False
    if case.kind == "images":
        return crosses("norm_jump", jump) and crosses("norm", case.early("norm"))
    return crosses("norm_jump_text", jump) and (case.setting("cut") or 1) <= 1


def _over_first(case: RunEvidence, column: str) -> float | None:
    """Return a column in the first third of the run over its value before the first update."""
    first, early = case.first(column), case.early(column)
    return early / first if first and early is not None else None


def _end_over_first(case: RunEvidence, column: str) -> float | None:
    """Return a column in the last third of the run over its value before the first update."""
    first, end = case.first(column), case.end(column)
    return end / first if first and end is not None and case.rows else None


def _unlearnt(case: RunEvidence) -> float | None:
    """Return how well pairs are told apart at the end, over how well they were at first.

    Pairs by their labels, if they have some, else positives from negatives. Not after fewer than
    six measured steps: that of one batch is a small sample.
    """
    gaps = case.series("label_gap") or [
        gap for row in case.rows if (gap := separation(row)) is not None
    ]
    if len(gaps) < _LEAST_GAPS or not gaps[0] > 0:
        return None
    return statistics.median(gaps[-len(gaps) // 3 :]) / gaps[0]


def _rise(case: RunEvidence) -> float | None:
    """Return the final loss over that of step 0; None if the latter is not positive."""
    first, end = case.first("loss"), case.end("loss")
    return end / first if first is not None and first > 0 and end is not None else None


def collapsed(case: RunEvidence) -> Finding | None:
    """All embeddings are one point; the settings and the start of the log give the reason."""
    numbers = {"collapse_uniformity": case.end("uniformity"), "collapse_std": case.end("std")}
    evidence = [compared(k, v) for k, v in numbers.items() if v is not None and crosses(k, v)]
    if not evidence:
        return None
    why, change, more = _why_collapsed(case)
    return Finding(
        "collapsed",
        (
            *evidence,
            *more,
            *further_evidence(case, "negative_mean", "std", "norm"),
        ),
        THRESHOLDS[(*more, *evidence)[0].name].source,
        change,
        f"All inputs get nearly the same direction. {why}",
    )


def dimensional_collapse(case: RunEvidence) -> Finding | None:
    """The embeddings differ, but in a few directions only."""
    rank, most = case.end("effective_rank"), rank_limit(case)
    if rank is None or not most or not crosses("rank_share", rank / most):
        return None
    began = case.first("effective_rank")
    if _decayed(case):
        why = "The weight decay has shrunk the weights faster than the loss renews them."
        change = "--weight-decay 5e-4"
    elif case.rows and parameters(case).get("cov_coeff") == 0:
        why = "Nothing keeps the coordinates apart: the weight of their covariances is 0."
        change = "--objective.cov_coeff 1"
    elif began is None or crosses("rank_share", began / most):
        why = "The encoder did so before the first step."
        change = ANOTHER
    else:
        why = "Training has taken the other directions away."
        of_this = case.objective is not None and case.objective.name == "infonce"
        other = "vicreg" if of_this else "infonce"
        change = "--method vicreg" if case.kind == "images" else f"--objective {other}"
    return Finding(
        "dimensional-collapse",
        (
            compared("rank_share", rank / most),
            *further_evidence(case, "effective_rank", "uniformity", "std"),
        ),
        THRESHOLDS["rank_share"].source,
        change,
        f"The embeddings use about {rank:.1f} of {most} directions. {why}",
    )


def _why_collapsed(case: RunEvidence) -> tuple[str, str, tuple[Evidence, ...]]:
    """Return the cause, the change, and the numbers that show the cause."""
    decay = weight_decay(case)
    if not case.rows or collapsed_at_start(case):
        why = "The encoder did so before the first step, and training has not led out of it."
        return why, ANOTHER, ()
    if decay is not None and _decayed(case):
        why = "The weight decay has shrunk the weights faster than the loss renews them."
        return why, "--weight-decay 5e-4", (compared("decay_that_kills", decay),)
    if _nothing_pushes(case):
        why = "Nothing in the objective pushes embeddings apart."
        return why, "--method byol" if case.kind == "images" else "--objective infonce", ()
    if crosses("gd_at_the_end", case.end("dissipation")) and _stops_by_margin(case):
        why = (
            "An anchor that is pushed from its hardest negative only, or less than it is pulled, "
            "ends at one point where the encoder could not tell inputs apart to begin with: the "
            "loss is then its margin."
        )
        return why, "--objective infonce (first; this one once inputs are told apart)", ()
    return "No setting explains it but the length of the steps.", lower_rate_flag(case, 10), ()


def _decayed(case: RunEvidence) -> bool:
    """Return whether the weight decay is so high that encoders of images collapse."""
    return case.kind == "images" and crosses("decay_that_kills", weight_decay(case))


def _nothing_pushes(case: RunEvidence) -> bool:
    """Return whether neither the objective nor the method keeps embeddings apart."""
    if case.objective is None or pushing(case.objective):
        return False
    return case.setting("method") not in _PREVENT_COLLAPSE


def _stops_by_margin(case: RunEvidence) -> bool:
    values = parameters(case)
    return "margin" in values or str(values.get("dissipation", "")).startswith("margin")
