"""The settings of a sweep, and the Sweep record: everything it will do, and its runs."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from isotrope.core.fingerprint import fingerprint
from isotrope.core.settings import Settings, setting
from isotrope.sweeps.search_space import Varied
from isotrope.training.settings import RunSettings

Sampler = Literal["grid", "random", "tpe"]
Values = Mapping[str, str]
"""Values by setting, both spelled as in flags."""

TABLES = ("sweep.svg", "sweep.csv", "sweep.md", "sweep.json")
"""Files that a sweep writes in addition to its runs."""

_LONGEST = 120  # characters of a folder's name


class SweepSettings(Settings):
    """The settings of a sweep, in addition to those of every run."""

    stages: list[list[str]] = setting([], "For each stage the texts that `--vary` takes.")
    output: Path = setting(..., "Folder of the sweep: its runs, table and picture.", "DIR")
    sampler: Sampler | None = setting(
        None, "How values are chosen.", shown="grid; random if there are ranges"
    )
    trials: int | None = setting(None, "Settings to try (random, tpe).", shown="20", ge=1)
    seeds: list[int] = setting([0, 1, 2], "Seeds to train every setting with.")
    metric: str | None = setting(
        None, "Number to compare by.", shown="dev_best; for images knn_final"
    )
    goal: Literal["max", "min"] | None = setting(
        None, "Which end is better.", shown="max; min for loss and seconds"
    )
    jobs: int | None = setting(None, "Runs at a time.", shown="one for each GPU, or 1", ge=1)
    draws: int = setting(0, "Seed of random and tpe.", ge=0)
    keep: Literal["all", "best"] = setting("all", "Models to keep on disk.")


def run_settings(verb: str) -> type[RunSettings]:
    """Return the settings of the runs of a verb: ``train`` or ``train-images``."""
    if verb == "train":
        from isotrope.training.settings import TrainSettings

        return TrainSettings
    from isotrope.training.images.settings import ImageSettings

    return ImageSettings


@dataclass(frozen=True)
class Sweep:
    """The plan of a sweep.

    Attributes:
        settings: text or images.
        base: Settings that all runs share, by the names of flags or of a file.
        stages: The varied settings of each stage.
        output: folder.
        seeds: The seeds to train every setting with.
        sampler: The sampler of values.
        trials: The number of trials of each stage that is not a grid.
        draws: seed of the sampler.
        metric: The name of a number in a run's result.
        highest: whether higher is better.
        jobs: runs at a time.
        keep: The runs whose models and checkpoints stay: all, or those of the best trial.
    """

    settings: type[RunSettings]
    base: Mapping[str, Any]
    stages: Sequence[Sequence[Varied]]
    output: Path
    seeds: Sequence[int] = (42,)
    sampler: Sampler = "grid"
    trials: int = 20
    draws: int = 0
    metric: str = "dev_best"
    highest: bool = True
    jobs: int = 1
    keep: Literal["all", "best"] = "all"

    def run(self, values: Values, seed: int) -> RunSettings:
        """Return the settings of one run.

        Raises:
            InputError: a value that the setting does not take.
        """
        varied = {name.replace("_", "-") for name in values}
        base = {k: v for k, v in self.base.items() if k.replace("_", "-") not in varied}
        values_of_run = {**base, **values, "seed": seed, "progress": False}
        return self.settings.read({**values_of_run, "output": str(self.folder(values, seed))})

    def folder(self, values: Values, seed: int) -> Path:
        """Return the run folder of some values and a seed, which are in its name."""
        parts = [f"{name}={value}" for name, value in {**values, "seed": str(seed)}.items()]
        name = re.sub(r"[^\w.=,+-]", "_", ",".join(parts), flags=re.ASCII)
        if name != ",".join(parts) or len(name) > _LONGEST:
            name = f"{name[:_LONGEST]}-{fingerprint(parts)[:6]}"
        return self.output / "runs" / name

    def sampler_of(self, stage: Sequence[Varied]) -> Sampler:
        """Return the sampler of a stage: a grid if there are enough trials for all combinations."""
        listed = all(setting.span is None for setting in stage)
        combinations = math.prod(len(setting.values) for setting in stage) if listed else math.inf
        return "grid" if combinations <= self.trials else self.sampler
