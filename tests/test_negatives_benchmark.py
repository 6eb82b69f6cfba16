"""`benchmarks/negatives.py`: its groups, and gains seed by seed over the arm that leaves things."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

spec = importlib.util.spec_from_file_location(
    "benchmarks_negatives", Path(__file__).parents[1] / "benchmarks" / "negatives.py"
)
assert spec is not None
assert spec.loader is not None
benchmark = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = benchmark  # dataclasses look there
spec.loader.exec_module(benchmark)


def test_groups_are_joined_and_counted() -> None:
    texts = benchmark.same_texts([("a", "p"), ("b", "q"), ("A!", "r"), ("c", "s")])
    assert benchmark.masked(texts) == 2
    both = benchmark.joined(texts, [0, 1, 2, 1])
    assert both[0] == both[2]
    assert both[1] == both[3] != both[0]
    assert benchmark.masked(both) == 4
    assert benchmark.masked(np.arange(5)) == 0


def test_gains_are_taken_seed_by_seed() -> None:
    shared = {"part": "false", "data": "d", "rows": "9"}
    scores = {("left", 0): 50, ("left", 1): 60, ("grouped", 0): 53, ("grouped", 1): 61}
    rows = [
        {**shared, "arm": arm, "seed": str(seed), "score": str(score), "changed": "4"}
        for (arm, seed), score in scores.items()
    ]
    rows.append({**rows[-1], "arm": "other", "seed": "0", "score": "49"})
    assert benchmark.means(rows)[1:] == [
        "false, d, grouped: 57.00, gain +2.00 ± 1.41 (2 seeds; 4 of 9 rows changed)",
        "false, d, other: 49.00, gain -1.00 (1 seeds; 4 of 9 rows changed)",
    ]


def test_the_rank_of_the_own_answer() -> None:
    class Model:
        def encode(self, texts: list[str], **_: object) -> object:
            import torch

            return torch.tensor([[float(x) for x in text.split(",")] for text in texts])

    test = [("1,0", "1,0"), ("0.9,0.1", "0,1")]
    assert benchmark.score(Model(), test) == pytest.approx(75.0)  # ranks 1 and 2
