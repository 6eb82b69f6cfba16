"""Rules on the log itself: non-finite numbers, and too few logged steps."""

from isotrope.diagnostics.evidence import RunEvidence, sane
from isotrope.diagnostics.findings import Evidence, Finding
from isotrope.diagnostics.observe import MEASURED
from isotrope.diagnostics.readings import crosses, learning_rate, lower_rate_flag
from isotrope.diagnostics.verdict import THRESHOLDS, compared

__all__ = ["not_enough_seen", "not_finite"]


def not_finite(case: RunEvidence) -> Finding | None:
    """The loss or the embeddings became NaN, infinite, or implausibly large."""
    broken = sum(
        any((x := row.get(name)) is not None and not sane(x) for name in ("loss", *MEASURED))
        for row in case.rows
    )
    if not crosses("rows_not_finite", broken):
        return None
    rate = learning_rate(case)
    return Finding(
        "diverging",
        (
            compared("rows_not_finite", broken),
            Evidence("logged_steps", len(case.rows)),
            *([] if rate is None else [Evidence("learning_rate", rate)]),
        ),
        THRESHOLDS["rows_not_finite"].source,
        lower_rate_flag(case, 10),
        "The log has numbers that are not finite: the loss or the embeddings overflowed, or were "
        "NaN to begin with; what is logged after that says nothing.",
    )


def not_enough_seen(case: RunEvidence) -> Finding | None:
    """Hardly a step of the training was logged: too little to call it healthy."""
    is_model = case.probe is not None and not case.rows and not case.settings
    steps = sum(any(row.get(name) is not None for name in MEASURED) for row in case.rows)
    if is_model or not crosses("logged_steps", steps):
        return None
    if not steps and len(case.rows) > 1:
        change = "an encoder that makes one vector for each text"
        what = "The loss was seen, but no embeddings: whether the training is healthy is not known."
    else:
        change = "--log-every 1 (or train longer, then diagnose again)"
        what = (
            "Nothing was found, but too few steps were logged to say whether this training is "
            "healthy."
        )
    return Finding(
        "not-enough-seen",
        (compared("logged_steps", steps),),
        THRESHOLDS["logged_steps"].source,
        change,
        what,
    )
