"""Turns the arguments of a sweep into a spec: fills in defaults, refuses contradictions."""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Literal

from isotrope.core.errors import SettingError, nearest
from isotrope.reports.runs import HELD_OUT_BY
from isotrope.sweeps.checks import METRICS
from isotrope.sweeps.search_space import read_varied
from isotrope.sweeps.spec import SAMPLERS, Sweep
from isotrope.training import launch
from isotrope.training.settings import RunSettings


def plan(
    settings: type[RunSettings],
    base: Mapping[str, Any],
    *,
    stages: Sequence[Sequence[str]],
    output: Path,
    sampler: str | None = None,
    trials: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    metric: str | None = None,
    highest: bool | None = None,
    jobs: int | None = None,
    draws: int = 0,
    keep: Literal["all", "best"] = "all",
) -> Sweep:
    """Return the plan of a sweep, with defaults filled in.

    Args:
        settings: text or images.
        base: settings of every run, as flags or a file give them.
        stages: For each stage the texts that ``--vary`` takes.
        output: folder.
        sampler: None is a grid, or random where there is a range.
        trials: The number of trials of random and tpe [20].
        seeds: The seeds to train every setting with.
        metric: None is the dev score, of images the kNN accuracy.
        highest: whether higher is better; None: but for losses and seconds.
        jobs: runs at a time; None: one for each GPU, or 1.
        draws: seed of the sampler.
        keep: The runs whose models and checkpoints stay.
    """
    varied = [[read_varied(text, settings) for text in texts] for texts in stages]
    if not varied or not all(varied):
        raise SettingError(
            "nothing to vary",
            setting="vary",
            remedy="give `--vary NAME=VALUES`, after every `--then` too",
        )
    for stage in varied:
        names = [setting.name for setting in stage]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise SettingError("is given twice", setting="vary", value=twice)
    ranges = any(setting.span is not None for stage in varied for setting in stage)
    chosen = sampler or ("random" if ranges else "grid")
    sampler_name = next((name for name in SAMPLERS if name == chosen), None)
    if sampler_name is None:
        raise SettingError(
            f"unknown sampler{nearest(chosen, SAMPLERS)}",
            setting="sampler",
            value=chosen,
            remedy=f"choose {', '.join(SAMPLERS)}",
        )
    if sampler_name == "grid" and trials is not None:
        raise SettingError(
            "a grid has as many as it has", setting="trials", remedy="choose `--sampler random`"
        )
    score = metric or METRICS[settings.kind][0]
    _check_scored(score, base, {setting.name for stage in varied for setting in stage})
    if len(set(seeds)) < len(seeds):
        raise SettingError("one is given twice", setting="seeds", value=list(seeds))
    if trials is not None and trials < 1:
        raise SettingError("must be 1 or more", setting="trials", value=trials)
    if draws < 0:
        raise SettingError("must be 0 or more", setting="draws", value=draws)
    lowest = score == "loss" or score.endswith("seconds")
    return Sweep(
        settings=settings,
        base=base,
        stages=varied,
        output=output,
        seeds=tuple(seeds),
        sampler=sampler_name,
        trials=20 if trials is None else trials,
        draws=draws,
        metric=score,
        highest=not lowest if highest is None else highest,
        jobs=_jobs(jobs, base),
        keep=keep,
    )


def _check_scored(metric: str, base: Mapping[str, Any], varied: Set[str]) -> None:
    """Refuse to vary what a dev score, or the accuracy on pictures, is measured on."""
    score, remedies = "`--dev`", {"dev": "make one sweep for each"}
    if metric.startswith("dev_"):
        if base.get("dev") == "auto":
            remedies |= dict.fromkeys(HELD_OUT_BY, "give a file instead of auto")
    elif metric.startswith(("knn_", "linear")):
        names = ("data", "classes", "holdout", "knn_images")
        score, remedies = f"`--metric {metric}`", dict.fromkeys(names, "make one sweep for each")
    else:
        return
    for name, remedy in remedies.items():
        if name in varied:
            raise SettingError(
                f"changes the data that {score} scores on, and scores on different data cannot be "
                "ranked",
                setting="vary",
                value=name,
                remedy=f"{remedy}, or choose another `--metric`",
            )


def _jobs(jobs: int | None, base: Mapping[str, Any]) -> int:
    """Return how many runs go side by side."""
    if jobs is not None and jobs < 1:
        raise SettingError("must be 1 or more", setting="jobs", value=jobs)
    if str(base.get("devices", 1)) != "1":
        if jobs is not None and jobs > 1:
            raise SettingError(
                "shares one run between devices", setting="devices", remedy="leave `--jobs` out"
            )
        return 1
    if jobs is not None:
        return jobs
    return 1 if base.get("device") in ("cpu", "mps") else max(1, len(launch.gpus()))
