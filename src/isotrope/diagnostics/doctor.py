"""The doctor: rules from evidence to findings, the root cause first.

A rule looks at a :class:`~isotrope.diagnostics.evidence.Case` and returns a finding or None. The
rules stand in the order of cause and effect: what explains the rest is named first.
"""

from collections.abc import Callable

from isotrope.diagnostics.evidence import Case
from isotrope.diagnostics.findings import Diagnosis, Finding

__all__ = ["diagnose"]

Rule = Callable[[Case], Finding | None]

RULES: tuple[Rule, ...] = ()


def diagnose(case: Case) -> Diagnosis:
    """Return what is wrong, the root cause first."""
    found = (rule(case) for rule in RULES)
    return Diagnosis(tuple(finding for finding in found if finding is not None), case.notes)
