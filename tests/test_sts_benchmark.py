"""`benchmarks/sts.py` runs, and both sides come to the same numbers."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from isotrope.encoders.sentence import SentenceEncoder

from .sts_folder import write_plain

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "sts.py"


@pytest.mark.nightly
def test_one_round_with_a_small_encoder(tmp_path: Path) -> None:
    texts = ["a small boat on a wide river", "OnWN MSRpar headlines images 1 2 3"]
    SentenceEncoder.scratch(texts, layers=1, width=32).save(tmp_path / "model")
    command = [sys.executable, str(BENCHMARK), "--sts", str(write_plain(tmp_path / "sts"))]
    command += ["--encoder", str(tmp_path / "model"), "--csv", str(tmp_path / "sts.csv")]
    command += ["--rounds", "1", "--threads", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "sts.csv").open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["by"] for row in rows] == ["SentEval's batcher", "isotrope"]
    for row in rows:
        assert float(row["seconds"]) > 0
        assert float(row["cpu_seconds"]) > 0
        assert row["threads"] == "1"
    assert "numbers that differ: none" in done.stdout
    assert [row["STS14"] for row in rows] == [rows[0]["STS14"]] * 2
    assert "seconds: " in done.stdout
