"""Results of trainings that never were."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from isotrope.core import Result
from papers.machinery.artifact import Artifact, Results, Scale
from papers.machinery.catalogue import find_artifacts
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Ruling

Made = Callable[[int], Mapping[str, Any]]


def artifact(name: str) -> Artifact:
    (found,) = find_artifacts("align-uniform", [name])
    return found


def result(metrics: Mapping[str, float | None], looks: Sequence[Mapping[str, Any]] = ()) -> Result:
    rows = [{"step": 50 * (i + 1), **row} for i, row in enumerate(looks)]
    return Result(kind="text", name="made", metrics=dict(metrics), details={"looks": rows})


def every(jobs: Iterable[PaperJob], made: Callable[[PaperJob], Result]) -> dict[PaperJob, Result]:
    return {job: made(job) for job in jobs}


def curves(**by_look: Sequence[float]) -> list[dict[str, float]]:
    """Rows of looks; names as ``dev_contrastive``."""
    length = len(next(iter(by_look.values())))
    return [{k.replace("_", " "): v[i] for k, v in by_look.items()} for i in range(length)]


def verdicts(name: str, results: Mapping[PaperJob, Result], scale: Scale = "cpu") -> list[Ruling]:
    return list(artifact(name).render(scale, Results(results)).verdicts)


def words(name: str, results: Mapping[PaperJob, Result], scale: Scale = "cpu") -> list[str]:
    return [verdict.word for verdict in verdicts(name, results, scale)]
