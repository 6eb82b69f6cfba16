"""The function ``diagnose``: applies the rules to the evidence of a run, a model or a training.

The evidence is a :class:`~isotrope.diagnostics.evidence.RunEvidence`, the rules are in
:mod:`isotrope.diagnostics.verdicts`, their numbers in :mod:`isotrope.diagnostics.verdict`. The
callback that collects the evidence during a training is in ``isotrope.adapters.doctor``.
"""

from isotrope.diagnostics.advice import for_trainer
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Diagnosis, Evidence, Finding
from isotrope.diagnostics.readings import (
    crosses,
    dead_share_after_start,
    hardest_over_even,
    rank_limit,
)
from isotrope.diagnostics.verdict import compared
from isotrope.diagnostics.verdicts import EXPLAINS, RULES
from isotrope.diagnostics.verdicts.log_quality import not_enough_seen
from isotrope.diagnostics.verdicts.similarities import spreading

__all__ = ["diagnose"]


def diagnose(case: RunEvidence) -> Diagnosis:
    """Return the findings, the root cause first, without those that an earlier one explains."""
    findings: list[Finding] = []
    explained: set[str] = set()
    for rule in RULES:
        finding = rule(case)
        if finding is not None and finding.verdict not in explained:
            findings.append(finding)
            explained |= EXPLAINS.get(finding.verdict, set())
    if not findings and (unknown := not_enough_seen(case)) is not None:
        findings = [unknown]  # nothing was found, but hardly anything was measured either
    numbers = () if findings else _key_numbers(case)
    rephrased = tuple(for_trainer(finding, case) for finding in findings)
    remark = None if findings else spreading(case)
    remarks = () if remark is None else (remark,)
    return Diagnosis(
        rephrased, case.notes, numbers, case.judgement, case.losses, remarks, case.model
    )


def _key_numbers(case: RunEvidence) -> tuple[Evidence, ...]:
    """Return the measured numbers by which a run is called healthy."""
    rank, most = case.end("effective_rank"), rank_limit(case)
    numbers = {
        "dead_early": dead_share_after_start(case),
        "hardest_times_uniform": hardest_over_even(case),
        "rank_share": None if rank is None or not most else rank / most,
        "above_bound": case.end("above_bound"),
    }
    # a number beyond its threshold decided nothing here: its rule has further conditions
    return tuple(
        compared(name, number)
        for name, number in numbers.items()
        if number is not None and not crosses(name, number)
    )
