"""`benchmarks/anatomy_cost.py` runs, on the cheaper of its cases."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "benchmarks" / "anatomy_cost.py"


@pytest.mark.nightly
def test_a_look_is_told_from_a_step(tmp_path: Path) -> None:
    table = tmp_path / "cost.csv"
    command = [sys.executable, str(FILE), "--only", "digits", "--steps", "2", "--csv", str(table)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    with table.open(newline="", encoding="utf-8") as handle:
        (row,) = csv.DictReader(handle)
    assert float(row["plain_s"]) > 0 < float(row["looked_s"])
    # milliseconds per look, and a tenth of them in steps of the plain kind
    share = float(row["look_ms"]) / 1000 / float(row["plain_s"]) / 10
    assert float(row["share_at_10"]) == pytest.approx(share, abs=1e-4)
    assert row["case"] in done.stdout
