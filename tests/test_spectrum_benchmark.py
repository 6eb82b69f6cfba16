"""``benchmarks/spectrum.py`` runs at sizes of seconds, and goes on where it stopped."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.nightly
def test_tiny_sizes(tmp_path: Path) -> None:
    table = tmp_path / "spectrum.csv"
    command = [sys.executable, "-m", "benchmarks.spectrum", "--smoke", "--rounds", "2"]
    command += ["--work", str(tmp_path / "work"), "--csv", str(table), "--iterations", "40"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = []
    for _ in range(2):
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    # what is done is not done again
    assert told[0] == told[1]
    assert "extremes within 1e-3 of SciPy's: met" in told[0]
    with table.open(newline="", encoding="utf-8") as handle:
        rows = {row["what"]: row["value"] for row in csv.DictReader(handle)}
    assert float(rows["products apart"]) < 1e-6
    assert float(rows["product, seconds"]) > 0
