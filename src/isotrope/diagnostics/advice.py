"""Adapts the change that a finding proposes to the trainer that was used.

A rule words its change in flags of ``isotrope train``. For another trainer, which the setting
``trainer`` names, the same change is worded here: in arguments of sentence-transformers and its
losses (``by_arguments``), or in words.
"""

from collections.abc import Callable
from dataclasses import replace

from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Finding

__all__ = ["for_trainer"]

SENTENCE_TRANSFORMERS = "sentence-transformers"

_CONTRASTIVE = "MultipleNegativesRankingLoss"


def for_trainer(finding: Finding, case: RunEvidence) -> Finding:
    """Return a finding with its change worded for the trainer of the case, if it is known."""
    trainer = case.setting("trainer")
    wording = _CHANGES.get(finding.verdict)
    if trainer is None or wording is None:
        return finding
    return replace(finding, change=wording(case, trainer == SENTENCE_TRANSFORMERS))


def _batch(case: RunEvidence, by_arguments: bool) -> str:
    size = max(64, 4 * (case.batch_size or 16))
    change = f"per_device_train_batch_size={size}" if by_arguments else f"a batch of {size} rows"
    if case.batch_size is not None:
        change += f" (now {case.batch_size})"
    if by_arguments and _CONTRASTIVE in (_name(case) or ""):
        change += (
            f"; if memory does not hold it, Cached{_CONTRASTIVE}(model, mini_batch_size="
            f"{max(8, min(32, case.batch_size or 32))})"
        )
    return change


def _no_negatives(case: RunEvidence, by_arguments: bool) -> str:
    if case.batch_size == 1:
        return _batch(case, by_arguments)
    return _batch(case, by_arguments) + ", or a column of hard negatives in the data"


def _cooler(case: RunEvidence, by_arguments: bool) -> str:
    tau = _temperature(case)
    better = 0.05 if tau is None or tau > 0.05 else tau / 2
    now = "" if tau is None else f" (now {1 / tau:.3g})" if by_arguments else f" (now {tau:.3g})"
    return f"scale={1 / better:g}{now}" if by_arguments else f"a temperature of {better:g}{now}"


def _warmer(case: RunEvidence, by_arguments: bool) -> str:
    tau = _temperature(case)
    if tau is None:
        return _batch(case, by_arguments) + ", or a column of hard negatives in the data"
    if by_arguments:
        return (
            f"scale={1 / (2 * tau):.3g} (now {1 / tau:.3g}), or harder negatives: "
            "mine_hard_negatives(...)"
        )
    return f"a temperature of {2 * tau:.3g} (now {tau:.3g}), or harder negatives"


def _warm(case: RunEvidence, by_arguments: bool) -> str:
    tau = case.first("temperature") or _temperature(case) or 0.05
    better = max(0.05, 4 * tau)
    if by_arguments:
        return f"scale={1 / better:.3g} (now {1 / tau:.3g})"
    return f"a temperature of {better:.3g} (now {tau:.3g})"


def _margin(case: RunEvidence, by_arguments: bool) -> str:
    margin = case.setting("margin")
    now = "" if margin is None else f" (now {margin:g})"
    return f"triplet_margin=0.3{now}" if by_arguments else f"a margin of 0.3{now}"


def _related(case: RunEvidence, by_arguments: bool) -> str:
    if case.first("label_gap") is not None:
        return "1 - label: labels that are larger for pairs that belong together"
    if by_arguments:
        return (
            "columns in the order (anchor, positive, negative): use train_dataset.select_columns"
            "([...]); if the order is right, rows whose texts belong together"
        )
    return "rows whose texts belong together"


def _contrastive(case: RunEvidence, by_arguments: bool) -> str:
    """A contrastive training that has changed nothing may have had too low a rate."""
    if _CONTRASTIVE in (_name(case) or ""):
        rate = case.setting("learning-rate")
        if rate is None:
            return "ten times the learning rate"
        return f"learning_rate={10 * float(rate):.2g} (now {float(rate):g})"
    loss = f" with {_CONTRASTIVE}(model)" if by_arguments else ""
    return f"a short {'' if by_arguments else 'contrastive '}training{loss}"


def _slower(divisor: float) -> Callable[[RunEvidence, bool], str]:
    def change(case: RunEvidence, by_arguments: bool) -> str:
        rate = case.setting("learning-rate")
        if rate is None:
            return f"a learning rate divided by {divisor:g}"
        lower = f"{float(rate) / divisor:.2g}"
        return f"learning_rate={lower} (now {float(rate):g})"

    return change


def _worded(text: str, arguments: str | None = None) -> Callable[[RunEvidence, bool], str]:
    return lambda case, by_arguments: arguments if by_arguments and arguments is not None else text


def _temperature(case: RunEvidence) -> float | None:
    temperatures = [loss["temperature"] for loss in case.losses if loss.get("temperature")]
    return float(temperatures[0]) if temperatures else case.end("temperature")


def _name(case: RunEvidence) -> str | None:
    return next((str(loss["name"]) for loss in case.losses if loss.get("name")), None)


_CHANGES: dict[str, Callable[[RunEvidence, bool], str]] = {
    "no-negatives": _no_negatives,
    "dead-views": _worded(
        "two different texts a row, or dropout that is switched on",
        "a second column with another text, or a model whose dropout is not 0",
    ),
    "diverging": _slower(10),
    "collapsed": _slower(10),
    "dimensional-collapse": _worded(
        "another encoder, or a loss with in-batch negatives",
        f"another base model, or {_CONTRASTIVE}(model)",
    ),
    "unrelated-positives": _related,
    "false-negatives": _worded(
        "batches without two rows of one text",
        "batch_sampler=BatchSamplers.NO_DUPLICATES; of near duplicates, GISTEmbedLoss(model, "
        "guide=...)",
    ),
    "norms-too-large": _worded(
        "a layer that normalises, or embeddings of a smaller scale",
        "models.Normalize() as the last module, or a lower learning_rate",
    ),
    "negatives-not-hard": _cooler,
    "temperature-too-low": _warm,
    "never-dissipating": _margin,
    "only-pulled": _worded(
        "a loss with in-batch negatives, or pairs that belong apart, with a label of 0",
        f"{_CONTRASTIVE}(model) without the label column, or pairs that belong apart, with a label "
        "of 0",
    ),
    "nothing-left-to-learn": _worded(
        "harder negatives or other data",
        "mine_hard_negatives(dataset, model, ...) for a column of hard negatives, or other data",
    ),
    "dissipated-early": _warmer,
    "losing-pull": _worded(
        "a loss with the positive in its softmax",
        f"{_CONTRASTIVE}(model), whose pull equals its push",
    ),
    "anisotropic-start": _contrastive,
    "overfitting": _worded(
        "fewer steps, or the checkpoint of the best score",
        'load_best_model_at_end=True with eval_strategy="steps", or fewer num_train_epochs',
    ),
    "not-enough-seen": _worded(
        "Doctor(every=1), or a longer training, and embeddings of one vector a text"
    ),
}
