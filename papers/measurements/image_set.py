"""Reads an image set: number of classes, training and test images, and image side.

Setting of a job: ``data``, by the names of ``DataRegistry``.
"""

from pathlib import Path

from isotrope.core import InputError, Result, provenance
from isotrope.data import load_images
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob


def check(job: PaperJob, sources: DataRegistry) -> list[str]:
    """Return what is not on this machine, a line each."""
    if set(job.settings) != {"data"}:
        raise InputError(f"a job of an image set has data and nothing else; found {job.label}")
    lacking = sources.missing(job.settings["data"])
    return [lacking] if lacking else []


def run(job: PaperJob, sources: DataRegistry, folder: Path) -> Result:
    """Open the set and count."""
    image_set = load_images(sources.images(job.settings["data"]))
    labels = image_set.train.labels
    return Result(
        kind="image_set",
        name=image_set.name,
        metrics={
            "classes": None if labels is None else len(set(labels.tolist())),
            "training": len(image_set.train.images),
            "test": None if image_set.test is None else len(image_set.test.images),
            "side": image_set.side,
        },
        provenance=provenance(seed=job.seed, data=image_set.fingerprint),
    )
