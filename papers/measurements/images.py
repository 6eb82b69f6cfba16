"""A training on images: kNN accuracies, norms and angles by epoch, a linear probe at the end.

The run is ``isotrope train-images``. Settings of a job: those of ``ImageSettings``, with ``data``
by the names of ``DataRegistry``.
"""

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrope.core import InputError, Result, RunFolder, provenance
from isotrope.encoders import ARCHITECTURES
from isotrope.paradigm import build
from isotrope.sweeps import trained
from isotrope.training import ImageSettings, find_method, options_of
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob

MEANS = (
    *("loss", "norm", "norm_backbone", "opposite_halves", "far_opposite", "std"),
    *("effective_rank", "gradient_norm", "alignment", "uniformity"),
)
"""What is averaged over the logged steps of the epoch before each kNN accuracy."""

_CHECKPOINT_EVERY = 250  # steps between checkpoints
_SIDE = 32  # pixels: on a recipe's name they have no bearing


def check(job: PaperJob, sources: DataRegistry) -> list[str]:
    """Resolve all names of a job; return what is not on this machine, a line each."""
    settings = image_settings(job, sources, Path("unused"), here=False)
    method = find_method(settings.method)
    options = options_of(settings.method, settings.method_settings)
    build(settings.objective or method.recipe.objective, settings.objective_settings)
    method.augments_of(_SIDE, options, settings.augment)
    lacking = sources.missing(job.settings["data"])
    encoder = settings.encoder
    here = [] if encoder in ARCHITECTURES else sources.missing_encoder(encoder)
    return [*([lacking] if lacking else []), *here]


def run(job: PaperJob, sources: DataRegistry, folder: Path) -> Result:
    """Train and read what was logged."""
    run_folder = folder / "run"
    outcome = trained(image_settings(job, sources, run_folder))
    logged_rows = rows(run_folder, outcome.result)
    last = logged_rows[-1]
    metrics = {name: last.get(name) for name in ("knn", "norm", "norm_backbone")}
    linear = outcome.result.metrics.get("linear")
    return Result(
        kind="images",
        name=str(job.settings.get("method", "simclr")),
        metrics={**metrics, "linear": linear, "steps": last["step"]},
        details={"looks": logged_rows, "plan": outcome.result.details["plan"]},
        provenance=provenance(seed=job.seed, data=outcome.result.provenance.get("data")),
    )


def image_settings(
    job: PaperJob, sources: DataRegistry, output: Path, *, here: bool = True
) -> ImageSettings:
    """Return the settings of the training."""
    settings = dict(job.settings)
    name = settings.pop("data", None)
    if name is None:
        raise InputError("a job of images has data")
    data = sources.images(name) if here else "unused"
    fixed = {"data": data, "output": str(output), "seed": job.seed, "progress": False}
    if settings.get("encoder") not in (None, *ARCHITECTURES):
        settings["encoder"] = sources.encoder(settings["encoder"])
    return ImageSettings.read(
        {"checkpoint_every": _CHECKPOINT_EVERY, "workers": 0, **settings, **fixed}
    )


def rows(run: Path, result: Result) -> list[dict[str, Any]]:
    """Return one row for each kNN accuracy: step, epoch, and the means of the epoch before."""
    with RunFolder(run).metrics.open(newline="", encoding="utf-8") as handle:
        logged = list(csv.DictReader(handle))
    per_epoch = result.details["plan"]["steps_per_epoch"]
    averaged = []
    for row in logged:
        if not row.get("knn"):
            continue
        epoch = int(row["step"]) / per_epoch
        window = [
            step_row
            for step_row in logged
            if step_row["epoch"]
            and max(0.0, epoch - 1) <= float(step_row["epoch"]) < max(1.0, epoch)
        ]
        averaged.append(
            {
                "step": int(row["step"]),
                "epoch": round(epoch, 4),
                "knn": float(row["knn"]),
                **_means(window),
            }
        )
    return averaged


def _means(window: Sequence[Mapping[str, str]]) -> dict[str, float]:
    means = {}
    for name in MEANS:
        values = [float(row[name]) for row in window if row.get(name)]
        if values:
            means[name] = float(f"{statistics.fmean(values):.6g}")
    return means
