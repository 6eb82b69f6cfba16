"""`benchmarks/small.py` measures what it says, and keeps the rows that it does not measure."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "small.py"


@pytest.mark.slow
def test_rows_are_replaced_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "small.csv"
    for word, rows in (("infonce", "4"), ("mpt", "4"), ("mpt", "5")):
        command = [sys.executable, str(BENCHMARK), "--only", word, "--rows", rows]
        done = subprocess.run(
            [*command, "--dimensions", "3", "--csv", str(file)],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "eager / rowblock" in done.stdout
    with file.open(encoding="utf-8") as handle:
        found = list(csv.DictReader(handle))
    sizes = [(row["name"], row["n"]) for row in found]
    assert [size for size in sizes if size[0] == "mpt"] == [("mpt", "4"), ("mpt", "5")]
    assert ("infonce symmetric", "4") in sizes
    for row in found:
        assert float(row["eager_over_rowblock"]) > 0
        assert bool(row["auto_over_plain"]) == (row["name"] in ("infonce", "infonce symmetric"))
