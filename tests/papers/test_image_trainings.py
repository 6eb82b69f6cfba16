"""`python -m papers.image_trainings` runs jobs, and goes on where it stopped."""

import csv
import sys
from pathlib import Path
from types import ModuleType

import pytest

from papers import image_trainings

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script() -> ModuleType:
    return image_trainings


def test_the_file_is_what_the_cells_have(script: ModuleType) -> None:
    with (ROOT / "docs" / "results" / "image-cells.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert rows == script.rows(script.JobStore(script.OUTPUT / "cells"))


@pytest.mark.slow
def test_cells_are_run_once_and_written(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    monkeypatch.setattr(script, "OUTPUT", tmp_path / "reproduce")
    monkeypatch.setattr(script, "SCALE", "smoke")
    asked = ["image_cells.py", str(tmp_path), "--only", "SimCLR, c = 3", "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", asked)
    script.main()
    assert "simclr cut=3" in capsys.readouterr().err
    with (tmp_path / "image-cells.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["seed"], row["epoch"]) for row in rows] == [("0", e) for e in "012"]
    assert all(float(row["norm"]) > 0 and 0 < float(row["knn"]) <= 100 for row in rows)
    assert [bool(row["linear"]) for row in rows] == [False, False, True]
    script.main()
    assert capsys.readouterr().err == "", "nothing is run again"
