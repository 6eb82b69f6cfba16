"""Diagnoses a training or a model: applies the rules of all verdicts to its measurements.

The measurements are in a :class:`~isotrope.diagnostics.evidence.RunEvidence`, and the rules in
:mod:`isotrope.diagnostics.verdicts`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from isotrope.diagnostics import readings
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Diagnosis, Evidence, Finding
from isotrope.diagnostics.verdict import compared, crosses
from isotrope.diagnostics.verdicts import VERDICTS

_SHOWN = 3  # names of weights that a note lists


def diagnose(case: RunEvidence) -> Diagnosis:
    """Return the diagnosis. Findings begin with the root cause; consequences are left out."""
    verdicts = VERDICTS.values()
    # a verdict with ``before_all`` is tried twice, so its ``explains`` must list the verdict itself
    first = [v.finding(case, v.before_all) for v in verdicts if v.before_all is not None]
    tried = [v.finding(case) for v in verdicts if not v.only_if_healthy]
    findings: list[Finding] = []
    explained: set[str] = set()
    for finding in first + tried:
        if finding is not None and finding.verdict not in explained:
            findings.append(finding)
            explained |= {*VERDICTS[finding.verdict].explains}
    remarks: list[Finding] = []
    for verdict in verdicts:
        if findings:
            break
        finding = verdict.finding(case) if verdict.only_if_healthy else None
        if finding is not None and verdict.is_fault:
            findings.append(finding)
        elif finding is not None:
            remarks.append(finding)
    # the last loop may have found a fault after a remark: remarks are for healthy runs only
    return Diagnosis(
        findings=tuple(findings),
        notes=(*case.notes, *_unchanged(case), *(() if findings else _coverage(case))),
        numbers=() if findings else _key_numbers(case),
        judgement=case.judgement,
        losses=case.losses,
        remarks=() if findings else tuple(remarks),
        model=case.model,
    )


def _unchanged(case: RunEvidence) -> list[str]:
    """Return a note on trained weights that no step has changed, although others have changed."""
    names = case.settings.get("unchanged", ())
    if not names or crosses("logged_steps", len(case.rows)):
        return []
    return [
        f"add these weights to the optimizer, or set `requires_grad=False`: {_first_names(names)} "
        "got a gradient, but have not changed since the first measured step, unlike other weights"
    ]


def _first_names(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _coverage(case: RunEvidence) -> list[str]:
    """Return notes on what a healthy training in another trainer was examined for."""
    if not case.losses:
        return []
    frozen = case.settings.get("frozen")
    is_single = readings.negative_count(case) == 1
    few = " (an anchor has only 1; larger batches have more)" if is_single else ""
    was_measured = {
        "relation of pairs": any(readings.separation(row) is not None for row in case.rows),
        f"push of negatives{few}": readings.hardest_over_even(case) is not None,
        "gradient dissipation": bool(case.series("dissipation")),
        "copies": bool(case.series("false_negatives")),
        "embeddings": bool(case.series("std")),
        "held-out scores": readings.gain_in_score(case) is not None,
        f"frozen weights{f' ({_first_names(frozen)})' if frozen else ''}": frozen is not None,
    }
    examined = [part for part, measured in was_measured.items() if measured]
    missing = [part for part, measured in was_measured.items() if not measured]
    left = [f"not examined: {', '.join(missing)}"] if missing else []
    return [f"{len(case.rows)} logged steps", ", ".join(examined), *left]


def _key_numbers(case: RunEvidence) -> tuple[Evidence, ...]:
    """Return the main numbers of a healthy run that do not cross their thresholds."""
    rank, most = case.end("effective_rank"), readings.rank_limit(case)
    numbers = {
        "logged_steps": readings.measured_steps(case) if case.rows else None,
        "dead_early": readings.dead_share_after_start(case),
        "hardest_times_uniform": readings.hardest_over_even(case),
        "rank_share": None if rank is None or not most else rank / most,
        "above_bound": case.end("above_bound"),
    }
    # a healthy run may cross a threshold, because the rule of a verdict has other conditions too
    shown = []
    for name, number in numbers.items():
        if number is not None and not crosses(name, number):
            evidence = compared(name, number)
            is_even = name == "hardest_times_uniform"
            shown.append(readings.as_measured(case, evidence) if is_even else evidence)
    return tuple(shown)


def together(parts: Mapping[str, Diagnosis]) -> Diagnosis:
    """Merge the diagnoses of a run's data sets into one.

    A finding that all data sets share is reported once. Any other finding names its data set. The
    judgement and the model belong to the whole run, so those of the first data set are taken.
    """
    first = next(iter(parts.values()))
    if "" in parts:  # they have no names, so there is only one
        return first
    order = list(VERDICTS)
    findings = _merged({name: part.findings for name, part in parts.items()})
    remarks = _merged({name: part.remarks for name, part in parts.items()})
    numbers = [
        replace(number, name=f"{name}: {number.name}", label=f"{name}, {number.words}")
        for name, part in parts.items()
        for number in part.numbers
    ]
    return replace(
        first,
        findings=tuple(sorted(findings, key=lambda finding: order.index(finding.verdict))),
        remarks=() if findings else remarks,
        numbers=() if findings else tuple(numbers),
        losses=tuple(loss for part in parts.values() for loss in part.losses),
        notes=tuple(dict.fromkeys(note for part in parts.values() for note in part.notes)),
    )


def _merged(parts: Mapping[str, tuple[Finding, ...]]) -> tuple[Finding, ...]:
    """Return the findings that all data sets share, then the others with their data set's name."""
    shared = set.intersection(*map(set, parts.values()))
    named = (
        replace(
            finding,
            detail=f"Data set {name}: {finding.detail}",
            change=finding.change.replace("--objective.", f"--objective.{name}."),
        )
        for name, findings in parts.items()
        for finding in findings
        if finding not in shared
    )
    return (*(f for f in next(iter(parts.values())) if f in shared), *named)
