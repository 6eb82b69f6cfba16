"""`benchmarks/tuning.py` takes the regret of every way over whole seeds, and holds its levels."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from isotrope.core.views import Views
from isotrope.diagnostics.audit.settings import GRID
from isotrope.paradigm.anatomy import anatomy

spec = importlib.util.spec_from_file_location(
    "benchmarks_tuning", Path(__file__).parents[1] / "benchmarks" / "tuning.py"
)
assert spec is not None
assert spec.loader is not None
benchmark = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = benchmark  # dataclasses look there
spec.loader.exec_module(benchmark)


def rows(
    seed: int, scores: dict[str, float], recommended: str, *, batch: int = 32
) -> list[dict[str, str]]:
    """Rows of a task; what is not named scores 50, and dev says what test says."""
    names = [f"{value:g}" for value in GRID["temperature"]]
    common = {"task": "a", "seed": str(seed), "batch": str(batch), "setting": "temperature"}
    return [
        {**common, "way": "recommended", "value": recommended, "score": ""},
        *(
            {**common, "way": way, "value": way, **dict.fromkeys(("third", "dev", "score"), score)}
            for way in (*names, "hold share", "hold GD")
            for score in [str(scores.get(way, 50.0))]
        ),
    ]


def test_the_regret_is_that_of_the_means() -> None:
    both = [
        *rows(0, {"0.1": 60, "0.05": 58, "hold share": 59}, "0.1"),
        *rows(1, {"0.1": 62, "0.05": 63, "hold share": 60}, "0.05"),
    ]
    (found,) = benchmark.measured(both, "temperature").values()
    assert (found.best, found.at) == (61.0, "0.1")
    ways = ("default", "recommended", "hold share", "hold GD", "all seven, on dev")
    assert [found.regret(way) for way in ways] == [0.5, -0.5, 1.5, 11, -0.5]


def test_a_search_takes_what_it_trains() -> None:
    (found,) = benchmark.measured(rows(0, {"0.1": 60}, "0.1"), "temperature").values()
    assert found.costs["all seven, on dev"] == 7
    assert found.costs["the best 2 at a third"] == pytest.approx(7 / 3 + 4 / 3)
    assert found.costs["recommended"] == 1


def test_only_those_that_led_at_a_third_are_chosen_among() -> None:
    own = rows(0, {"0.1": 60, "0.05": 58, "0.2": 57}, "0.1")
    for row in own:
        row |= {"third": "0"} if row["way"] == "0.1" else {}
    (found,) = benchmark.measured(own, "temperature").values()
    assert found.scores["the best 2 at a third"] == [58]
    assert found.scores["all seven, on dev"] == [60]


def test_a_seed_that_is_not_whole_is_left_out() -> None:
    some = [*rows(0, {"0.1": 60}, "0.1"), *rows(1, {"0.1": 90}, "0.05")[:4]]
    (found,) = benchmark.measured(some, "temperature").values()
    assert found.best == 60
    assert benchmark.measured(some[:3], "temperature") == {}


def test_the_spread_is_over_the_batch_sizes() -> None:
    every = [
        row
        for batch, best in zip(benchmark.BATCHES, (60, 61, 62, 65), strict=True)
        for row in rows(0, {"0.1": best, "0.05": 55}, "0.1", batch=batch)
    ]
    line = benchmark.report(every, "temperature")[-1]
    assert "best of seven 5.00, default 0.00, recommended 5.00" in line


@pytest.mark.parametrize(("setting", "way"), [("temperature", "hold share"), ("margin", "hold GD")])
def test_a_thermostat_reaches_its_level_on_a_batch(setting: str, way: str) -> None:
    generator = torch.Generator().manual_seed(0)
    anchors = torch.randn(64, 16, generator=generator)
    views = Views(anchors, anchors + torch.randn(64, 16, generator=generator))
    thermostat = benchmark.ways(setting, thermostats=True)[way]()
    objective = thermostat(views)
    assert anatomy(objective, views)[thermostat.quantity] == pytest.approx(
        thermostat.level, abs=0.02
    )
    assert thermostat.value == objective.hyperparameters()[setting]
