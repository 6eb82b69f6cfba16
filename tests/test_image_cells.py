"""`benchmarks/image_cells.py` runs cells, goes on where it stopped, and reports what there is."""

import csv
import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "image_cells.py"


@pytest.mark.slow
def test_cells_are_run_once_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    spec = importlib.util.spec_from_file_location("image_cells", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    cells = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cells)
    monkeypatch.setattr(cells, "RESULTS", tmp_path / "cells.csv")
    small = ["--limit", "128", "--encoder", "resnet9", "--width", "4", "--batch-size", "64"]
    small += ["--log-every", "1", "--no-progress"]
    monkeypatch.setattr(cells, "COMMON", small)
    own = ["--epochs", "2", "--knn-every", "1"]
    monkeypatch.setattr(cells, "CELLS", {k: [*own, *v] for k, v in cells.METHODS.items()})
    monkeypatch.setattr(cells, "SEEDS", (0, 1))
    asked = ["image_cells.py", "digits", "--only", "SimCLR, c = 3", "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", asked)
    cells.main()
    first = capsys.readouterr().out
    with (tmp_path / "cells.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["seed"], row["epoch"]) for row in rows] == [(s, e) for s in "01" for e in "012"]
    assert all(float(row["norm"]) > 0 and 0 < float(row["knn"]) <= 100 for row in rows)
    assert [bool(row["linear"]) for row in rows] == [False, False, True] * 2
    assert "SimCLR, c = 3, seed 1: kNN" in first
    assert "| SimCLR, c = 3 | 2 | " in first

    def twice(*_: object) -> None:
        raise AssertionError("it has been run")

    monkeypatch.setattr(cells, "train", twice)
    cells.main()
    assert capsys.readouterr().out in first
