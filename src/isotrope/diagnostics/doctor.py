"""The doctor: what is wrong with a run or a model, the root cause first, and what to change.

The evidence is a :class:`~isotrope.diagnostics.evidence.RunEvidence`, the knowledge stands in
:mod:`isotrope.diagnostics.rules`, its numbers in :mod:`isotrope.diagnostics.thresholds`.
"""

from isotrope.diagnostics.advice import in_their_words
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Diagnosis, Evidence, Finding
from isotrope.diagnostics.readings import crosses, later_dead, most_dimensions, negatives
from isotrope.diagnostics.rules import EXPLAINS, RULES
from isotrope.diagnostics.rules.seen import not_enough_seen
from isotrope.diagnostics.thresholds import compared

__all__ = ["diagnose"]


def diagnose(case: RunEvidence) -> Diagnosis:
    """Return what is wrong, the root cause first; what a finding explains is not told again."""
    findings: list[Finding] = []
    explained: set[str] = set()
    for rule in RULES:
        finding = rule(case)
        if finding is not None and finding.verdict not in explained:
            findings.append(finding)
            explained |= EXPLAINS.get(finding.verdict, set())
    if not findings and (unknown := not_enough_seen(case)) is not None:
        findings = [unknown]  # nothing was found, but nothing was looked at either
    numbers = () if findings else _key_numbers(case)
    told = tuple(in_their_words(finding, case) for finding in findings)
    return Diagnosis(told, case.notes, numbers, case.judgement, case.losses)


def _key_numbers(case: RunEvidence) -> tuple[Evidence, ...]:
    """Return what a healthy run is called so by, as far as it was measured."""
    share, count = case.end("hardest_share"), negatives(case)
    rank, most = case.end("effective_rank"), most_dimensions(case)
    found = {
        "dead_early": later_dead(case),
        "hardest_times_uniform": None if share is None or count is None else share * count,
        "rank_share": None if rank is None or not most else rank / most,
        "above_bound": case.end("above_bound"),
    }
    # a number on the other side decided nothing, for want of what else its rule asks for
    return tuple(
        compared(name, number)
        for name, number in found.items()
        if number is not None and not crosses(name, number)
    )
