"""Verdicts on trainings that cannot be judged: too few steps, no pairs, or an unknown relation."""

import statistics

from isotrope.diagnostics import proposals
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Evidence
from isotrope.diagnostics.readings import (
    UNREAD,
    compares_cosines,
    further_evidence,
    measured_steps,
    separation,
)
from isotrope.diagnostics.verdict import Change, Found, Threshold, Verdict, compared, crosses
from isotrope.diagnostics.verdicts.forces import temperature_of_images
from isotrope.diagnostics.verdicts.outcome import nothing_learnt
from isotrope.diagnostics.verdicts.positives import relation_unknown

_RELATION = (
    "Nothing shows that the pulled pairs belong together: at first, they were no nearer than other "
    "pairs, or the loss compares no other pairs. A model can also memorise wrong pairs."
)
_JUDGED_BY = (
    "The Doctor judges a training by the pairs that its loss pulls together and pushes apart, so "
    "it cannot say whether this training is healthy."
)
_OF_A_TERM = (
    "call doctor.observe(TERM) before backward(); TERM is a part of the loss that compares pairs "
    "and is not compiled. If the loss has no such part, judge by a score on held-out data"
)

_NEAR = 0.97  # from this share of the loss of guessing on, a loss is near it; chosen, not tuned


def _over_guess(case: RunEvidence) -> float:
    """Return InfoNCE of a softmax's pairs at the end, divided by that of guessing; 0 if unknown."""
    softmax = (loss for loss in case.losses if loss.get("family") == "softmax")
    last = next((float(loss.get("over_guess") or 0.0) for loss in softmax), 0.0)
    # of the loss, which may have other terms, only the change from batch to batch counts
    losses = case.series("loss") or [0.0]
    return last * (case.end("loss") or 0.0) / (losses[-1] or 1.0)


def _as_guessing(case: RunEvidence) -> bool:
    """Return whether a softmax ends like guessing, with positives hardly nearer than negatives."""
    gaps = [gap for row in case.rows if (gap := separation(row)) is not None]
    if not gaps or _over_guess(case) < _NEAR:
        return False
    return crosses("separation", statistics.median(gaps[-max(1, len(gaps) // 3) :]))


def _score_to_pass(case: RunEvidence) -> str:
    """Return how to pass scores to the Doctor if nothing shows which inputs belong together."""
    if not relation_unknown(case):
        return ""
    is_loop = case.settings.get("trainer") == "loop"
    return proposals.NOTE_SCORES if is_loop else "Doctor(dev=NAME_OF_A_SCORE)"


def _unread(case: RunEvidence) -> Found | None:
    """Return the reason why the pairs of a loss could not be read; None if they were read."""
    unread = [loss for loss in case.losses if loss.get("family") in UNREAD]
    if not unread:
        return None
    reason = next((str(loss["reason"]) for loss in unread if loss.get("reason")), "")
    detail = f"{reason[:1].upper()}{reason[1:]}. " if reason else "The Doctor saw no pairs. "
    change = ""
    if case.first("loss") == 0 == case.end("loss"):
        batch = proposals.larger_batch(case)
        change = f"{batch}; if rows have labels, put two rows of each label in a batch"
    return Found((Evidence("logged_steps", len(case.rows)),), detail + _JUDGED_BY, change)


def _not_examined(case: RunEvidence) -> Found | None:
    """Return the first reason why pairs do not show whether a training is healthy."""
    if not case.losses:
        return None
    unseen = proposals.unchanged_weights(case)
    if unseen is not None or case.objective is not None:
        return unseen or nothing_learnt(case)
    if (unseen := _unread(case)) is not None:
        return unseen
    steps, tau = (Evidence("logged_steps", len(case.rows)),), case.end("temperature")
    if any(loss.get("family") == "reversed" for loss in case.losses):
        detail = "Positives are pushed away, unless the optimizer maximises this loss. "
        return Found(steps, detail + _JUDGED_BY, "the loss with the opposite sign, and minimise it")
    selects_pairs = any(loss.get("family") == "other" for loss in case.losses)
    if selects_pairs and not any(separation(row) is not None for row in case.rows):
        detail = "The pairs of the loss do not show which inputs belong together. "
        return Found(steps, detail + _JUDGED_BY, _score_to_pass(case))
    if (share := case.end("misfit")) is not None and crosses("left_out", share):
        detail = "Some terms of the loss act on the embeddings, but compare no pairs. "
        return Found((compared("left_out", share),), detail + _JUDGED_BY)
    if not compares_cosines(case) and crosses("over_guess", over := _over_guess(case)):
        detail = "The loss is above that of guessing: perhaps embeddings are not normalised."
        warmer = case.words.of_temperature(4 * (tau or 1.0), tau or 1.0)
        change = f"embeddings of length 1 (torch.nn.functional.normalize, dim=1), or {warmer}"
        return Found((compared("over_guess", over),), detail, change)
    if _as_guessing(case):
        detail = "At the end, the loss is that of guessing, and positives are hardly nearer. "
        evidence = further_evidence(case, "loss", "positive_mean", "negative_mean")
        change = f"more steps, a lower learning rate, or {case.words.related}"
        return Found((*steps, *evidence), detail + _JUDGED_BY, change)
    if crosses("pulled", case.end("pulled")) and not case.series("label_gap"):
        detail = "The loss pulls pairs together but pushes none apart, perhaps due to a margin. "
        return Found(steps, detail + _JUDGED_BY, _score_to_pass(case))
    if temperature_of_images(case) and tau:
        colder = case.words.of_temperature(0.05, tau)
        return Found(
            (compared("high_temperature", tau), *further_evidence(case, "hardest_share")),
            f"A temperature of {tau:.2g} is too high for texts, but some encoders of images are "
            "trained with it. The Doctor does not know whether the inputs are texts or images.",
            f'for texts, {colder}; for images, doctor.diagnose(kind="images")',
        )
    unseen = nothing_learnt(case)
    if unseen is not None or not relation_unknown(case):
        return unseen
    evidence = *steps, *further_evidence(case, "loss")
    return Found(evidence, f"{_RELATION} {_JUDGED_BY}", _score_to_pass(case))


NOT_EXAMINED = Verdict(
    "not-examined",
    "unknown: the Doctor cannot judge the training by the pairs that the loss compares",
    "The Doctor judges a training by the pairs of embeddings that its loss compares. Here, the "
    "Doctor saw no pairs, or the loss has other terms too, or nothing shows which inputs belong "
    "together. The Doctor therefore cannot say whether the training is healthy.",
    (
        Threshold(
            "left_out",
            "gradient on the embeddings that does not come from compared pairs",
            "for a training outside isotrope: share of the gradient on the embeddings that comes "
            "from terms of the loss that compare no pairs",
            "we chose the limit ourselves: the share is 0 for a loss that only compares pairs, and "
            "up to 0.005 if the backward pass is rounded to bfloat16",
            above=0.02,
            unit="of the gradient",
        ),
        Threshold(
            "unexplained",
            "variance of the labels that the cosines leave unexplained",
            "for a mean squared error of cosines and labels: error at the end, divided by the "
            "variance of the labels in a batch",
            "by definition: the number is 1 if the mean label is predicted for each pair. In "
            "trainings on STS-B, it was 0.2 to 0.4, and 1.4 to 1.9 with shuffled labels",
            above=0.9,
            unit="of the variance",
        ),
        Threshold(
            "over_guess",
            "loss at the end",
            "for a softmax of products that are not cosines: InfoNCE of the compared pairs at the "
            "end, without other terms of the loss, divided by the loss of guessing",
            "we chose the limit; a loss of cosines is limited by its temperature",
            above=1.5,
            unit="times the loss of guessing",
        ),
    ),
    Change(_OF_A_TERM),
    when=_not_examined,
    only_if_healthy=True,
)


def _not_enough_seen(case: RunEvidence) -> Found | None:
    is_model = case.probe is not None and not case.rows and not case.settings
    steps = measured_steps(case)
    if is_model or not crosses("logged_steps", steps):
        return None
    evidence = (compared("logged_steps", steps),)
    if steps or len(case.rows) <= 1:
        return Found(evidence)
    change = "use an encoder that makes one vector for each text"
    if case.settings.get("loss"):
        change = "train with this loss in your own trainer, and measure with isotrope.Doctor()"
    return Found(
        evidence,
        "The Doctor saw the loss but no embeddings, so it cannot say whether the training is "
        "healthy.",
        change,
    )


def _longer_training(case: RunEvidence) -> str:
    if case.resumable:
        return "--resume (the training has not ended: repeat its command, then diagnose again)"
    if enough := (case.details.get("time") or {}).get("enough"):  # as the run advised
        return f"--minutes {enough} (more time, then diagnose again)"
    if case.settings.get("log-every") == 1:
        return "--epochs or --max-steps (a longer training, then diagnose again)"
    return "--log-every 1 (or train longer, then diagnose again)"


NOT_ENOUGH_SEEN = Verdict(
    "not-enough-seen",
    "no fault was found, but there was too little to examine",
    "No fault was found, but the log has measurements of fewer than three steps. With so few "
    "steps, the Doctor does not call a training healthy.",
    (
        Threshold(
            "logged_steps",
            "logged steps",
            "for a training: number of logged steps",
            "a trend needs three points: a first step, a last step, and a step between them",
            below=3,
        ),
    ),
    Change(
        _longer_training,
        "Doctor(every=1) or a longer training; if no step has numbers, an encoder that makes one "
        "vector for each text",
    ),
    when=_not_enough_seen,
    only_if_healthy=True,
)
