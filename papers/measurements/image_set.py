"""An image set as it is read: classes, images of either part, side.

Setting of a cell: ``data``, by the names of ``Places``.
"""

from pathlib import Path

from isotrope.core.errors import InputError
from isotrope.core.result import Result, provenance
from isotrope.data.images.sets import load_images
from papers.machinery.data_registry import Places
from papers.machinery.job import Cell

__all__ = ["check", "run"]


def check(cell: Cell, places: Places) -> list[str]:
    """Return what is not on this machine, a line each.

    Raises:
        InputError: other settings than data.
    """
    if set(cell.settings) != {"data"}:
        raise InputError(f"a cell of an image set has data and nothing else; found {cell.shown}")
    lacking = places.missing(cell.settings["data"])
    return [lacking] if lacking else []


def run(cell: Cell, places: Places, folder: Path) -> Result:
    """Open the set and count.

    Raises:
        InputError: no such data.
    """
    found = load_images(places.images(cell.settings["data"]))
    labels = found.train.labels
    return Result(
        kind="image_set",
        name=found.name,
        metrics={
            "classes": None if labels is None else len(set(labels.tolist())),
            "training": len(found.train.images),
            "test": None if found.test is None else len(found.test.images),
            "side": found.side,
        },
        provenance=provenance(seed=cell.seed, data=found.fingerprint),
    )
