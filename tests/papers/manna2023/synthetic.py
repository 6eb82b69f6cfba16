"""Results as a spectrum job keeps them, with numbers of our choice."""

from typing import Any

from isotrope.core import Result
from papers.machinery.artifact import Rendered, Results
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Ruling

SIZE = 1000


def spectrum(
    values: list[float],
    *,
    epoch: float = 8,
    size: int = SIZE,
    weights: list[float] | None = None,
    **variant: Any,
) -> dict[str, Any]:
    """One spectrum of a job; of several seeds all have the same values."""
    ordered = sorted(values)
    probe = {
        "values": ordered,
        "errors": [1e-6] * len(values),
        "weights": weights or [1 / len(values)] * len(values),
    }
    asked = {
        "iterations": len(values),
        "probes": 1,
        "batches": 1,
        "threshold": 1.0,
        "weight_decay": False,
    }
    about = {"batch_size": 64, "head": "as trained", "batch_norm": "batch statistics"}
    seeds = variant.get("seeds", [0])
    return {
        "epoch": epoch,
        "step": round(78 * epoch),
        "variant": variant,
        "learning_rate": {"peak": 0.03},
        "hessian": {**about, "weight_decay": 5e-4, "asked": asked},
        "spectra": [
            {"seed": s, "size": size, "loss": 1.0, "gradient_norm": 0.5, "probes": [probe]}
            for s in seeds
        ],
    }


def result(*spectra: dict[str, Any], knn: float | None = None) -> Result:
    return Result(kind="spectrum", name="x", metrics={"knn": knn}, details={"spectra": [*spectra]})


def accuracy(knn: float) -> Result:
    return Result(kind="images", name="x", metrics={"knn": knn})


def found(some: dict[PaperJob, Result]) -> Results:
    return Results(some)


def verdict(shown: Rendered, words: str) -> Ruling:
    """The only verdict with these words."""
    (one,) = [v for v in shown.verdicts if words in v.claim]
    return one
