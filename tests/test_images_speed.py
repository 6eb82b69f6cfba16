"""`benchmarks/images_speed.py` runs: its parts, and a step of each way to train."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "benchmarks" / "images_speed.py"


def speed(*arguments: str) -> str:
    """What the command prints."""
    command = [sys.executable, str(FILE), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_parts() -> None:
    said = speed("--parts", "--batch", "2")
    for name in ("simclr", "dino", "PIL", "hue", "crop, grid_sample"):
        assert f"  {name} " in said


@pytest.mark.nightly
def test_every_way_trains(tmp_path: Path) -> None:
    table = tmp_path / "speed.csv"
    said = speed("--steps", "1", "--batch", "4", "--rounds", "1", "--csv", str(table))
    with table.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["way"] for row in rows] == ["plain", "isotrope", "isotrope bf16"]
    assert all(0 < float(row["loss"]) < 20 for row in rows)
    assert "isotrope bf16: " in said
