"""The trainings on small images that ``draganov2024`` and ``manna2023`` share, by name."""

from collections.abc import Sequence
from typing import Any

from isotrope.core import InputError, nearest
from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import TABLES, image_jobs

NAMES = tuple(TABLES["small"])
"""All of them."""


def small_images(
    scale: Scale, name: str, seeds: Sequence[int] | None = None, **other: Any
) -> list[PaperJob]:
    """Return the training of a name, one job for each seed."""
    if name not in NAMES:
        raise InputError(f"no training on small images is named {name!r}{nearest(name, NAMES)}")
    row = TABLES["small"][name]
    what = TABLES["kinds"][row["of"]]
    short = TABLES["short"].get(what.get("objective", what.get("method")), {})
    settings = {**what, **({} if scale == "paper" else short), **row.get("all", {})}
    return image_jobs(scale, seeds=seeds, **{**settings, **row.get(scale, {}), **other})
