"""Results as a job of images keeps them, with numbers of our choice."""

from collections.abc import Sequence
from typing import Any

from isotrope.core import Result
from papers.machinery.artifact import Rendered
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Ruling

NAMES = ("knn", "norm", "opposite_halves", "far_opposite", "clusters")
JITTER = (0.0, 0.01, -0.01)
"""By seed, in shares of a number: the spread over seeds is small."""


def looks(epochs: Sequence[int], **numbers: Sequence[float | None]) -> list[dict[str, Any]]:
    """One row for each epoch; what is not given is None, as JSON has it for a NaN."""
    none = [None] * len(epochs)
    return [
        {"epoch": float(epoch), **{name: numbers.get(name, none)[place] for name in NAMES}}
        for place, epoch in enumerate(epochs)
    ]


def made(epochs: Sequence[int], **numbers: Sequence[float | None]) -> Result:
    return Result("images", "x", {}, {"looks": looks(epochs, **numbers)})


def over(jobs: Sequence[PaperJob], epochs: Sequence[int], **numbers: Sequence[float]) -> dict:
    """A result for each seed, a little apart from each other."""
    return {
        job: made(
            epochs, **{k: [v * (1 + JITTER[job.seed]) for v in row] for k, row in numbers.items()}
        )
        for job in jobs
    }


def said(shown: Rendered, words: str) -> Ruling:
    """The only verdict with these words."""
    (one,) = [v for v in shown.verdicts if words in v.claim]
    return one
