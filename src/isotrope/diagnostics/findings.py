"""The records of a diagnosis: findings with their numbers, and how they are printed."""

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from isotrope.core.documents import parse_json
from isotrope.core.result import json_text
from isotrope.measures.judgement import Judgement

MISSED = "in part not examined: "  # begins notes on errors
HEALTHY = "healthy"


def unfinished(step: float, steps: int | None) -> str:
    """Return the note on a training without an end; ``steps``: how many it should have had."""
    of = f" of {steps}" if steps else ""
    return f"{MISSED}the training is in progress (or stopped) at step {step:.0f}{of}"


@dataclass(frozen=True)
class Evidence:
    """One number of a finding.

    Attributes:
        name: Name of the number. A number with a threshold has the name of the threshold.
        threshold: Limit beyond which the number is a fault; None if the number decides nothing.
        side: ``above`` or ``below``: the side of the threshold on which the number is a fault.
        label: What the number measures, in plain words; if empty, the name is printed.
    """

    name: str
    number: float
    threshold: float | None = None
    unit: str = ""
    side: Literal["above", "below", ""] = ""
    label: str = ""

    @property
    def words(self) -> str:
        """The label or, if it is empty, the name with spaces."""
        return self.label or self.name.replace("_", " ")

    @property
    def value(self) -> str:
        """The number and its unit."""
        return f"{self._rounded(self.number)} {self.unit}".strip()

    @property
    def limit(self) -> str:
        """Side and threshold, such as ``above 0.9``; empty if there is no threshold."""
        number = "" if self.threshold is None else self._rounded(self.threshold)
        return f"{self.side} {number}".strip() if number else ""

    def __str__(self) -> str:
        against = f" (a fault if {self.limit})" if self.limit else ""
        return f"{self.words}: {self.value}{against}"

    def _rounded(self, number: float) -> str:
        if not math.isfinite(number):
            return "not finite"
        shown = 100 * number if self.is_share else number
        return (f"{shown:,.0f}" if abs(shown) >= 1000 else f"{shown:.4g}") + "%" * self.is_share

    @property
    def is_share(self) -> bool:
        """Whether the number is a share (unit "of ..."). A share is printed in percent."""
        return self.unit.startswith("of ") and math.isfinite(self.number)


@dataclass(frozen=True)
class Finding:
    """One fault of a run or a model.

    Attributes:
        verdict: Name (``slug``) of a :class:`~isotrope.diagnostics.verdict.Verdict`.
        evidence: Numbers behind the finding. The numbers that decide the verdict are first.
        source: Origin of the threshold: a figure of a paper, or how the threshold was chosen.
        change: One setting to change, named as a flag or as in the user's trainer.
        detail: One or two sentences: what the fault is, and why the change helps.
        title: The verdict in one line.
    """

    verdict: str
    evidence: tuple[Evidence, ...]
    source: str
    change: str
    detail: str
    title: str = ""


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """The result of a diagnosis.

    Attributes:
        findings: Faults, root cause first; empty if the run is healthy.
        notes: What was examined and, after the words "in part not examined: ", what could not be.
        numbers: The main numbers of a healthy run, with the thresholds that they do not cross.
        judgement: Whether training raised the score on the dev set; None if that is unknown.
        remarks: Properties of a healthy run that look like faults but are not.
        losses: One dict of properties for each loss of a training in another trainer.
        model: The result of ``probe.model_geometry``; the key ``uncovered`` has the gain from
            whitening. Empty if no model was diagnosed.
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    numbers: tuple[Evidence, ...] = ()
    judgement: Judgement | None = None
    losses: tuple[Mapping[str, Any], ...] = ()
    remarks: tuple[Finding, ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict)

    @property
    def missed(self) -> tuple[str, ...]:
        """The notes on errors that prevented a part of the examination."""
        return tuple(note for note in self.notes if note.startswith(MISSED))

    @property
    def verdict(self) -> tuple[str, ...]:
        """The verdicts of the findings; without findings, "healthy" and the verdicts of remarks."""
        remarks = (remark.verdict for remark in self.remarks)
        words = dict.fromkeys(finding.verdict for finding in self.findings)
        return tuple(words) or (HEALTHY, *dict.fromkeys(remarks))

    @property
    def words(self) -> str:
        """The verdict in words: ``collapsed, losing pull``."""
        return ", ".join(self.verdict).replace("-", " ")

    @property
    def healthy(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the diagnosis that :meth:`to_json` wrote; a number that is null becomes NaN.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: ``text`` is malformed.
        """
        record = parse_json(text)
        if not isinstance(record["verdict"], list):
            raise TypeError("the verdict is not a list")
        losses, judgement = record.get("loss", []), record.get("judgement")
        return cls(
            _findings(record["findings"]),
            notes=tuple(record.get("notes", ())),
            numbers=_evidence(record.get("numbers", ())),
            judgement=None if judgement is None else Judgement.read(judgement),
            losses=tuple(losses) if isinstance(losses, list) else (losses,),
            remarks=_findings(record.get("remarks", ())),
            model=record.get("model", {}),
        )

    def to_json(self) -> str:
        """Return JSON: keys ``verdict``, ``findings``, ``notes``, ``numbers`` and ``judgement``.

        If there are remarks, the key ``remarks`` has a list of them, in the form of ``findings``.
        If a model was diagnosed, the key ``model`` has its statistics. After a training in another
        trainer, the key ``loss`` has an object with the properties of the loss. If there are
        several losses, it has a list of objects. NaN and infinity become null.
        """
        record: dict[str, Any] = {
            "verdict": list(self.verdict),
            "findings": [asdict(finding) for finding in self.findings],
            "notes": list(self.notes),
            "numbers": [asdict(number) for number in self.numbers],
            "judgement": None if self.judgement is None else asdict(self.judgement),
        }
        if self.remarks:
            record["remarks"] = [asdict(remark) for remark in self.remarks]
        if self.model:
            record["model"] = dict(self.model)
        if self.losses:
            losses = [dict(loss) for loss in self.losses]
            record["loss"] = losses[0] if len(losses) == 1 else losses
        return json_text(record)

    def __repr__(self) -> str:
        return f"Diagnosis({', '.join(self.verdict)})"

    def _repr_html_(self) -> str:
        """Return the printed text as HTML, for a notebook."""
        return f"<pre>{html.escape(str(self))}</pre>"

    @property
    def examined(self) -> str:
        """The notes on the examination that neither name an error nor contain a command."""
        return "; ".join(x for x in self.notes if x not in self.missed and "`" not in x)

    @property
    def commands(self) -> tuple[str, ...]:
        """The other notes, on what to run or to write; each is one line, to be copied."""
        return tuple(x for x in self.notes if x not in self.missed and "`" in x)

    def __str__(self) -> str:
        """Return verdict, outcome, findings and notes in lines of at most 96 characters."""
        judgement = self.judgement
        outcome = "" if judgement is None else f"; outcome: {judgement.outcome}"
        blocks = [f"verdict: {', '.join(self.verdict)}{outcome}"]
        blocks += [note if "`" in note else _wrapped(note) for note in self.missed]
        blocks += [] if judgement is None else [_wrapped(judgement.sentence)]
        blocks += ["\n".join(f"- {number}" for number in self.numbers)] if self.numbers else []
        blocks += [_block(i, finding) for i, finding in enumerate(self.findings, start=1)]
        blocks += [_block(i, remark) for i, remark in enumerate(self.remarks, start=1)]
        if self.model:
            blocks.append("\n".join(_wrapped(f"- {line}") for line in _geometry(self.model)))
        blocks += [_wrapped(f"examined: {self.examined}")] if self.examined else []
        blocks += self.commands
        return "\n\n".join(blocks)


def _findings(records: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
    return tuple(Finding(**{**row, "evidence": _evidence(row["evidence"])}) for row in records)


def _evidence(records: Sequence[Mapping[str, Any]]) -> tuple[Evidence, ...]:
    rows = (
        {**row, "number": math.nan if row["number"] is None else row["number"]} for row in records
    )
    return tuple(Evidence(**row) for row in rows)


def _block(number: int, finding: Finding) -> str:
    lines = [
        f"{number}. {finding.verdict}: {finding.title}",
        _wrapped(finding.detail, "   "),
        *(f"   - {evidence}" for evidence in finding.evidence),
        _wrapped(f"source: {finding.source}", "   "),
        _wrapped(f"change: {finding.change}", "   "),
    ]
    return "\n".join(lines)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        width=96,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _geometry(found: Mapping[str, Any]) -> Sequence[str]:
    """Return the statistics of a model in words, a line each."""
    lines = []
    for side, assumed in (("positive", 0.05), ("negative", 0.10)):
        (mean, std), cosines = found[f"{side}_angle"], found[f"{side}_cosine"]
        if mean is not None and cosines is not None:
            low, middle, high = cosines
            lines.append(
                f"angles to {side}s: mean {mean:.2f}, standard deviation {std:.2f} radians (Li et "
                f"al. 2024 assume {assumed:.2f}); cosines: median {middle:.2f}, 90% are between "
                f"{low:.2f} and {high:.2f}"
            )
    if found["hardest_share"] is not None:
        lines.append(
            f"hardest negative: {found['hardest_share']:.0%} of the push (InfoNCE at tau = 0.05)"
        )
    if found["lemma_share"] is not None:
        share = f"{found['lemma_share']:.0%} of the anchors"
        lines.append(f"if pull equals push, {share} get nearer to their positives (Lemma 1)")
    ratios = [f"{name} {value:.2f}" for name, value in found["ratios"].items() if value is not None]
    lines += [f"ratio of pull to push, by objective: {', '.join(ratios)}"] if ratios else []
    if uncovered := found.get("uncovered"):
        scores = ""
        if uncovered["raw"] is not None:
            raw, whitened = uncovered["raw"], uncovered["whitened"]
            scores = (
                f"{uncovered['score']} {raw:.2f}, whitened {whitened:.2f} "
                f"({whitened - raw:+.2f}, 95% interval {uncovered['low']:+.2f} to "
                f"{uncovered['high']:+.2f}); "
            )
        lines.append(f"encoder {uncovered['kind']}: {scores}{uncovered['sentence']}")
    return lines
