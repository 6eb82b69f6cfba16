"""Turns the arguments of a sweep into its plan, and checks it before anything runs."""

from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from isotrope.core.errors import SettingError, nearest
from isotrope.core.files import check_outputs
from isotrope.diagnostics.metrics import MEASURED
from isotrope.reports.runs import HELD_OUT_BY
from isotrope.sweeps.search_space import read_varied
from isotrope.sweeps.spec import TABLES, Sweep, SweepSettings, Values
from isotrope.sweeps.study import planned
from isotrope.training import launch
from isotrope.training.early_checks import check_folder
from isotrope.training.images.measures import TRACKED
from isotrope.training.images.settings import ImageSettings
from isotrope.training.run import try_objective
from isotrope.training.settings import RunSettings, TrainSettings

METRICS: dict[str, tuple[str, ...]] = {
    "text": (
        *("dev_best", "dev_final", "dev_start", "dev_best_step"),
        *("steps", "seconds", "samples_per_second", "wall_seconds", "loss", *MEASURED),
    ),
    "images": (
        *("knn_final", "knn_best", "knn_start", "knn_best_step", "linear"),
        *("steps", "seconds", "images_per_second", "wall_seconds", "loss", *MEASURED, *TRACKED),
    ),
}
"""Metrics by which a run can be scored; the first is the default."""

_PLACES = ("encoder", "dev", "data", "files")  # settings whose values are looked up


def plan(settings: type[RunSettings], base: Mapping[str, Any], chosen: SweepSettings) -> Sweep:
    """Return the plan of a sweep, with defaults filled in.

    Args:
        settings: text or images.
        base: Settings that all runs share, by the names of flags or of a file.
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


def check_metric(settings: type[RunSettings], metric: str) -> None:
    """Refuse a metric that no run of this kind has."""
    metrics = METRICS[settings.kind]
    if metric not in metrics:
        raise SettingError(
            f"no run has it{nearest(metric, metrics)}",
            setting="metric",
            value=metric,
            remedy=f"choose {', '.join(metrics)}",
        )


def check_sweep(spec: Sweep) -> None:
    """Check a sweep before anything runs."""
    check_metric(spec.settings, spec.metric)
    checked: list[RunSettings] = []
    for values in _every(spec):
        settings = spec.run(values, spec.seeds[0])
        check_outputs(spec.output, TABLES, [*settings.inputs, getattr(settings, "dev", None)])
        names = [name for name in _PLACES if name in type(settings).model_fields]
        if all(any(getattr(settings, n) != getattr(other, n) for n in names) for other in checked):
            _check_all(settings, spec.metric)
            checked.append(settings)
        else:
            _check_names(settings)


def _every(spec: Sweep) -> Iterator[Values]:
    """Yield values to check for all others: listed ones, else one setting at a time."""
    plans = [planned(spec, varied) for varied in spec.stages]
    fixed: dict[str, str] = {}
    for varied, plan in zip(spec.stages, plans, strict=True):
        first = {setting.name: setting.ends[0] for setting in varied}
        yield {**fixed, **first}
        single = (
            {**first, setting.name: value} for setting in varied for value in setting.ends[1:]
        )
        for values in plan or single:
            yield {**fixed, **values}
        fixed |= first


def _check_all(settings: RunSettings, metric: str) -> None:
    """Open the data and the encoder too."""
    if not Path(settings.output).exists():
        check_folder(Path(settings.output), settings, resume=True)  # not among the data
    if isinstance(settings, TrainSettings):
        from isotrope.training.auto_temperature import without_auto
        from isotrope.training.text import check

        check(without_auto(settings))
        if metric.startswith("dev_") and settings.dev is None:
            raise SettingError(
                "there is no dev score without `--dev`",
                setting="metric",
                value=metric,
                remedy="give one (`--dev auto` needs no labels), or another `--metric`",
            )
    else:
        assert isinstance(settings, ImageSettings)
        from isotrope.training.images.train import has_labels, prepare

        images = prepare(settings).images
        if metric.startswith(("knn", "linear")) and not has_labels(images):
            raise SettingError(
                f"{settings.data} has no labels of two classes and a test part",
                setting="metric",
                value=metric,
                remedy="choose another, or hold out a test part (`--holdout 0.1`)",
            )
        if metric == "linear" and not settings.linear:
            raise SettingError("`--no-linear` leaves the probe out", setting="metric", value=metric)


def _check_names(settings: RunSettings) -> None:
    """Build the objective; nothing is opened."""
    from isotrope.paradigm import registry

    for plugin in settings.plugin:
        registry.load_plugin(Path(plugin))
    if isinstance(settings, TrainSettings):
        from isotrope.training.auto_temperature import without_auto
        from isotrope.training.text import objectives_of

        objectives = list(objectives_of(without_auto(settings)).values())
    else:
        assert isinstance(settings, ImageSettings)
        from isotrope.training.images.registry import find_method, options_of

        method = find_method(settings.method)
        options = options_of(settings.method, settings.method_settings)
        name = settings.objective or method.recipe.objective
        recipe_values = method.settings_of(name.lower(), options)
        own = {**recipe_values, **settings.objective_settings}
        objectives = [registry.build(name, own)]
    for objective in objectives:
        try_objective(objective, negatives=False)
