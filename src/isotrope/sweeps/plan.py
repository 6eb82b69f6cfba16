"""Checks a sweep before the first training."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from isotrope.core.errors import SettingError, nearest
from isotrope.core.files import check_outputs
from isotrope.core.settings import flag
from isotrope.diagnostics.metrics import MEASURED, TRACKED
from isotrope.paradigm import registry
from isotrope.reports.runs import HELD_OUT_BY
from isotrope.sweeps.spec import TABLES, Sweep, Values
from isotrope.training.early_checks import check_folder, check_given, recipe_applies
from isotrope.training.images.settings import ImageSettings
from isotrope.training.run import try_objective
from isotrope.training.run_settings import RunSettings
from isotrope.training.settings import TrainSettings

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
"""Numbers of result.json by which runs can be ranked."""

# settings that change the function whose values the loss is, or its data
_OF_LOSS = (
    *("objective", "loss", "method", "batch_size", "matryoshka", "files", "data", "sampling"),
    *("columns", "groups", "views", "classes", "limit", "holdout", "dev", "augment"),
)

_PLACES = ("encoder", "dev", "data", "files")  # settings that name files or models to open


def grid(spec: Sweep) -> list[dict[str, str]] | None:
    """Return a dict from setting to value for each combination; None if values are drawn."""
    if spec.sampler != "grid":
        return None
    names = [setting.name for setting in spec.varied]
    combinations = itertools.product(*(setting.values for setting in spec.varied))
    return [dict(zip(names, values, strict=True)) for values in combinations]


def check_metric(spec: Sweep) -> None:
    """Refuse a metric that no run has."""
    if spec.metric not in (metrics := METRICS[spec.settings.kind]):
        raise SettingError(
            f"is not the name of a metric of a run{nearest(spec.metric, metrics)}",
            setting="metric",
            value=spec.metric,
            remedy=f"choose one of {', '.join(metrics)}",
        )


def check_sweep(spec: Sweep) -> None:
    """Check the settings, the objective and the data of all runs."""
    check_metric(spec)
    _check_scored(spec)
    places: dict[tuple[str, ...], RunSettings] = {}
    recipes = set[bool]()
    for values in _every(spec):
        settings = spec.run(values, spec.chosen.seeds[0])
        read = [*settings.inputs, getattr(settings, "dev", None)]
        check_outputs(spec.chosen.output, TABLES, read)
        _check_objective(settings)
        recipes.add(isinstance(settings, TrainSettings) and recipe_applies(settings))
        if len(recipes) > 1 and "recipe" not in {setting.name for setting in spec.varied}:
            raise SettingError(
                "changes whether `--recipe auto` chooses settings, such as the learning rate, so "
                "the runs would differ in more than this",
                setting="vary",
                value=", ".join(setting.name for setting in spec.varied),
                remedy="add `--recipe papers`",
            )
        places.setdefault(tuple(str(getattr(settings, n, "")) for n in _PLACES), settings)
    for settings in places.values():
        _check_data(settings, spec.metric)


def _check_scored(spec: Sweep) -> None:
    """Refuse to vary the data on which the runs are scored, or the loss that ranks them."""
    alone, score = "make one sweep for each value", f"`--metric {spec.metric}`"
    what, why = f"the data of {score}", "scores on different data cannot be ranked"
    remedies = dict[str, str]()
    if spec.metric.startswith("dev_"):
        what, remedies = "the data of `--dev`", {"dev": alone}
        if spec.base.get("dev") == "auto":
            remedies |= dict.fromkeys(HELD_OUT_BY, "give `--dev` a file instead of auto")
    elif spec.metric.startswith(("knn_", "linear")):
        names = ["data", "classes", "holdout", *["knn_images"] * (spec.metric != "linear")]
        remedies = dict.fromkeys(names, alone)
    elif spec.metric == "loss":
        what, why = "the loss as a function", "values of different losses cannot be ranked"
        remedies = dict.fromkeys(_OF_LOSS, alone)
    remedies = {flag(name): remedy for name, remedy in remedies.items()}
    for setting in spec.varied:
        if remedy := remedies.get(setting.name.partition(".")[0]):
            raise SettingError(
                f"changes {what}, and {why}",
                setting="vary",
                value=setting.name,
                remedy=f"{remedy}, or choose another `--metric`",
            )


def _every(spec: Sweep) -> Iterator[Values]:
    """Yield the values to check: the whole grid, or each value once if values are drawn."""
    first = {setting.name: setting.ends[0] for setting in spec.varied}
    yield first
    single = ({**first, own.name: value} for own in spec.varied for value in own.ends[1:])
    yield from grid(spec) or single


def _check_objective(settings: RunSettings) -> None:
    """Build the objective, without opening the data."""
    check_given(settings)
    registry.load_plugins(settings.plugin)
    if isinstance(settings, TrainSettings):
        from isotrope.training.auto_temperature import without_auto
        from isotrope.training.text import objectives_of

        for objective in objectives_of(without_auto(settings)).values():
            try_objective(objective, negatives=objective.takes_negatives)
    else:
        assert isinstance(settings, ImageSettings)
        from isotrope.training.images.train import objective_of

        objective_of(settings)


def _check_data(settings: RunSettings, metric: str) -> None:
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
                remedy="give a dev set (`--dev auto` needs no labels), or another `--metric`",
            )
    else:
        assert isinstance(settings, ImageSettings)
        from isotrope.training.images.train import has_labels, prepare

        images = prepare(settings).images
        if metric.startswith(("knn", "linear")) and not has_labels(images):
            raise SettingError(
                f"needs a test part and labels of two classes, which {settings.data} lacks",
                setting="metric",
                value=metric,
                remedy="choose another metric, or hold out a test part (`--holdout 0.1`)",
            )
        if metric == "linear" and not settings.linear:
            raise SettingError("needs a run without `--no-linear`", setting="metric", value=metric)
