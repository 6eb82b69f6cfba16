"""Rules on falling positive similarity: a pull that is too weak, or healthy spreading."""

from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Evidence, Finding
from isotrope.diagnostics.readings import crosses, further_evidence
from isotrope.diagnostics.verdict import THRESHOLDS, compared

__all__ = ["losing_pull", "spreading"]

_MOVED = 10  # logged steps before an angle is said to have risen


def losing_pull(case: RunEvidence) -> Finding | None:
    """The push outweighs the pull (Lemma 1 of Li et al., 2024), and positives come no closer."""
    above = case.end("above_bound")
    if above is None or not crosses("above_bound", above):
        return None
    ratio, risen = case.end("ratio"), _risen(case, "positive_mean")
    if case.objective is None and ratio is not None and crosses("pull", abs(ratio)):
        return None
    if risen is not None and crosses("positive_closer", risen):
        return None
    return Finding(
        "losing-pull",
        (
            compared("above_bound", above),
            *([] if risen is None else [Evidence("positive_angle_risen", risen, unit="rad")]),
            *further_evidence(case, "ratio", "positive_mean", "negative_mean"),
        ),
        THRESHOLDS["above_bound"].source,
        "--objective.ratio 1.5",
        "A step takes most anchors away from their positives: for each push of the negatives the "
        "positive pulls by less than the bound of Lemma 1.",
    )


def spreading(case: RunEvidence) -> Finding | None:
    """Positives and negatives move apart, negatives more, and the pull is above Lemma 1's bound.

    It is no fault. Where all embeddings began near each other, every similarity falls while they
    spread out; what counts is that positives stay ahead.
    """
    if len(case.series("positive_mean")) < _MOVED:
        return None
    positive, negative = _risen(case, "positive_mean"), _risen(case, "negative_mean")
    above = case.end("above_bound")
    if above is None or positive is None or negative is None or crosses("above_bound", above):
        return None
    if not crosses("both_fall", positive) or negative <= positive:
        return None
    return Finding(
        "spreading",
        (
            compared("both_fall", positive),
            Evidence("negative_angle_risen", negative, unit="rad"),
            compared("above_bound", above),
            *further_evidence(case, "ratio", "positive_mean", "negative_mean"),
        ),
        THRESHOLDS["above_bound"].source,
        "none",
        "Positives and negatives are both less similar than at first, negatives by more: the "
        "embeddings spread out. The pull is strong enough to bring positives closer.",
    )


def _risen(case: RunEvidence, column: str) -> float | None:
    """Return the angle at the end of the log minus that of its first step."""
    values = case.series(column)
    end = case.end(column)
    return end - values[0] if len(values) > 1 and end is not None else None
