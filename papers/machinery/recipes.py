"""Recipes: the trainings that several papers share, by the settings of recipes.toml."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrope.core import InputError, nearest
from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob, brief

SEEDS: dict[Scale, tuple[int, ...]] = {"smoke": (0,), "cpu": (0, 1, 2), "paper": (0, 1, 2)}

_LOOKS = ["dev", "probes", "closeness", "angles", "cosines", "hardest", "lemma", "ratios"]

TABLES: Mapping[str, Any] = tomllib.loads(
    (Path(__file__).parents[1] / "recipes.toml").read_text(encoding="utf-8")
)
"""The file, by the names of its tables."""


def smaller_text(scale: Scale, job: PaperJob) -> list[str]:
    """Return a note on how a training at ``cpu`` scale differs from the papers'; none at others."""
    if scale != "cpu":
        return []
    settings = job.settings
    return [
        "smaller than the paper's: a disturbed sentence encoder (all-MiniLM-L6-v2 after 1,924 "
        "steps of filling in words), which "
        f"is not raw as BERT-base is; {settings['max_steps']} steps of "
        f"{settings['batch_size']} short sentences at {settings['learning_rate']:g} instead of "
        "one pass over a million with the paper's batches and rates, and no head"
    ]


def text_jobs(
    scale: Scale,
    objective: str,
    settings: Mapping[str, float | str] | None = None,
    *,
    scored: bool = True,
    seeds: Sequence[int] | None = None,
    **more: Any,
) -> list[PaperJob]:
    """Return a training on text, one job for each seed."""
    training = {"objective": objective, **_dotted("objective", settings)}
    base = {**TABLES["text"][scale], "looks": _LOOKS, **(TABLES["scores"][scale] if scored else {})}
    chosen = SEEDS[scale] if seeds is None else seeds
    title = _title(objective, settings, base, more)
    return [PaperJob("text", {**base, **training, **more}, seed, title) for seed in chosen]


def image_jobs(
    scale: Scale,
    method: str = "simclr",
    objective: str | None = None,
    settings: Mapping[str, float | str] | None = None,
    *,
    seeds: Sequence[int] | None = None,
    **more: Any,
) -> list[PaperJob]:
    """Return a training on images, one job for each seed."""
    recipe = TABLES["images"][scale]
    base: dict[str, Any] = {"method": method, **_dotted("objective", settings)}
    if objective is not None:
        base["objective"] = objective
    chosen = SEEDS[scale] if seeds is None else seeds
    name = method if objective is None else f"{method} {objective}"
    title = _title(name, settings, recipe, more)
    return [PaperJob("images", {**recipe, **base, **more}, seed, title) for seed in chosen]


def _title(
    name: str,
    settings: Mapping[str, float | str] | None,
    base: Mapping[str, Any],
    more: Mapping[str, Any],
) -> str:
    """A training and its differences from the recipe."""
    others = {k: v for k, v in more.items() if k not in base or base[k] != v}
    return " ".join([name, brief({**(settings or {}), **others})]).strip()


def _dotted(prefix: str, settings: Mapping[str, float | str] | None) -> dict[str, float | str]:
    return {f"{prefix}.{name}": value for name, value in (settings or {}).items()}


# the trainings on small images that draganov2024 and manna2023 share

SMALL = tuple(TABLES["small"])
"""Their names."""


def small_images(
    scale: Scale, name: str, seeds: Sequence[int] | None = None, **other: Any
) -> list[PaperJob]:
    """Return the training of a name, one job for each seed."""
    if name not in SMALL:
        raise InputError(f"no training on small images is named {name!r}{nearest(name, SMALL)}")
    row = TABLES["small"][name]
    what = TABLES["kinds"][row["of"]]
    short = TABLES["short"].get(what.get("objective", what.get("method")), {})
    settings = {**what, **({} if scale == "paper" else short), **row.get("all", {})}
    return image_jobs(scale, seeds=seeds, **{**settings, **row.get(scale, {}), **other})
