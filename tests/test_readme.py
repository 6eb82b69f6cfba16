"""The README's Python examples run as they stand there."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.conftest import sentences

README = Path(__file__).resolve().parents[1] / "README.md"


FIRST, LOOP = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(FIRST.strip().splitlines()) <= 12
    (tmp_path / "sentences.txt").write_text("\n".join(sentences(400)) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(FIRST, "README.md", "exec"), {"__name__": "__main__"})
    shown = capsys.readouterr().out
    assert (tmp_path / "runs" / "short" / "model" / "modules.json").is_file()
    assert "tensor" in shown


def test_the_loop_of_ones_own_runs(tmp_path: Path) -> None:
    shown = run(LOOP, tmp_path)
    assert shown.startswith("verdict: ")
    with (tmp_path / "runs" / "mine" / "metrics.csv").open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert [int(row["step"]) for row in rows] == [0, 10, 20, 30, 40, 50]
    assert all(0 < float(row["dissipation"]) <= 1 for row in rows)


def run(example: str, folder: Path) -> str:
    """Run a program there; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-c", example],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
