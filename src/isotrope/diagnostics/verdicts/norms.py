"""The rule on norms: too long embeddings hardly change direction (Draganov et al., 2024)."""

from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Evidence, Finding
from isotrope.diagnostics.readings import crosses, further_evidence, weight_decay
from isotrope.diagnostics.verdict import THRESHOLDS, compared

__all__ = ["norms_too_large"]


def norms_too_large(case: RunEvidence) -> Finding | None:
    """Norms are very large, or large without a weight decay that limits them."""
    norm, decay = case.end("norm"), weight_decay(case)
    if norm is None or (case.objective is not None and case.objective.space != "sphere"):
        return None  # without normalisation any norm is allowed
    if crosses("radial", case.end("radial")):
        return None
    unlimited = case.kind == "images" and crosses("decay_that_holds", decay)
    if crosses("norm", norm):
        evidence, change = [compared("norm", norm)], _shorter(case)
    elif decay is not None and unlimited and crosses("norm_without_decay", norm):
        evidence = [compared("decay_that_holds", decay), compared("norm_without_decay", norm)]
        change = "--weight-decay 5e-4"
    else:
        return None
    began = case.first("norm")
    return Finding(
        "norms-too-large",
        (
            *evidence,
            *([] if began is None else [Evidence("norm_at_the_start", began)]),
            *further_evidence(case, "embedding_gradient"),
        ),
        THRESHOLDS[evidence[0].name].source,
        change,
        "The gradient that reaches an embedding is divided by its norm, and every step makes the "
        "norm larger: directions hardly change any more.",
    )


def _shorter(case: RunEvidence) -> str:
    """Return the flag that shortens the embeddings at the start."""
    if case.kind != "images" and case.setting("head") != "mlp":
        return "--head mlp (its tanh keeps norms under sqrt(d))"
    return "--cut 9" if case.setting("method") in ("byol", "simsiam") else "--cut 3"
