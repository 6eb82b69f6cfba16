"""Rules on the start and the end of training: anisotropy, nothing to learn, a falling dev score."""

import statistics

from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Evidence, Finding
from isotrope.diagnostics.readings import (
    crosses,
    further_evidence,
    gained,
    learning_rate,
    lower_rate_flag,
)
from isotrope.diagnostics.verdict import THRESHOLDS, compared

__all__ = ["anisotropic_start", "nothing_left_to_learn", "overfitting"]

_LOGGED_STEPS = 3  # the median of fewer is not judged


def anisotropic_start(case: RunEvidence) -> Finding | None:
    """Different texts have nearly one direction, and training, if any, has not changed that.

    Image features after a ReLU have no negative entries: their cosines are always high.
    """
    cosine = None if case.probe is None or case.kind == "images" else case.probe["mean_cosine"]
    if cosine is None or not crosses("mean_cosine", cosine):
        return None
    if case.rows and not crosses("spread", case.end("uniformity")):
        return None
    change = "--objective infonce (a short `isotrope train` from this encoder)"
    if case.rows and case.objective is not None and case.objective.name == "infonce":
        rate = learning_rate(case)
        change = f"--learning-rate {'10*RATE' if rate is None else f'{10 * rate:.2g}'}"
    return Finding(
        "anisotropic-start",
        (compared("mean_cosine", cosine), *further_evidence(case, "uniformity", "effective_rank")),
        THRESHOLDS["mean_cosine"].source,
        change,
        "Different texts have nearly one direction, as in a language model that was never trained "
        "to compare texts: until it is, cosines tell little apart.",
    )


def nothing_left_to_learn(case: RunEvidence) -> Finding | None:
    """Most anchors had no gradient before training began, and the dev score did not rise.

    If training itself brought them there, the verdict is dissipated-early.
    """
    dead, gain = case.series("dead"), gained(case)
    if len(dead) < _LOGGED_STEPS or not crosses("done_at_first", dead[0]):
        return None
    # without a dev score the anchors alone decide, as for dissipated-early
    name = "dead_early" if gain is None else "done_throughout"
    helped = case.judgement is not None and case.judgement.outcome == "improved"
    if helped or (gain is not None and not crosses("gain", gain)):
        return None
    throughout = statistics.median(dead)
    if not crosses(name, throughout):
        return None
    return Finding(
        "nothing-left-to-learn",
        (
            compared("done_at_first", dead[0]),
            compared(name, throughout),
            *([] if gain is None else [compared("gain", gain)]),
            *further_evidence(case, "dissipation", "positive_mean", "negative_mean"),
        ),
        THRESHOLDS["done_at_first"].source,
        "--files HARDER (FILE with a third column of near but wrong texts, or with other data)",
        "Before the first update the positives of most anchors were already so much closer than "
        "all negatives that this objective has nothing to change: the encoder knows these data. "
        "Harder negatives or other data give it something to learn; more steps do not.",
    )


def overfitting(case: RunEvidence) -> Finding | None:
    """The dev score falls from its best while training continues.

    A score that never rose counts unless its fall is within the noise of the dev set, by the paired
    bootstrap that judges the run.
    """
    if len(case.scores) < 2:
        return None
    step, best = max(case.scores, key=lambda pair: (pair[1], -pair[0]))
    last = case.scores[-1][1]
    name = "dev_fall_images" if case.kind == "images" else "dev_fall"
    if not crosses(name, best - last):
        return None
    never_rose = step == case.scores[0][0]
    if never_rose and case.judgement is not None and case.judgement.outcome == "within noise":
        return None
    return Finding(
        "overfitting",
        (
            compared(name, best - last),
            Evidence("best_score", best),
            Evidence("last_score", last),
            Evidence("best_step", step),
            *further_evidence(case, "loss", "dissipation"),
        ),
        THRESHOLDS[name].source,
        lower_rate_flag(case, 3) if never_rose else f"--max-steps {step}",
        "The score on held-out data has fallen from its best while training went on."
        + (" It never rose at all." if never_rose else ""),
    )
