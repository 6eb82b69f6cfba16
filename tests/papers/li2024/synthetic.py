"""Results that nobody measured, so that a figure can be asked what it makes of them."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from isotrope.core import Result
from isotrope.paradigm import registry
from papers.li2024.model_statistics import STEPS, TEMPERATURES
from papers.machinery.artifact import Artifact, Rendered, Results
from papers.machinery.job import PaperJob

Look = dict[str, Any]


def look(step: int, *, gap: float = 0.5, cosine: float = 0.9, dev: float = 70.0) -> Look:
    """What is seen at a step of a training in which all is as the paper says."""
    x = np.linspace(-1, 1, 41)
    statistics = {"std": 0.05, "skew": 0.1, "kurtosis": -0.1, "ks": 0.03}
    return {
        "step": step,
        "dev": dev,
        "positive cosine": cosine,
        "positive mean": 0.4,
        "negative mean": 0.4 + gap,
        **{f"{side} {k}": v for side in ("positive", "negative") for k, v in statistics.items()},
        "negative std": 0.1,
        "densities": {
            "cosine": x.tolist(),
            "positive": bell(x, np.cos(0.4)),
            "negative": bell(x, np.cos(0.4 + gap)),
        },
        **{
            f"hardest {kind}": {f"{tau:g}": 1 / (1 + (tau / 0.2) ** 4) for tau in TEMPERATURES}
            for kind in ("weight", "projection")
        },
        "lemma": {
            f"{s:g}": {
                "counted": 100,
                "minimum": [0.5, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6],
                "below": {"1": 0.5, "1.25": 0.7, "1.5": 0.9, "1.75": 0.95, "2": 1.0},
            }
            for s in STEPS
        },
        "ratios": {
            name: {"mean": 1.3, "std": 0.1, "above_one": 1.0, "active": 90, "count": 100}
            for name in registry.names()
        },
    }


def bell(x: np.ndarray, centre: float) -> list[float]:
    density = np.exp(-(((x - centre) / 0.2) ** 2))
    return (density / density.sum() / (x[1] - x[0])).tolist()


def trained(*looks: Look) -> Result:
    """A training that was looked at so."""
    scores = [one["dev"] for one in looks]
    best = max(scores[1:])
    metrics = {"dev first": scores[0], "dev last": scores[-1], "dev best": best}
    return Result("text", "paradigm", metrics, {"looks": list(looks)})


def each(jobs: Iterable[PaperJob], make: Callable[[PaperJob], Result]) -> Results:
    """Results of all jobs."""
    return Results({job: make(job) for job in jobs})


def holds(artifact: Artifact, results: Results, scale: str = "cpu") -> list[bool | None]:
    return [v.holds for v in shown(artifact, results, scale).verdicts]


def shown(artifact: Artifact, results: Results, scale: str = "cpu") -> Rendered:
    return artifact.render(scale, results)  # type: ignore[arg-type]
