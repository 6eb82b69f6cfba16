"""The records of a diagnosis: verdicts, findings with their numbers, and their printed form."""

import html
import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from isotrope.diagnostics.model_geometry import geometry_lines
from isotrope.measures.judgement import Judgement

__all__ = ["HEALTHY", "VERDICTS", "Diagnosis", "Evidence", "Finding", "together"]

HEALTHY = "healthy"

VERDICTS = {
    HEALTHY: "nothing was found",
    "no-negatives": "no anchor has a negative: there is nothing to tell it from",
    "dead-views": "the two views of a text are the same",
    "diverging": "the learning rate is too high",
    "collapsed": "all embeddings are one point",
    "dimensional-collapse": "the embeddings lie in a few dimensions",
    "unrelated-positives": "a positive is no closer than any negative",
    "false-negatives": "copies of a text are pushed apart",
    "only-pulled": "all pairs have the same label: they are pulled together, and none apart",
    "norms-too-large": "the embeddings are too long to be turned by their gradient",
    "negatives-not-hard": "every negative is pushed alike: the temperature is too high",
    "never-dissipating": "no anchor is ever done: a risk of overfitting",
    "temperature-too-low": "the temperature is too low: anchors are done or push one negative only",
    "nothing-left-to-learn": "most anchors were done before training, and no gain was measured",
    "dissipated-early": "almost no anchor learns any more, from early on",
    "losing-pull": "the pull is too weak to bring positives closer",
    "anisotropic-start": "all embeddings point the same way to begin with",
    "overfitting": "the dev score falls while training continues",
    "spreading": "healthy: both similarities fall, because the embeddings spread out",
    "not-enough-seen": "nothing was found, but there was too little to examine",
}
"""The meaning of each verdict, root causes first."""


@dataclass(frozen=True)
class Evidence:
    """One number of a finding.

    Attributes:
        name: of the threshold (isotrope.diagnostics.verdict), or of a number that only explains.
        number: the measured value.
        threshold: the limit; None if the number only explains.
        unit: of both.
        side: where a number is a fault: ``above`` the threshold or ``below`` it.
        label: what the number is, in plain words; empty if the name says it.
    """

    name: str
    number: float
    threshold: float | None = None
    unit: str = ""
    side: Literal["above", "below", ""] = ""
    label: str = ""

    @property
    def words(self) -> str:
        """The label, or the name in words."""
        return self.label or self.name.replace("_", " ")

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        against = "" if self.threshold is None else f" (a fault {self.side} {self.threshold:g})"
        return f"{self.words}: {self.number:.4g}{unit}{against}"


@dataclass(frozen=True)
class Finding:
    """One fault of a run or a model.

    Attributes:
        verdict: one of :data:`VERDICTS`.
        evidence: the numbers, the deciding ones first.
        source: paper and figure, or how the threshold was set.
        change: one concrete change, as a flag of the command line.
        detail: one or two sentences on the fault and why the change helps.
    """

    verdict: str
    evidence: tuple[Evidence, ...]
    source: str
    change: str
    detail: str


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """The result of a diagnosis.

    Attributes:
        findings: the root cause first; empty if the run is healthy.
        notes: the evidence that was examined, and that could not be; not part of the JSON.
        numbers: the key numbers of a healthy run, with the thresholds that they have not crossed.
        judgement: whether training helped, by the dev set; None if that is unknown.
        remarks: on a healthy run, what looks like a fault and is none.
        losses: for a user's own training, the recognised properties of each loss.
        model: of a model and data, its statistics (``isotrope.diagnostics.model_geometry``) and,
            under ``uncovered``, what whitening uncovers; else empty.
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    numbers: tuple[Evidence, ...] = ()
    judgement: Judgement | None = None
    losses: tuple[Mapping[str, Any], ...] = ()
    remarks: tuple[Finding, ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> tuple[str, ...]:
        """The findings' words in their order; or ``("healthy",)``, and what is remarkable."""
        remarks = (remark.verdict for remark in self.remarks)
        words = dict.fromkeys(finding.verdict for finding in self.findings)
        return tuple(words) or (HEALTHY, *dict.fromkeys(remarks))

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_json(self) -> str:
        """Return ``{"verdict": [...], "findings": [...], "numbers": [...], "judgement": ...}``.

        A healthy run with remarks also has ``"remarks"``, in the form of findings. The JSON of a
        user's own training also has ``"loss"``, with name, family, temperature and misfit; it is a
        list if there are several. Numbers that are not finite become null.
        """
        record: dict[str, Any] = {
            "verdict": list(self.verdict),
            "findings": [_plain(asdict(finding)) for finding in self.findings],
            "numbers": [_plain(asdict(number)) for number in self.numbers],
            "judgement": None if self.judgement is None else _plain(asdict(self.judgement)),
        }
        if self.remarks:
            record["remarks"] = [_plain(asdict(remark)) for remark in self.remarks]
        if self.model:
            record["model"] = _plain(dict(self.model))
        if self.losses:
            losses = [_plain(dict(loss)) for loss in self.losses]
            record["loss"] = losses[0] if len(losses) == 1 else losses
        return json.dumps(record, indent=2, ensure_ascii=False) + "\n"

    def __repr__(self) -> str:
        return f"Diagnosis({', '.join(self.verdict)})"

    def _repr_html_(self) -> str:
        """Return the printed text as HTML, for a notebook."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        """Return verdict, outcome, findings and examined evidence in lines of 96 characters."""
        judgement = self.judgement
        outcome = "" if judgement is None else f"; outcome: {judgement.outcome}"
        blocks = [f"verdict: {', '.join(self.verdict)}{outcome}"]
        blocks += [] if judgement is None else [_wrapped(judgement.sentence)]
        blocks += ["\n".join(f"- {number}" for number in self.numbers)] if self.numbers else []
        blocks += [_block(i, finding) for i, finding in enumerate(self.findings, start=1)]
        blocks += [_block(i, remark) for i, remark in enumerate(self.remarks, start=1)]
        if self.model:
            blocks.append("\n".join(_wrapped(f"- {line}") for line in geometry_lines(self.model)))
        blocks += [_wrapped("examined: " + "; ".join(self.notes))] if self.notes else []
        return "\n\n".join(blocks)


def together(parts: Mapping[str, Diagnosis]) -> Diagnosis:
    """Return the diagnosis of a run on several data sets from that of each.

    What is found of each of them alike, as of the dev score, is said once; anything else names its
    data set.
    """
    first = next(iter(parts.values()))
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
        notes=tuple(dict.fromkeys(note for part in parts.values() for note in part.notes)),
    )


def _merged(parts: Mapping[str, tuple[Finding, ...]]) -> tuple[Finding, ...]:
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


def _block(number: int, finding: Finding) -> str:
    lines = [
        f"{number}. {finding.verdict}: {VERDICTS[finding.verdict]}",
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


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
