"""Asked: what a sweep is told, and the runs that follow from it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from isotrope.core.fingerprint import fingerprint
from isotrope.methods.settings import RunSettings
from isotrope.sweep.samplers import Grid, Kind, Random, Values
from isotrope.sweep.varied import Varied

__all__ = ["Sweep", "kind_of", "planned"]

_LONGEST = 120  # characters of a folder's name


@dataclass(frozen=True)
class Sweep:
    """What is asked for.

    Attributes:
        settings: text or images.
        base: of every run, as flags or a file give it.
        stages: what is varied in each.
        output: folder.
        seeds: of every setting.
        sampler: of values.
        trials: of each stage, where a grid does not say it.
        draws: seed of the sampler.
        metric: of a run's result.
        highest: whether higher is better.
        jobs: runs at a time.
        keep: whose models and checkpoints stay: those of all runs, or of the best trial.
    """

    settings: type[RunSettings]
    base: Mapping[str, Any]
    stages: Sequence[Sequence[Varied]]
    output: Path
    seeds: Sequence[int] = (42,)
    sampler: Kind = "grid"
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
        own = {**base, **values, "seed": seed, "progress": False}
        return self.settings.read({**own, "output": str(self.folder(values, seed))})

    def folder(self, values: Values, seed: int) -> Path:
        """Return the run folder of values and a seed: its name says both."""
        told = [f"{name}={value}" for name, value in {**values, "seed": str(seed)}.items()]
        name = re.sub(r"[^\w.=,+-]", "_", ",".join(told), flags=re.ASCII)
        if name != ",".join(told) or len(name) > _LONGEST:
            name = f"{name[:_LONGEST]}-{fingerprint(told)[:6]}"
        return self.output / "runs" / name


def planned(asked: Sweep, varied: Sequence[Varied]) -> list[dict[str, str]] | None:
    """Return all values of a stage, or None where they depend on scores.

    Raises:
        InputError: a range in a grid.
    """
    kind = kind_of(asked, varied)
    if kind == "optuna":
        return None
    if kind == "grid":
        return Grid(varied).every
    return Random(varied, asked.trials, asked.draws).every


def kind_of(asked: Sweep, varied: Sequence[Varied]) -> Kind:
    """Return the sampler of a stage: where there is time for every combination, no other."""
    listed = all(one.span is None for one in varied)
    every = math.prod(len(one.values) for one in varied) if listed else math.inf
    return "grid" if every <= asked.trials else asked.sampler
