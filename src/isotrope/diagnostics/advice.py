"""Adapts the change that a finding proposes to the trainer that was used.

A rule tells its change in the words of ``isotrope train``. Of a training by another trainer, which
the setting ``trainer`` names, it is told here in arguments of that trainer and of its losses.
"""

from collections.abc import Callable
from dataclasses import replace

from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Finding

__all__ = ["in_their_words"]

SENTENCE_TRANSFORMERS = "sentence-transformers"

_CONTRASTIVE = "MultipleNegativesRankingLoss"


def in_their_words(finding: Finding, case: RunEvidence) -> Finding:
    """Return a finding with its change in the words of the trainer of the case, if it is known."""
    trainer = case.setting("trainer")
    wording = _CHANGES.get(finding.verdict)
    if trainer is None or wording is None:
        return finding
    return replace(finding, change=wording(case, trainer == SENTENCE_TRANSFORMERS))


def _batch(case: RunEvidence, theirs: bool) -> str:
    size = max(64, 4 * (case.batch_size or 16))
    change = f"per_device_train_batch_size={size}" if theirs else f"a batch of {size} rows"
    if case.batch_size is not None:
        change += f" (now {case.batch_size})"
    if theirs and _CONTRASTIVE in (_name(case) or ""):
        change += (
            f"; if memory does not hold it, Cached{_CONTRASTIVE}(model, mini_batch_size="
            f"{max(8, min(32, case.batch_size or 32))})"
        )
    return change


def _no_negatives(case: RunEvidence, theirs: bool) -> str:
    if case.batch_size == 1:
        return _batch(case, theirs)
    return _batch(case, theirs) + ", or a column of hard negatives in the data"


def _cooler(case: RunEvidence, theirs: bool) -> str:
    tau = _temperature(case)
    better = 0.05 if tau is None or tau > 0.05 else tau / 2
    now = "" if tau is None else f" (now {1 / tau:.3g})" if theirs else f" (now {tau:.3g})"
    return f"scale={1 / better:g}{now}" if theirs else f"a temperature of {better:g}{now}"


def _warmer(case: RunEvidence, theirs: bool) -> str:
    tau = _temperature(case)
    if tau is None:
        return _batch(case, theirs) + ", or a column of hard negatives in the data"
    if theirs:
        return (
            f"scale={1 / (2 * tau):.3g} (now {1 / tau:.3g}), or harder negatives: "
            "mine_hard_negatives(...)"
        )
    return f"a temperature of {2 * tau:.3g} (now {tau:.3g}), or harder negatives"


def _warm(case: RunEvidence, theirs: bool) -> str:
    tau = case.first("temperature") or _temperature(case) or 0.05
    better = max(0.05, 4 * tau)
    if theirs:
        return f"scale={1 / better:.3g} (now {1 / tau:.3g})"
    return f"a temperature of {better:.3g} (now {tau:.3g})"


def _related(case: RunEvidence, theirs: bool) -> str:
    if case.first("label_gap") is not None:
        return "1 - label: labels that are larger for pairs that belong together"
    if theirs:
        return (
            "columns in the order (anchor, positive, negative): use train_dataset.select_columns"
            "([...]); if the order is right, rows whose texts belong together"
        )
    return "rows whose texts belong together"


def _slower(divisor: float) -> Callable[[RunEvidence, bool], str]:
    def change(case: RunEvidence, theirs: bool) -> str:
        rate = case.setting("learning-rate")
        if rate is None:
            return f"a learning rate divided by {divisor:g}"
        lower = f"{float(rate) / divisor:.2g}"
        return f"learning_rate={lower} (now {float(rate):g})"

    return change


def _said(text: str, theirs_text: str | None = None) -> Callable[[RunEvidence, bool], str]:
    return lambda case, theirs: theirs_text if theirs and theirs_text is not None else text


def _temperature(case: RunEvidence) -> float | None:
    temperatures = [loss["temperature"] for loss in case.losses if loss.get("temperature")]
    return float(temperatures[0]) if temperatures else case.end("temperature")


def _name(case: RunEvidence) -> str | None:
    return next((str(loss["name"]) for loss in case.losses if loss.get("name")), None)


_CHANGES: dict[str, Callable[[RunEvidence, bool], str]] = {
    "no-negatives": _no_negatives,
    "dead-views": _said(
        "two different texts a row, or dropout that is switched on",
        "a second column with another text, or a model whose dropout is not 0",
    ),
    "diverging": _slower(10),
    "collapsed": _slower(10),
    "dimensional-collapse": _said(
        "another encoder, or a loss with in-batch negatives",
        f"another base model, or {_CONTRASTIVE}(model)",
    ),
    "unrelated-positives": _related,
    "false-negatives": _said(
        "batches without two rows of one text",
        "batch_sampler=BatchSamplers.NO_DUPLICATES; of near duplicates, GISTEmbedLoss(model, "
        "guide=...)",
    ),
    "norms-too-large": _said(
        "a layer that normalises, or embeddings of a smaller scale",
        "models.Normalize() as the last module, or a lower learning_rate",
    ),
    "negatives-not-hard": _cooler,
    "temperature-too-low": _warm,
    "only-pulled": _said(
        "a loss with in-batch negatives, or pairs that belong apart, with a label of 0",
        f"{_CONTRASTIVE}(model) without the label column, or pairs that belong apart, with a label "
        "of 0",
    ),
    "nothing-left-to-learn": _said(
        "harder negatives or other data",
        "mine_hard_negatives(dataset, model, ...) for a column of hard negatives, or other data",
    ),
    "dissipated-early": _warmer,
    "losing-pull": _said(
        "a loss with the positive in its softmax",
        f"{_CONTRASTIVE}(model), whose pull equals its push",
    ),
    "anisotropic-start": _said(
        "a short contrastive training", f"a short training with {_CONTRASTIVE}(model)"
    ),
    "overfitting": _said(
        "fewer steps, or the checkpoint of the best score",
        'load_best_model_at_end=True with eval_strategy="steps", or fewer num_train_epochs',
    ),
    "not-enough-seen": _said(
        "Doctor(every=1), or a longer training, and embeddings of one vector a text"
    ),
}
