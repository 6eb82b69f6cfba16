"""`benchmarks/components.py`: halving chooses on dev, among those that led at a third."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("components", BENCHMARKS / "components.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "components", module)
    spec.loader.exec_module(module)
    return module


def rows(benchmark, count: int = 27) -> list[dict[str, str]]:
    """Combination i has i at a third, 100 - i on dev and 50 + i on test."""
    scored = [
        {"third": str(i), "dev": str(100 - i), "score": str(50 + i), "ratio": str(i)}
        for i in range(count)
    ]
    common = {"task": "a", "seed": "0", "dissipation": "none", "weight": "softmax:0.05"}
    return [{**common, **row} for row in scored]


@pytest.mark.parametrize(("kept", "chosen"), [(3, "24"), (9, "18"), (27, "0")])
def test_it_is_the_best_on_dev_of_those_that_led(benchmark, kept: int, chosen: str):
    assert benchmark.halved(rows(benchmark), kept)["ratio"] == chosen


def test_the_report_compares_with_the_recommendation(benchmark):
    common = {"task": "a", "seed": "0", "setting": "temperature", "batch": "32"}
    singles = [
        {**common, "way": "0.05", "value": "0.05", "score": "60"},
        {**common, "way": "0.02", "value": "0.02", "score": "64"},
        {**common, "way": "recommended", "value": "0.02", "score": ""},
    ]
    lines = benchmark.report(rows(benchmark), singles)
    assert "InfoNCE at 0.05 60, as recommended 64, the best 3 at a third 74" in lines[0]
    assert "best of all 76 (none softmax:0.05 26)" in lines[0]
    assert "mean of 1, less as recommended: InfoNCE at 0.05 -4.00, as recommended +0.00" in lines[1]
    assert benchmark.report(rows(benchmark, 20), singles) == [], "a part of the grid says nothing"


def test_every_combination_is_an_objective(benchmark):
    for parts in benchmark.itertools.product(*benchmark.GRID.values()):
        assert benchmark.Composed(parts)(None).name == "paradigm"
