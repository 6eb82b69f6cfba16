"""Verdicts on pull and push: easy negatives, copies, temperatures, a gradient that never fades."""

from dataclasses import replace

from isotrope.diagnostics import proposals
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Evidence
from isotrope.diagnostics.readings import (
    as_measured,
    compares_cosines,
    cosines_per_score,
    default_margin,
    dissipation_on_ideal,
    further_evidence,
    gain_in_score,
    hardest_over_even,
    has_copies,
    loss_temperature,
    negative_count,
    objective_margin,
    objective_temperature,
    separation,
)
from isotrope.diagnostics.verdict import Change, Found, Threshold, Verdict, compared, crosses
from isotrope.diagnostics.verdicts.sources import EFFECTS, NEWER, OURS, ZOO
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.registry import names

_FEW = 7  # with fewer negatives, the hardest is often far ahead at any temperature
_FEW_OF_COSINES = 2  # the limit that replaces _FEW for cosines at a low temperature
_UNIT = 1e-3  # difference from 1 allowed for the norm of normalised embeddings
_USUAL_MARGIN = 0.3
_OF_KEYS = 0.7  # share of its temperature that a loss of keys without a gradient counts with
_ANGLES = "positive_mean", "negative_mean", "positive_std", "negative_std"
_LEARNT = 1.0  # lead of positives, in standard deviations


def _may_be_maximised(case: RunEvidence) -> bool:
    """Return whether the optimizer maximises; in a loop, it may if no step has shown the sign."""
    return bool(case.settings.get("maximised", case.settings.get("trainer") == "loop"))


PUSHED_POSITIVES = Verdict(
    "pushed-positives",
    "the loss pushes positives away and pulls negatives closer",
    "Each anchor is pushed away from one candidate, its positive, and pulled to all others, most "
    "to the nearest. This is the gradient of a contrastive loss with the opposite sign.",
    (
        Threshold(
            "reversed",
            "losses with the opposite sign",
            "for a training outside isotrope: number of losses that push one candidate of an "
            "anchor, and pull all others with the weights of a softmax",
            "by definition: one such loss is a fault",
            above=0,
            measure=lambda case: sum(loss.get("family") == "reversed" for loss in case.losses),
        ),
    ),
    Change("the loss with the opposite sign, since an optimizer minimises it"),
    explains=("diverging", "collapsed", *EFFECTS),
    unless=(_may_be_maximised,),
)


def _even_push(case: RunEvidence) -> Evidence | None:
    """Return the number that shows that all negatives are pushed alike; None if they are not."""
    over_even, tau = hardest_over_even(case), objective_temperature(case)
    fitted, spread = case.end("temperature"), case.end("uniformity")
    if over_even is None or (case.objective is not None and tau is None):
        return None
    # no softmax, or scores without embeddings, which have no known distances
    if case.losses and (fitted is None or spread is None):
        return None
    if has_copies(case.first, case.early):  # they share the hardest place of the softmax
        return None
    each = (tau or fitted or 0.0) / cosines_per_score(case)
    deciding = "hardest_times_uniform"
    if compares_cosines(case) and crosses("high_temperature", each):
        deciding = "hardest_at_high_temperature"
        if case.kind != "text" and _is_usual_of_images(case, each):
            return None
    elif crosses("spread", spread):
        return None
    even = crosses(deciding, over_even)
    return as_measured(case, compared(deciding, over_even)) if even else None


def _is_usual_of_images(case: RunEvidence, tau: float) -> bool:
    options = (case.details.get("method") or {}).get("options", {})
    has_still_keys = case.settings.get("queue") or "decay" in options  # of a momentum encoder
    return not crosses("temperature_of_images", tau * (_OF_KEYS if has_still_keys else 1.0))


def _negatives_not_hard(case: RunEvidence) -> Found | None:
    tau, deciding = objective_temperature(case), _even_push(case)
    if deciding is None:
        return None
    known = tau or case.end("temperature")
    what = "If the loss has a temperature, it" if known is None else f"A temperature of {known:.3g}"
    what += " for cosines" if compares_cosines(case) and known else ""
    return Found(
        (
            deciding,
            *further_evidence(case, "hardest_share"),
            *further_evidence(case, "dissipation", "gradient_uniformity", temperature=known),
        ),
        f"This loss pushes the nearest of {negative_count(case)} negatives hardly more than any "
        f"other. {what} is too high for the softmax to tell near negatives from far ones.",
        proposals.objective_flag(case, "weight", "temperature", _lower(case, tau)),
    )


def temperature_of_images(case: RunEvidence) -> bool:
    """Return whether the temperature is too high for texts and the inputs may be images."""
    return not case.kind and _even_push(replace(case, kind="text")) is not None


def _usual(case: RunEvidence) -> float:
    return (0.1 if case.kind == "images" else 0.05) * cosines_per_score(case)


def _lower(case: RunEvidence, tau: float | None) -> float:
    return _usual(case) if tau is None or tau > _usual(case) else tau / 2


def _cooler(case: RunEvidence) -> str:
    tau = loss_temperature(case)
    return case.words.of_temperature(_lower(case, tau), tau)


NEGATIVES_NOT_HARD = Verdict(
    "negatives-not-hard",
    "every negative is pushed alike: the temperature is too high",
    "The loss pushes all negatives away with nearly equal force. The temperature is so high that "
    "the softmax cannot tell near negatives from far ones.",
    thresholds=(
        Threshold(
            "hardest_times_uniform",
            "push on the hardest negative",
            "at the end: hardest negative's share of the push on its anchor, times the number of "
            "negatives. If all negatives push equally, the number is 1. The limit is for 62 "
            "negatives. With fewer negatives, even the hardest is less similar to the anchor, so "
            "the limit is nearer to 1; a diagnosis shows it",
            "Li et al., 2024, figure 3 and section 3.2.2 (the hardest negative's share falls as "
            f"the temperature rises); {ZOO}",
            below=1.5,
            unit="times an even share",
        ),
        Threshold(
            "hardest_at_high_temperature",
            "push on the hardest negative",
            "the same number as for `hardest_times_uniform`. If the loss compares cosines and "
            "`high_temperature` (the next row) is above its limit, this limit replaces the limit "
            "of `hardest_times_uniform`",
            "small networks with random initial weights push the hardest negative 1.6 to 2.2 times "
            "an even share at a temperature of 1, but 14 to 53 times at 0.1 (benchmarks/loops.py)",
            below=3.0,
            unit="times an even share",
        ),
        Threshold(
            "high_temperature",
            "temperature",
            "temperature of the loss. If the loss adds several cosines to get the score of a pair, "
            "the temperature is divided by their number. A temperature above the limit is no fault "
            "by itself: it only replaces `hardest_times_uniform` by `hardest_at_high_temperature`",
            "we chose the limit ourselves. In our trainings, the mean reciprocal rank on held-out "
            "texts was 0.133 at a temperature of 0.5, and 0.146 to 0.155 at 0.05 to 0.2 "
            "(docs/LOG.md)",
            above=0.4,
        ),
        Threshold(
            "temperature_of_images",
            "temperature",
            "the same number as for `high_temperature`. For images, this limit replaces the limit "
            "of `high_temperature`. If the Doctor does not know whether the inputs are texts or "
            "images, a temperature between the two limits leads to the verdict `not-examined`. If "
            "candidates get no gradient, as from a momentum encoder, the temperature is multiplied "
            f"by {_OF_KEYS}",
            "we chose the limit ourselves. In papers, the temperature for images is 0.07 (MoCo), "
            "0.5 (SimCLR on CIFAR-10) or, with a momentum encoder, 1 (MoCo v3 with ResNet-50)",
            above=0.7,
        ),
    ),
    change=Change(loop=_cooler),
    explains=("false-negatives", "never-dissipating"),
    when=_negatives_not_hard,
)


def _false_negatives(case: RunEvidence) -> float | None:
    """Return the share, without false negatives that only a destroyed encoder adds later."""
    # Most anchors have one before training only if the data have copies, which training may
    # separate. An encoder that starts from random weights shows copies only after learning pairs.
    first, early, end = (f("false_negatives") for f in (case.first, case.early, case.end))
    if crosses("copies_apart", first) or early is None or end is None:
        return end if first is None or end is None else max(first, end)
    learnt = (separation({name: case.end(name) for name in _ANGLES}) or 0) > _LEARNT
    # dot products also tell rows of one direction apart by their lengths
    return end if learnt and not crosses("radial", case.end("radial")) else min(early, end)


def _copies_apart(case: RunEvidence) -> str:
    detail = (
        "Many texts have a near-copy, or their answer belongs to other questions, too. These texts "
        "count as negatives, so training pushes apart texts that mean the same. `isotrope train` "
        "does not push apart pairs that share a text (case and most punctuation ignored). Ignore "
        "this verdict if the few words that differ matter in your data."
    )
    places = [place for loss in case.losses for place in loss.get("false_negatives") or ()]
    if not places:
        return detail
    named = ", ".join(f"anchor {i} and candidate {j}" for i, j in places)
    return f"{detail} In one batch, these rows (counted from 0) look like copies: {named}."


FALSE_NEGATIVES = Verdict(
    "false-negatives",
    "copies of a text are pushed apart",
    "Many texts have a near-copy in the data, or a query has several positives in one batch. Such "
    "texts count as negatives, so training pushes apart texts that mean the same.",
    (
        Threshold(
            "copies",
            "texts with a near-copy",
            "in a sample of the data: share of the texts that differ from another text in only a "
            "few words",
            ZOO,
            above=0.2,
            unit="of the texts",
            measure=lambda case: None if case.probe is None else case.probe.get("copies"),
        ),
        Threshold(
            "false_negatives",
            "anchors with a negative that looks like a positive",
            "share of the anchors with a negative that looks like a positive. The list above the "
            "table names the steps, and the limit at the first logged step",
            OURS,
            above=0.3,
            unit="of the anchors",
            measure=_false_negatives,
        ),
    ),
    Change(
        "train on a file without these copies (remove ids, `sort -u`), or with `--groups COLUMN`",
        lambda case: case.words.copies,
    ),
    texts_only=True,
    any_of=True,
    shows=("dead", "hardest_share", "positive_mean"),
    detail=_copies_apart,
)


def _never_dissipating(case: RunEvidence) -> Found | None:
    end, objective, lead = case.end("dissipation"), case.objective, objective_margin(case)
    if objective is None:
        return _unreachable(case)
    if end is None or not crosses("gd_at_the_end", end):
        return None
    ideal = dissipation_on_ideal(objective)
    # Li et al. (2024) study sentences; most objectives for images never dissipate
    if not crosses("gd_on_ideal", ideal) or (case.kind == "images" and lead is None):
        return None
    if lead is None:
        why, change = "The gradient of this objective never fades.", _stopping(objective)
    else:
        why = f"Even an anchor that equals its positive does not reach the margin of {lead:g}."
        change = proposals.objective_flag(case, "dissipation", "margin", default_margin(case))
    return Found(
        (
            compared("gd_at_the_end", end),
            compared("gd_on_ideal", ideal),
            *further_evidence(case, "dead"),
        ),
        f"Every anchor is pulled and pushed at full strength until the last step. {why} The model "
        "may overfit, because embeddings keep moving although nothing is left to learn.",
        change,
        decided_by="gd_on_ideal",
    )


def _unreachable(case: RunEvidence) -> Found | None:
    """Return the finding that no distance reaches the margin; None if embeddings can grow to it."""
    lead, most = case.settings.get("margin"), case.settings.get("largest-distance")
    norms = case.series("norm")
    if lead is None or not most or not crosses("unreachable_margin", lead / most):
        return None
    unit = bool(norms) and max(abs(norm - 1) for norm in norms) < _UNIT
    radial = case.end("radial")
    if not unit and (radial is None or crosses("radial", radial)):
        return None
    return Found(
        (
            compared("unreachable_margin", lead / most),
            *further_evidence(case, "dissipation", "dead", "loss", margin=lead),
        ),
        f"No anchor can reach a margin of {lead:g}, because distances of these embeddings are at "
        f"most {most:g}. Every anchor is pulled and pushed at full strength until the last step, "
        "however close its positive is.",
        f"a margin of {_USUAL_MARGIN:g}",
    )


def _stopping(objective: Objective) -> str:
    forms = {f"modified{objective.name}", f"{objective.name}plus"}.intersection(names())
    return f"--objective {forms.pop()}" if forms else "--objective.dissipation margin:0.3"


def _reachable(case: RunEvidence) -> str:
    if case.objective is None:
        return case.words.instead(case.words.margin, _USUAL_MARGIN, case.settings.get("margin"))
    if (now := objective_margin(case)) is None:
        return case.words.contrastive
    return case.words.instead("a margin of {}", default_margin(case), now)


NEVER_DISSIPATING = Verdict(
    "never-dissipating",
    "the gradient never fades, however close the positives are: a risk of overfitting",
    "Every anchor is pulled and pushed at full strength until the last step, even if its positive "
    "is already far closer than all negatives. On sentences, such losses tend to overfit.",
    thresholds=(
        Threshold(
            "gd_on_ideal",
            "dissipation (GD) on an ideal batch",
            "gradient dissipation (GD) of the objective in an ideal batch, in which each anchor "
            "equals its positive and is orthogonal to its negatives",
            "Li et al., 2024, table 2: all objectives whose GD is always 1 are ineffective",
            above=0.5,
        ),
        Threshold(
            "gd_at_the_end",
            "dissipation (GD) at the end",
            "mean gradient dissipation (GD) of the anchors at the end",
            "Li et al., 2024, sections 3.1 and 4; Nie et al., 2023, section 4.2",
            above=0.99,
        ),
        Threshold(
            "unreachable_margin",
            "margin",
            "for a triplet loss of another library: margin divided by the largest distance that "
            "two embeddings can have",
            "by definition: a margin above the largest distance is more than any two can differ",
            above=1.0,
            unit="times the largest possible distance",
        ),
    ),
    change=Change(loop=_reachable),
    when=_never_dissipating,
)


def _temperature_too_low(case: RunEvidence) -> Found | None:
    # the first step from which the temperature is known
    rows = [row for row in case.rows if row.get("temperature") is not None]
    first = case if case.objective is not None else replace(case, rows=rows)
    tau = first.first("temperature") or objective_temperature(case)
    share, gain = first.first("hardest_share"), gain_in_score(case)
    if tau is None or share is None or (gain is not None and not crosses("gain", gain)):
        return None
    has_vectors = first.first("uniformity") is not None
    may_be_cosines = case.objective is not None or compares_cosines(case)
    has_cosines = (has_vectors and may_be_cosines) or cosines_per_score(case) > 1
    deciding = _by_cosines(case, tau, share) if has_cosines else _by_scores(case, first, share)
    if not deciding:
        return None
    return Found(
        (
            *deciding,
            Evidence("temperature", tau),
            *([] if gain is None else [compared("gain", gain)]),
            *further_evidence(case, "dead", "dissipation", "positive_mean", "negative_mean"),
        ),
        f"At a temperature of {tau:.3g}, an anchor has no gradient or pushes only its hardest "
        "negative. It stops learning as soon as its positive is slightly closer than its "
        "negatives.",
        proposals.objective_flag(case, "weight", "temperature", max(_usual(case), 4 * tau)),
    )


def _by_cosines(case: RunEvidence, tau: float, share: float) -> list[Evidence]:
    """Return the deciding number of a loss of cosines; an empty list if it shows no fault."""
    is_low = crosses("temperature_of_cosines", tau / cosines_per_score(case))
    if not is_low or (negative_count(case) or 0) < _FEW_OF_COSINES:
        return []
    # an encoder from scratch may begin with embeddings that are close together
    most = max(share, case.end("hardest_share") or 0.0)
    return [compared("hardest_of_cosines", most)] if crosses("hardest_of_cosines", most) else []


def _by_scores(case: RunEvidence, first: RunEvidence, share: float) -> list[Evidence]:
    """Return the same for scores that are not cosines, so that their scale is unknown."""
    dead, force = first.first("dead"), first.first("dissipation")
    if dead is None or (negative_count(case) or 0) < _FEW or not crosses("hardest_at_first", share):
        return []
    evidence = [compared("hardest_at_first", share)]
    if crosses("done_by_temperature", dead):
        return [*evidence, compared("done_by_temperature", dead)]
    if force is None or not crosses("decided", force + dead):
        return []
    lasting = crosses("hardest_at_first", case.end("hardest_share"))
    return [*evidence, compared("decided", force + dead)] if lasting else []


def _warmer(case: RunEvidence) -> str:
    tau = case.first("temperature") or loss_temperature(case) or 0.05
    return case.words.of_temperature(max(_usual(case), 4 * tau), tau)


TEMPERATURE_TOO_LOW = Verdict(
    "temperature-too-low",
    "the temperature is too low: each anchor has no gradient or pushes only one negative",
    "Most anchors have no gradient, or push only one negative, from the first step on. The "
    "temperature is so low that an anchor stops learning as soon as its positive is slightly "
    "closer than its negatives.",
    thresholds=(
        Threshold(
            "hardest_at_first",
            "push on the hardest negative at the first logged step",
            "hardest negative's share of the push on its anchor, at the first logged step",
            "Li et al., 2024, section 3.2.2: at a temperature near 0, only the hardest negative is "
            "pushed. For all-MiniLM-L6-v2 on docstrings with 31 to 255 negatives, the share is "
            "0.38 to 0.58 at a healthy temperature (0.05), and at least 0.96 at 0.005 or less",
            above=0.95,
            unit="of the push",
        ),
        Threshold(
            "hardest_of_cosines",
            "push on the hardest negative",
            "for a loss that compares cosines: hardest negative's share of the push on its anchor, "
            "at the first logged step with a known temperature or at the end, whichever is larger",
            "for two layers of all-MiniLM-L6-v2, the share is 0.15 to 0.29 at a healthy "
            "temperature (0.05), and 0.93 at 0.002. In small random networks, it is 0.7 to 0.99",
            above=0.6,
            unit="of the push",
        ),
        Threshold(
            "temperature_of_cosines",
            "temperature",
            "for a loss that compares cosines: temperature, as for `high_temperature` of the "
            "verdict `negatives-not-hard`",
            f"embedding models are trained at temperatures of 0.01 to 0.05; {NEWER}",
            below=0.01,
        ),
        Threshold(
            "done_by_temperature",
            "gradient dissipation (GD) below 0.01 at the first logged step",
            "for a loss that compares other scores, such as dot products: share of the anchors "
            "with gradient dissipation (GD) below 0.01, at the first logged step",
            "for all-MiniLM-L6-v2 on docstrings with 31 to 255 negatives, the share is 0.07 to "
            "0.16 at a healthy temperature (0.05), and at least 0.6 at 0.005 or less",
            above=0.3,
            unit="of the anchors",
        ),
        Threshold(
            "decided",
            "mean GD plus share of anchors with GD below 0.01, at the first logged step",
            "for a loss that compares other scores: mean gradient dissipation (GD) plus the share "
            "of the anchors with GD below 0.01, at the first logged step",
            "at a temperature near 0, each GD is 0 or 1, so the sum is 1. For a masked "
            "language model at healthy temperatures, the sum is 0.86 (at 0.02, with 31 negatives) "
            "or 0.90 (at 0.05, with 63)",
            above=0.95,
            unit="of the anchors",
        ),
    ),
    change=Change(loop=_warmer),
    explains=("diverging", "collapsed", "nothing-left-to-learn", "dissipated-early"),
    when=_temperature_too_low,
)
