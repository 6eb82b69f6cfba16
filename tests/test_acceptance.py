"""What takes minutes: a real encoder on real text, scored by people's judgements."""

import gzip
import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from isotrope.training.fit_text import fit


@pytest.mark.nightly
def test_wikipedia_raises_sts_b(shared_data: Path, tmp_path: Path) -> None:
    """20,000 Wikipedia sentences, MiniLM, InfoNCE: the dev score rises above its start."""
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(2)
    text = tmp_path / "wiki.txt"
    with gzip.open(shared_data / "corpus" / "wiki_en_1m.txt.gz", "rt", encoding="utf-8") as lines:
        text.write_text("".join(itertools.islice(lines, 20_000)), encoding="utf-8")
    outcome = fit(
        [text],
        output=tmp_path / "run",
        encoder="all-MiniLM-L6-v2",
        objective="infonce",
        dev=str(shared_data / "sts" / "stsb" / "dev.tsv"),
        batch_size=128,
        max_steps=25,
        eval_every=25,
    )
    metrics = outcome.result.metrics
    # SimCSE's protocol cuts no sentence in evaluation; cut at 32 tokens the start is 86.61
    assert metrics["dev_start"] == pytest.approx(86.72, abs=0.05)
    assert metrics["dev_best"] > metrics["dev_start"] + 0.2
    model = SentenceTransformer(str(outcome.output / "model"), device="cpu")
    assert model.encode(["a sentence"]).shape == (1, 384)


@pytest.mark.nightly
def test_published_sts_of_minilm_through_a_kill(shared_data: Path, tmp_path: Path) -> None:
    """`isotrope evaluate` killed after its first tasks, and run again: the published numbers."""
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "isotrope", "evaluate", "all-MiniLM-L6-v2", "--json"]
    command += ["--sts", str(shared_data / "sts"), "--results", str(kept), "--device", "cpu"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list(kept.glob("*.json"))) < 2 and running.poll() is None:
        time.sleep(0.1)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "already scored" in done.stderr
    assert "STS12, STS13" in done.stderr
    details = json.loads(done.stdout)
    found = {task: scores["spearman"] for task, scores in details["tasks"].items()}
    published = {
        "STS12": 72.37,
        "STS13": 80.60,
        "STS14": 75.59,
        "STS15": 85.39,
        "STS16": 78.99,
        "STS-B": 82.03,
        "SICK-R": 77.15,
    }
    assert found == pytest.approx(published, abs=0.02)
    assert details["average"] == pytest.approx(78.87, abs=0.02)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(again.stdout) == details
