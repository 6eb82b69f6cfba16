"""A loop has no last call to the Doctor: it writes its folder when the program ends."""

import subprocess
import sys
from pathlib import Path

from isotrope.core.run_folder import RunFolder
from tests.patience import MINUTES

PROGRAM = """
import shutil
import torch
import isotrope

def train(doctor):
    encoder = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16))
    for _ in range(5):
        x = torch.randn(16, 8)
        a, b = encoder(x), encoder(x + 0.3 * torch.randn(16, 8))
        loss = torch.nn.functional.cross_entropy(a @ b.T, torch.arange(16))
        doctor.observe(loss)
        loss.backward()

train(isotrope.Doctor(every=1, path="left"))
saved = isotrope.Doctor(every=1, path="saved")
train(saved)
shutil.rmtree(saved.save())
train(isotrope.Doctor(every=1))
raise SystemExit("the loop failed")
"""


def test_a_loop_that_never_saves_is_written_at_the_end(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=MINUTES,
    )
    assert ended.stderr == "the loop failed\n"
    assert ended.stdout.count("verdict: ") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["left"]  # the other was written already
    folder = RunFolder(tmp_path / "left")
    assert folder.diagnosis.is_file()
    assert folder.metrics.read_text().count("\n") == 6
