"""The doctor: what is wrong with a run or a model, the root cause first, and what to change.

The evidence is a :class:`~isotrope.diagnostics.evidence.Case`, the knowledge stands in
:mod:`isotrope.diagnostics.rules`, its numbers in :mod:`isotrope.diagnostics.thresholds`.
"""

from isotrope.diagnostics.evidence import Case
from isotrope.diagnostics.findings import Diagnosis, Finding
from isotrope.diagnostics.rules import EXPLAINS, RULES
from isotrope.diagnostics.rules.seen import not_enough_seen

__all__ = ["diagnose"]


def diagnose(case: Case) -> Diagnosis:
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
    return Diagnosis(tuple(findings), case.notes)
