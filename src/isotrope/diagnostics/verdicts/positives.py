"""Rules on positives: identical views, unrelated pairs, false negatives, nothing that pushes."""

from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Finding
from isotrope.diagnostics.readings import (
    collapsed_at_start,
    crosses,
    further_evidence,
    separation,
)
from isotrope.diagnostics.verdict import THRESHOLDS, compared

__all__ = ["dead_views", "false_negatives", "only_pulled", "unrelated_positives"]


def dead_views(case: RunEvidence) -> Finding | None:
    """Both views are equal: every angle to a positive is 0, without a collapse."""
    angles = case.series("positive_mean")
    if not angles and case.objective is not None and case.probe is not None:
        angles = [x for x in [case.probe.get("positive_mean")] if x is not None]
    if not angles or not crosses("view_angle", max(angles)) or collapsed_at_start(case):
        return None
    return Finding(
        "dead-views",
        (compared("view_angle", max(angles)), *further_evidence(case, "negative_mean", "dead")),
        THRESHOLDS["view_angle"].source,
        "--dropout 0.1",
        "The two views of a text are the same vector, so that positives teach nothing: what makes "
        "them differ (dropout, augmentation) is switched off.",
    )


def only_pulled(case: RunEvidence) -> Finding | None:
    """A loss of labelled pairs gets one kind of label: every pair is pulled, and none apart.

    Where labels differ, pairs that belong apart may be done, and then none is pushed either.
    """
    pulled = case.end("pulled")
    if pulled is None or not crosses("pulled", pulled) or case.series("label_gap"):
        return None
    return Finding(
        "only-pulled",
        (compared("pulled", pulled), *further_evidence(case, "uniformity", "std", "loss")),
        THRESHOLDS["pulled"].source,
        "--objective infonce (its negatives are the other rows of the batch)",
        "All pairs have the same label, and this loss compares a pair with nothing else: it is "
        "smallest where all texts are one point.",
    )


def unrelated_positives(case: RunEvidence) -> Finding | None:
    """Before training real pairs are closer than chance; those of a shuffled file are not.

    Of a loss of labelled pairs, those of the higher labels are farther apart. Crops of one image
    are related by construction, even if a random encoder does not show it.
    """
    if case.kind == "images":
        return None
    gap = case.first("label_gap")
    if crosses("label_gap", gap) and gap is not None:
        return Finding(
            "unrelated-positives",
            (compared("label_gap", gap), *further_evidence(case, "loss")),
            THRESHOLDS["label_gap"].source,
            "--columns ANCHOR,POSITIVE (labels that are larger for pairs that belong together)",
            "Pairs with the higher labels are farther apart than those with the lower ones: the "
            "labels seem to be distances, or 1 to stand for what differs.",
        )
    at_first = separation(case.rows[0] if case.rows else None)
    sampled = separation(case.start if case.start is not None else case.probe)
    decided = sampled if sampled is not None else at_first
    if decided is None or not crosses("separation", decided) or collapsed_at_start(case):
        return None
    # one batch is a small sample: only a clear separation overrules the finding
    if at_first is not None and at_first > 2 * THRESHOLDS["separation"].value:
        return None
    return Finding(
        "unrelated-positives",
        (
            compared("separation", decided),
            *further_evidence(case, "positive_mean", "negative_mean", "loss"),
        ),
        THRESHOLDS["separation"].source,
        "--columns ANCHOR,POSITIVE (the columns, or a file, that belong together)",
        "A positive is no closer to its anchor than any negative is: the pairs seem to be mixed "
        "up. The loss stays where guessing is, or falls by learning pairs by heart.",
    )


def false_negatives(case: RunEvidence) -> Finding | None:
    """Copies of a text are pushed apart; images are exempt, as different ones may look alike."""
    if case.kind == "images":
        return None
    numbers = {
        "copies": None if case.probe is None else case.probe.get("copies"),
        "false_negatives": case.end("false_negatives"),
    }
    evidence = [compared(k, v) for k, v in numbers.items() if v is not None and crosses(k, v)]
    if not evidence:
        return None
    return Finding(
        "false-negatives",
        (*evidence, *further_evidence(case, "dead", "hardest_share", "positive_mean")),
        THRESHOLDS[evidence[0].name].source,
        "train on a file without these copies (`sort -u`, after removing what only numbers them)",
        "Many texts have a copy that counts as a negative, so that training pushes apart what "
        "means the same. `isotrope train` keeps exact copies out, and those that differ in case "
        "and punctuation only. Ignore this if the words in which the texts differ matter.",
    )
