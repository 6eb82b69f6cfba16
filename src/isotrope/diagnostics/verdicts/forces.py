"""Rules on dissipation and weights: missing or easy negatives, temperature, early convergence."""

from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Evidence, Finding
from isotrope.diagnostics.readings import (
    crosses,
    dead_share_after_start,
    dissipation_on_ideal,
    further_evidence,
    gained,
    hardest_over_even,
    negatives,
    parameters,
    pushing,
    temperature,
)
from isotrope.diagnostics.verdict import THRESHOLDS, compared
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.registry import names

__all__ = [
    "dissipated_early",
    "negatives_not_hard",
    "never_dissipating",
    "no_negatives",
    "temperature_too_low",
]


_FEW = 16  # negatives, of which the hardest is often far ahead at any temperature
_UNIT = 1e-3  # by which the norm of normalised embeddings may differ from 1
_USUAL_MARGIN = 0.3


def no_negatives(case: RunEvidence) -> Finding | None:
    """A contrastive loss gets batches of one row, or of one group: there are no negatives.

    Its loss and gradient are then 0 from the first step on. A loss of pairs still has a gradient,
    and is exempt.
    """
    paired = [row for row in case.rows if row.get("positive_mean") is not None]
    if not paired:
        return None
    share = sum(row.get("negative_mean") is None for row in paired) / len(paired)
    if not crosses("without_negatives", share):
        return None
    gradient = case.end("embedding_gradient")
    if case.objective is None and not crosses("gradient_alone", gradient):
        return None
    if case.objective is not None and not pushing(case.objective):
        return None
    size = case.batch_size
    gradients = [] if gradient is None or case.objective is not None else [gradient]
    return Finding(
        "no-negatives",
        (
            compared("without_negatives", share),
            *(compared("gradient_alone", number) for number in gradients),
            *([] if size is None else [Evidence("batch_size", size)]),
            *further_evidence(case, "loss"),
        ),
        THRESHOLDS["without_negatives"].source,
        "--batch-size 64"
        if size == 1
        else f"--batch-size {max(64, size or 0)}, and more than one group in a batch (--groups)",
        "No anchor of a batch has a negative, so that a loss that tells positives from negatives "
        "is 0 and teaches nothing. That it is 0 does not mean that anything has been learnt.",
    )


def negatives_not_hard(case: RunEvidence) -> Finding | None:
    """A softmax of high temperature is nearly uniform; weights without one are not judged.

    It is uniform at any temperature while embeddings are close together, as early in training.
    """
    over_even, tau = hardest_over_even(case), temperature(case)
    if over_even is None or (tau is None and case.objective is not None):
        return None
    spread = case.end("uniformity")
    # scores without embeddings: how close they are is unknown
    if crosses("spread", spread) or (spread is None and case.losses):
        return None
    if not crosses("hardest_times_uniform", over_even):
        return None
    usual = 0.1 if case.kind == "images" else 0.05
    better = usual if tau is None or tau > usual else tau / 2
    exchanged = "softmax" in str(parameters(case).get("weight", ""))
    what = "if it has a temperature, that" if tau is None else f"a temperature of {tau:g}"
    return Finding(
        "negatives-not-hard",
        (
            compared("hardest_times_uniform", over_even),
            *further_evidence(case, "hardest_share"),
            *([] if tau is None else [Evidence("temperature", tau)]),
            *further_evidence(case, "dissipation", "gradient_uniformity"),
        ),
        THRESHOLDS["hardest_times_uniform"].source,
        f"--objective.weight softmax:{better:g}"
        if exchanged
        else f"--objective.temperature {better:g}",
        f"The hardest of {negatives(case)} negatives is pushed hardly more than any other by this "
        f"loss: {what} is too high for its softmax to tell them apart.",
    )


def temperature_too_low(case: RunEvidence) -> Finding | None:
    """Before training most anchors are done or push one negative only, by a low temperature.

    At a temperature near 0 an anchor whose positive is first by any margin has no gradient, and any
    other pushes its hardest negative alone. Of a loss without a temperature nothing is judged, nor
    of a batch with fewer than 16 negatives: the hardest of a few is often far ahead. Cosines
    at a temperature of 0.01 and more are not judged either, nor is a training whose dev score has
    gained. Where few positives are ahead hardly an anchor is done, but each is decided; a loss of
    dot products may begin so, and then adapt lengths to its temperature.
    """
    tau = temperature(case) if case.objective is not None else case.first("temperature")
    share, dead, count, gain = (
        case.first("hardest_share"),
        case.first("dead"),
        negatives(case),
        gained(case),
    )
    if tau is None or share is None or dead is None or (count or 0) < _FEW:
        return None
    if case.first("uniformity") is not None and not crosses("temperature_of_cosines", tau):
        return None
    force = case.first("dissipation")
    decided = None if force is None else force + dead
    lasting = crosses("hardest_at_first", case.end("hardest_share"))
    done = crosses("done_by_temperature", dead)
    if not crosses("hardest_at_first", share) or not (
        done or (lasting and crosses("decided", decided))
    ):
        return None
    if gain is not None and not crosses("gain", gain):
        return None
    return Finding(
        "temperature-too-low",
        (
            compared("hardest_at_first", share),
            compared("done_by_temperature", dead)
            if done or decided is None
            else compared("decided", decided),
            Evidence("temperature", tau),
            *([] if gain is None else [compared("gain", gain)]),
            *further_evidence(case, "dissipation", "positive_mean", "negative_mean"),
        ),
        THRESHOLDS["hardest_at_first"].source,
        f"--objective.temperature {max(0.05, 4 * tau):g}",
        f"At a temperature of {tau:.3g} an anchor either has no gradient at all, or pushes a "
        "single negative with all of it: who is ahead by a hair counts as done.",
    )


def never_dissipating(case: RunEvidence) -> Finding | None:
    """GD stays 1: because of a margin that no batch can satisfy or, on sentences, by design."""
    end, objective = case.end("dissipation"), case.objective
    if objective is None:
        return _unreachable(case)
    if end is None or not crosses("gd_at_the_end", end):
        return None
    ideal = dissipation_on_ideal(objective)
    margin = parameters(case).get("margin")
    # Li et al. (2024) study sentences; on images from scratch most objectives have no GD
    if not crosses("gd_on_ideal", ideal) or (case.kind == "images" and margin is None):
        return None
    if margin is None:
        why, change = "Nothing in this objective says that an anchor is done.", _stopping(objective)
    else:
        usual = type(objective)().hyperparameters()["margin"]
        why = f"A margin of {margin} is more than an ideal batch keeps."
        change = f"--objective.margin {usual:g}"
    return Finding(
        "never-dissipating",
        (
            compared("gd_at_the_end", end),
            compared("gd_on_ideal", ideal),
            *further_evidence(case, "dead"),
        ),
        THRESHOLDS["gd_on_ideal"].source,
        change,
        f"Every anchor is pulled and pushed in full to the last step. {why} The risk is "
        "overfitting: embeddings keep moving after there is nothing left to learn.",
    )


def _unreachable(case: RunEvidence) -> Finding | None:
    """Return the finding of a margin that is larger than any distance; None if embeddings grow."""
    margin, most = case.setting("margin"), case.setting("largest-distance")
    norms = case.series("norm")
    if margin is None or not most or not crosses("unreachable_margin", margin / most):
        return None
    unit = bool(norms) and max(abs(norm - 1) for norm in norms) < _UNIT
    radial = case.end("radial")
    if not unit and (radial is None or crosses("radial", radial)):
        return None
    return Finding(
        "never-dissipating",
        (
            compared("unreachable_margin", margin / most),
            Evidence("margin", margin),
            *further_evidence(case, "dissipation", "dead", "loss"),
        ),
        THRESHOLDS["unreachable_margin"].source,
        f"a margin of {_USUAL_MARGIN:g}",
        f"A margin of {margin:g} cannot be kept: distances of these embeddings are at most "
        f"{most:g}. Every anchor is pulled and pushed in full to the last step, however far ahead "
        "its positive is: nothing says that it is done.",
    )


def dissipated_early(case: RunEvidence) -> Finding | None:
    """Hardly an anchor has a gradient after the first fifth, and the dev score has not gained."""
    later, gain = dead_share_after_start(case), gained(case)
    if later is None or len(case.series("dead")) < 5:
        return None
    if not crosses("dead_early", later) or (gain is not None and not crosses("gain", gain)):
        return None
    return Finding(
        "dissipated-early",
        (
            compared("dead_early", later),
            *([] if gain is None else [compared("gain", gain)]),
            *further_evidence(case, "dissipation", "positive_mean", "negative_mean"),
        ),
        THRESHOLDS["dead_early"].source,
        _harder(case),
        "Positives are so much closer than all negatives that the objective takes nearly every "
        "anchor for done, almost from the start: more steps will change nothing.",
    )


def _stopping(objective: Objective) -> str:
    """Return the flag for a form of the objective whose gradient vanishes on a good anchor."""
    registered = names()
    for form in (f"modified{objective.name}", f"{objective.name}plus"):
        if form in registered:
            return f"--objective {form}"
    return "--objective.dissipation margin:0.3"


def _harder(case: RunEvidence) -> str:
    """Return the flag that keeps more anchors active."""
    values = parameters(case)
    margin, tau = values.get("margin"), values.get("temperature")
    if isinstance(tau, float):
        return f"--objective.temperature {2 * tau:g}"
    if isinstance(margin, float):
        return f"--objective.margin {1.5 * margin:g}"
    return "--batch-size 256 (more negatives, and harder ones among them)"
