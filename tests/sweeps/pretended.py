"""Trainings that take no time: their score is a formula of their settings."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isotrope.core.errors import Diverged, InputError
from isotrope.core.result import Result
from isotrope.sweeps import plan, sweep
from isotrope.training.early_checks import check_folder
from isotrope.training.run import Outcome, trained, write_config
from isotrope.training.run_settings import RunSettings
from isotrope.training.settings import TrainSettings

Score = Callable[[RunSettings], float]


def score(settings: RunSettings) -> float:
    """Highest at a learning rate of 3e-5 and a temperature of 0.05; rises with the seed."""
    assert isinstance(settings, TrainSettings)
    rate = math.log10(float(settings.learning_rate) / 3e-5)
    temperature = float(settings.objective_settings.get("temperature", 0.05))
    return 70 - rate**2 - 100 * abs(temperature - 0.05) + settings.seed / 100


def pretend(monkeypatch: pytest.MonkeyPatch, score: Score = score) -> list[Path]:
    """Let a sweep train by a formula, and open nothing before it; return the runs it made."""
    made: list[Path] = []

    def train(settings: RunSettings, *, resume: bool) -> Outcome:
        folder = Path(settings.output)
        finished = check_folder(folder, settings, resume=resume)
        if finished is not None:
            return Outcome(finished, folder)
        write_config(settings)
        made.append(folder)
        for part in ("model", "rejected", "refit", "checkpoints", "tokens"):
            (folder / part).mkdir(exist_ok=True)
        value = score(settings)
        if math.isinf(value):
            raise Diverged("training diverged: the loss is not finite at step 3")
        if value < 0:
            raise InputError("no such luck")
        metrics: dict[str, Any] = {"dev_best": value, "loss": -value, "seconds": 1.0}
        known = {"versions": {"isotrope": "1.0"}, "seed": settings.seed}
        result = Result("train", folder.name, {**metrics, "wall_seconds": 2.0}, {}, known)
        result.save(folder / "result.json")
        return Outcome(result, folder)

    monkeypatch.setattr(sweep, "trained", lambda settings: trained(settings, train))
    monkeypatch.setattr(plan, "_check_data", lambda settings, metric: None)
    return made
