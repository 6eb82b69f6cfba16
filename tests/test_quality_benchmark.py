"""`benchmarks/quality.py` compares the trainers seed by seed."""

import importlib.util
from pathlib import Path

spec = importlib.util.spec_from_file_location(
    "benchmarks_quality", Path(__file__).parents[1] / "benchmarks" / "quality.py"
)
assert spec is not None
assert spec.loader is not None
benchmark = importlib.util.module_from_spec(spec)
spec.loader.exec_module(benchmark)


def row(trainer: str, seed: int, score: float) -> dict[str, str]:
    return {"trainer": trainer, "seed": str(seed), "score": f"{score}", "start": "60.0"}


def test_only_seeds_that_both_trained_are_compared() -> None:
    rows = [row("isotrope", 0, 66), row("isotrope", 1, 68), row("isotrope", 2, 90)]
    rows += [row("sentence-transformers", 0, 65), row("sentence-transformers", 1, 65)]
    assert benchmark.summary(rows) == [
        "isotrope: +7.00, +2.00 (deviation 1.41) from theirs, 2 seeds",
        "sentence-transformers: +5.00, +0.00 (deviation 0.00) from theirs, 2 seeds",
    ]
    assert benchmark.summary(rows[:3]) == []
