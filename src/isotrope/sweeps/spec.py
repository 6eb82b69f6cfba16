"""The settings of a sweep, and its plan: the settings and the folder of each run."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from isotrope.core.errors import InputError, SettingError
from isotrope.core.fingerprint import fingerprint
from isotrope.core.settings import Settings, Used, setting
from isotrope.sweeps.search_space import Varied, read_varied, spelled
from isotrope.training import launch
from isotrope.training.images.settings import ImageSettings
from isotrope.training.run_settings import RunSettings
from isotrope.training.settings import TrainSettings

Values = Mapping[str, str]
"""Values by setting; setting and value are written as in flags."""

TABLES = ("sweep.svg", "sweep.csv", "sweep.json")
"""Files that a sweep writes in addition to its runs."""

SCORES = {"text": "dev_best", "images": "knn_final"}
"""The default ``metric`` of each kind of run."""

RUNS: dict[str, type[RunSettings]] = {"train": TrainSettings, "train-images": ImageSettings}
"""The settings class of each command that a sweep can repeat."""

_LONGEST = 120  # characters of a folder's name

_drawn = Used(lambda drawn: drawn, "choose `--sampler random`: a grid takes all values")


class SweepSettings(Settings):
    """The settings of a sweep, without the settings of the runs that it trains."""

    vary: list[str] = setting([], "Setting to vary, and its values.", "NAME=VALUES")
    output: Path = setting(..., "Folder for the runs, the table and the picture.", "DIR")
    sampler: Literal["grid", "random", "tpe"] | None = setting(
        None, "How values are chosen.", shown="grid; random if a value is a range without :N"
    )
    trials: int = setting(20, "Number of trials of random or tpe samplers.", ge=1, used=_drawn)
    seeds: list[int] = setting([0, 1, 2], "Seeds to train every trial with.")
    metric: str | None = setting(
        None, "Number in result.json that ranks trials.", shown="dev_best; for images knn_final"
    )
    goal: Literal["max", "min"] | None = setting(
        None, "Whether a high or a low number is best.", shown="max; min for loss and seconds"
    )
    jobs: int | None = setting(
        None,
        "Number of runs to train at a time.",
        shown="one for each GPU, or 1",
        ge=1,
        used=Used(lambda jobs, devices: jobs == 1 or devices == "1", "a run takes all `--devices`"),
    )
    draws: int = setting(0, "Seed of the random or tpe sampler.", ge=0, used=_drawn)
    keep: Literal["all", "best"] = setting("all", "Keep all models, or those of the best trial.")


@dataclass(frozen=True)
class Sweep:
    """The plan of a sweep.

    Attributes:
        base: Settings that all runs share: a dict from flags or YAML keys to values.
        sampler: ``grid``, ``random`` or ``tpe``; ``grid`` if ``trials`` allows every combination.
        highest: Whether a higher value of ``metric`` is better.
    """

    settings: type[RunSettings]
    base: Mapping[str, Any]
    chosen: SweepSettings
    varied: Sequence[Varied]
    sampler: str
    metric: str
    highest: bool
    jobs: int

    def run(self, values: Values, seed: int) -> RunSettings:
        """Return the settings of one run."""
        once = {"refit": False} if self.settings is TrainSettings else {}  # it is not scored
        base = {k: v for k, v in self.base.items() if spelled(self.settings, k) not in values}
        values_of_run = {**once, **base, **values, "seed": seed, "progress": False}
        return self.settings.read({**values_of_run, "output": str(self.folder(values, seed))})

    def folder(self, values: Values, seed: int) -> Path:
        """Return the folder of a run; the folder's name has the values and the seed."""
        parts = [f"{name}={value}" for name, value in {**values, "seed": str(seed)}.items()]
        name = re.sub(r"[^\w.=,+-]", "_", ",".join(parts), flags=re.ASCII)
        if name != ",".join(parts) or len(name) > _LONGEST:
            name = f"{name[:_LONGEST]}-{fingerprint(parts)[:6]}"
        return self.chosen.output / "runs" / name


def plan(settings: type[RunSettings], base: Mapping[str, Any], chosen: SweepSettings) -> Sweep:
    """Return the plan of a sweep, with defaults filled in."""
    varied = [read_varied(text, settings) for text in chosen.vary]
    if not varied:
        raise SettingError("is missing", setting="vary", remedy="give `--vary NAME=VALUES`")
    names = [setting.name for setting in varied]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SettingError("is given twice", setting="vary", value=twice)
    if len(set(chosen.seeds)) < len(chosen.seeds):
        raise SettingError("has one seed twice", setting="seeds", value=chosen.seeds)
    ranges = [setting for setting in varied if setting.span is not None]
    sampler = chosen.sampler or ("random" if ranges else "grid")
    devices = str(base.get("devices", 1))
    chosen.check_used(drawn=sampler != "grid", devices=devices)
    alone = devices != "1" or base.get("device") in ("cpu", "mps")
    if sampler == "grid" and ranges:
        name, (low, high) = ranges[0].name, ranges[0].ends
        raise InputError(
            f"give values, such as {name}={low},{high} or {name}={low}..{high}:5, or choose "
            f"`--sampler random`: {name} has a range, and a grid needs a list"
        )
    if not ranges and math.prod(len(setting.values) for setting in varied) <= chosen.trials:
        sampler = "grid"
    score = chosen.metric or SCORES[settings.kind]
    lowest = score == "loss" or score.endswith("seconds")
    return Sweep(
        settings=settings,
        base=base,
        chosen=chosen,
        varied=varied,
        sampler=sampler,
        metric=score,
        highest=not lowest if chosen.goal is None else chosen.goal == "max",
        jobs=chosen.jobs or (1 if alone else max(1, len(launch.gpus()))),
    )
