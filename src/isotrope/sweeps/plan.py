"""Turns the arguments of a sweep into a spec: fills in defaults, refuses contradictions."""

from collections.abc import Mapping, Set
from typing import Any

from isotrope.core.errors import SettingError
from isotrope.reports.runs import HELD_OUT_BY
from isotrope.sweeps.checks import METRICS
from isotrope.sweeps.search_space import read_varied
from isotrope.sweeps.spec import Sweep, SweepSettings
from isotrope.training import launch
from isotrope.training.settings import RunSettings


def plan(settings: type[RunSettings], base: Mapping[str, Any], chosen: SweepSettings) -> Sweep:
    """Return the plan of a sweep, with defaults filled in.

    Args:
        settings: text or images.
        base: settings of every run, as flags or a file give them.
        chosen: Settings of the sweep itself.
    """
    varied = [[read_varied(text, settings) for text in texts] for texts in chosen.stages]
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
    sampler = chosen.sampler or ("random" if ranges else "grid")
    if sampler == "grid" and chosen.trials is not None:
        raise SettingError(
            "does not apply to a grid", setting="trials", remedy="choose `--sampler random`"
        )
    score = chosen.metric or METRICS[settings.kind][0]
    _check_scored(score, base, {setting.name for stage in varied for setting in stage})
    if len(set(chosen.seeds)) < len(chosen.seeds):
        raise SettingError("one is given twice", setting="seeds", value=chosen.seeds)
    lowest = score == "loss" or score.endswith("seconds")
    return Sweep(
        settings=settings,
        base=base,
        stages=varied,
        output=chosen.output,
        seeds=tuple(chosen.seeds),
        sampler=sampler,
        trials=chosen.trials or 20,
        draws=chosen.draws,
        metric=score,
        highest=not lowest if chosen.goal is None else chosen.goal == "max",
        jobs=_jobs(chosen.jobs, base),
        keep=chosen.keep,
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
                f"changes the data of {score}, and scores on different data cannot be ranked",
                setting="vary",
                value=name,
                remedy=f"{remedy}, or choose another `--metric`",
            )


def _jobs(jobs: int | None, base: Mapping[str, Any]) -> int:
    """Return how many runs go side by side."""
    if str(base.get("devices", 1)) != "1":
        if jobs is not None and jobs > 1:
            raise SettingError(
                "shares one run between devices", setting="devices", remedy="leave `--jobs` out"
            )
        return 1
    if jobs is not None:
        return jobs
    return 1 if base.get("device") in ("cpu", "mps") else max(1, len(launch.gpus()))
