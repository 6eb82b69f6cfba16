"""`benchmarks/transfer.py` on small tasks: it goes on where it stopped, and writes its page."""

import csv
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from isotrope.data.text.transfer_sets import TASKS, Examples, TransferTask

FILE = Path(__file__).parents[1] / "benchmarks" / "transfer.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    spec = importlib.util.spec_from_file_location("transfer_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    labels = np.arange(40) % 2
    examples = Examples(labels, [f"text {i}" for i in range(40)], [])
    splits = {"train": examples, "dev": examples, "test": examples}
    tasks = {name: TransferTask(name, ("0", "1"), splits) for name in TASKS}

    class Encoder:
        calls = 0

        @classmethod
        def load(cls, name: str, device: str) -> "Encoder":
            return cls()

        def encode(self, texts: list[str], batch_size: int, progress: bool) -> np.ndarray:
            Encoder.calls += 1
            return np.random.default_rng(0).normal(size=(len(texts), 3)).astype(np.float32)

    monkeypatch.setattr(module, "load_transfer", lambda folder, names: tasks)
    monkeypatch.setattr(module, "SentenceEncoder", Encoder)
    module.Encoder = Encoder
    return module


@pytest.mark.slow
def test_a_stopped_run_goes_on(script, tmp_path: Path, monkeypatch, capsys) -> None:
    table = tmp_path / "transfer.csv"

    def run(*arguments: str) -> str:
        given = ["transfer.py", "--mode", "prototyping", "--csv", str(table), *arguments]
        monkeypatch.setattr(sys, "argv", [*given, "--embeddings", str(tmp_path / "kept")])
        script.main()
        return capsys.readouterr().out

    assert run("--tasks", "TREC", "CR", "--fits", "batched").count("'fit': 'batched'") == 2
    assert "| average, sum |  |  |  |" in table.with_suffix(".md").read_text()
    assert run().count("'fit'") == 12
    assert run() == ""
    assert script.Encoder.calls == 1
    with table.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert {(row["task"], row["fit"]) for row in rows} == {
        (name, fit) for name in TASKS for fit in ("batched", "sequential")
    }
    (row,) = (row for row in rows if (row["task"], row["fit"]) == ("MR", "sequential"))
    page = table.with_suffix(".md").read_text().splitlines()
    assert "## all-MiniLM-L6-v2, prototyping mode" in page
    (line,) = (line for line in page if line.startswith("| MR |"))
    accuracy = f"{float(row['accuracy']):.2f}"
    assert line.startswith(f"| MR | {accuracy} | {accuracy} | +0.00 | {row['errors']} |")
    errors = 7 * int(row["errors"])
    assert f"| average, sum | {accuracy} | {accuracy} | +0.00 | {errors} | {errors} |" in "\n".join(
        page
    )
