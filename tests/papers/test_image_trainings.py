"""`python -m papers.image_trainings` runs jobs, and goes on where it stopped."""

import sys
from pathlib import Path

import pytest

from papers import image_trainings
from papers.machinery.store import JobStore


@pytest.mark.slow
def test_trainings_are_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(image_trainings, "OUTPUT", tmp_path / "reproduce")
    monkeypatch.setattr(image_trainings, "SCALE", "smoke")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["image_trainings.py", str(tmp_path), "--only", "SimCLR, c = 3", "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", words)
    image_trainings.main()
    assert "simclr cut=3" in capsys.readouterr().err
    store = JobStore(tmp_path / "reproduce" / "cells")
    results = [store.find(job) for job in image_trainings.jobs("SimCLR, c = 3")]
    epochs = [[row["epoch"] for row in result.details["looks"]] for result in results if result]
    assert epochs == [[0, 1, 2]] * len(results)
    image_trainings.main()
    assert capsys.readouterr().err == "", "nothing is run again"
