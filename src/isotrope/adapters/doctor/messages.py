"""Writes the lines that the Doctor prints: on a new loss, a changed verdict, and at the end."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from isotrope.diagnostics.anatomy import Anatomy, Row
from isotrope.diagnostics.findings import HEALTHY, Diagnosis
from isotrope.diagnostics.verdicts import VERDICTS

_KINDS = {
    "known": "an objective of isotrope",
    "softmax": "a softmax over the batch",
    "other": "a loss that pulls and pushes within the batch, but not a softmax",
    "pairs": "a loss of pairs, without in-batch negatives",
    "targets": "a loss that pulls embeddings to constant targets: not examined",
    "nothing": "not recognised yet: its gradient is zero",
    "unseen": "not examined",
    "broken": "not examined: its embeddings are not finite",
    "scores": "a loss that fits similarities to labels",
}


def first_look(name: str, kind: str, row: Row, anatomy: Anatomy) -> str:
    """Return the line on a loss after its first measured batch."""
    objective = anatomy.objective if kind == "known" else None
    what = _KINDS[kind] if objective is None else f"the objective {objective.name}"
    parts = [f"{name} is {what}"]
    if kind == "unseen" and anatomy.reason:
        parts[0] += f": {anatomy.reason}"
    tau, count, share = row["temperature"], row["negatives"], row["hardest_share"]
    if tau is not None:
        parts[0] += f", temperature {tau:.3g} (scale={1 / tau:.3g})"
        stated = anatomy.temperature
        if stated is not None and abs(tau / stated - 1) > 0.02:
            parts[0] += (
                f", although its setting is {stated:.3g}: it weights hard negatives like a softmax "
                f"with temperature {tau:.3g}"
            )
    if kind == "pairs":
        return parts[0]
    if count:
        parts.append(f"{count:.0f} negatives for each anchor")
    if row["dead"] is not None:
        parts.append(f"{row['dead']:.0%} of the anchors learn almost nothing (GD < 0.01)")
    if share is not None and count:
        even = f"{1 / count:.0%} if all push alike"
        parts.append(f"{share:.0%} of the push is from the hardest negative ({even})")
    return "; ".join(parts)


def changed(step: int, diagnosis: Diagnosis) -> str:
    """Return the line on a changed verdict."""
    if diagnosis.remarks:
        remark = diagnosis.remarks[0]
        return f"step {step}: {', '.join(diagnosis.verdict)}: {remark.detail}"
    if diagnosis.healthy:
        return f"step {step}: healthy again"
    first = diagnosis.findings[0]
    return (
        f"step {step}: {', '.join(diagnosis.verdict)} ({first.evidence[0]}); change: {first.change}"
    )


def at_the_end(diagnosis: Diagnosis, folder: Path | None) -> str:
    """Return the final line: the verdict, and the folder with the details."""
    verdicts = [f"{v} ({VERDICTS[v].title})" for v in diagnosis.verdict]
    line = f"verdict: {', '.join(verdicts)}"
    if not diagnosis.healthy:
        line += f"; change: {diagnosis.findings[0].change}"
    return line + ("" if folder is None else f"; see {folder}")


def on_the_card(losses: Iterable[Mapping[str, Any]], diagnosis: Diagnosis) -> str:
    """Return the paragraph on a training for the model card."""
    sentences = ["isotrope measured the gradient of the loss on the embeddings during training."]
    for loss in losses:
        what = _KINDS.get(loss["family"], f"the objective {loss['family']}").partition(";")[0]
        tau, count = loss.get("temperature"), loss.get("negatives")
        what += f", temperature {tau:.3g} (scale={1 / tau:.3g})" if tau else ""
        what += f", with {count:.0f} negatives for each anchor" if count else ""
        sentences.append(f"{loss['name']} is {what}.")
    verdicts = ", ".join(f"`{word}` ({VERDICTS[word].title})" for word in diagnosis.verdict)
    pages = [f"`docs/diagnoses/{word}.md`" for word in diagnosis.verdict if word != HEALTHY]
    sentences.append(
        f"The final verdict is {verdicts}, explained in "
        f"{', '.join(pages) or '`docs/diagnosis.md`'} of isotrope."
    )
    return " ".join(sentences)
