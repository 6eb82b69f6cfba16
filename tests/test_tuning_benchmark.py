"""`benchmarks/tuning.py` takes the regret of what was recommended, over whole seeds."""

import importlib.util
import sys
from pathlib import Path

from isotrope.diagnostics.audit.settings import GRID

spec = importlib.util.spec_from_file_location(
    "benchmarks_tuning", Path(__file__).parents[1] / "benchmarks" / "tuning.py"
)
assert spec is not None
assert spec.loader is not None
benchmark = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = benchmark  # dataclasses look there
spec.loader.exec_module(benchmark)


def rows(seed: int, scores: dict[float, float], recommended: float) -> list[dict[str, str]]:
    of_seed = [
        {"task": "a", "seed": str(seed), "temperature": str(t), "score": str(scores.get(t, 50.0))}
        for t in GRID["temperature"]
    ]
    chosen = {"task": "a", "seed": str(seed), "temperature": f"audit: {recommended}", "score": ""}
    return [chosen, *of_seed]


def test_the_regret_is_that_of_the_means() -> None:
    both = [*rows(0, {0.1: 60, 0.05: 58}, 0.1), *rows(1, {0.1: 62, 0.05: 58}, 0.05)]
    assert benchmark.regrets(both) == [
        "a: best 61.00 at 0.1; recommended 0.1, 0.05, regret 1.50; default regret 3.00 (2 seeds)",
        "mean of 1: recommended, regret 1.50; default 3.00",
    ]


def test_a_seed_that_is_not_whole_is_left_out() -> None:
    some = [*rows(0, {0.1: 60}, 0.1), *rows(1, {0.1: 90}, 0.05)[:4]]
    assert benchmark.regrets(some)[:1] == [
        "a: best 60.00 at 0.1; recommended 0.1, regret 0.00; default regret 10.00 (1 seeds)"
    ]
    assert benchmark.regrets(some[:3]) == []
