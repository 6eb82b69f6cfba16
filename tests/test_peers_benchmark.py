"""`benchmarks/peers.py` measures what it says, and keeps the rows that it does not measure."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "peers.py"


@pytest.mark.slow
def test_rows_are_measured_once(tmp_path: Path) -> None:
    file = tmp_path / "peers.csv"
    said = []
    for word, rows in (("infonce", "4"), ("ntxent", "512"), ("infonce", "4")):
        command = [sys.executable, str(BENCHMARK), "--only", word, "--rows", rows]
        done = subprocess.run(
            [*command, "--dimensions", "3", "--csv", str(file)],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    with file.open(encoding="utf-8") as handle:
        found = {row["name"]: row for row in csv.DictReader(handle)}
    assert set(found) == {"infonce", "infonce symmetric", "ntxent"}
    assert "infonce, 4 x 3:" in said[0]
    assert "infonce, 4 x 3: " not in said[2].split("rows,")[0]
    for row in found.values():
        assert float(row["time_ratio"]) > 0
        assert float(row["rowblock_over_auto"]) > 0
        assert bool(row["memory_ratio"]) == (row["n"] == "512")
    missed = float(found["ntxent"]["time_ratio"]) > 1.02
    assert ("ntxent, 512 x 3: " in said[1].split("rows,")[1]) >= missed
