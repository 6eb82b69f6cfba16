"""A loop has no last call to the Doctor: it writes its folder when the program ends."""

import subprocess
import sys
from pathlib import Path

from isotrope.core.run_folder import RunFolder
from tests.patience import MINUTES

PROGRAM = """
import os
import shutil
import torch
import isotrope

def train(doctor, steps=5):
    encoder = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16))
    for _ in range(steps):
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

for steps in (3, 4):  # the loop is interrupted, and run again
    train(isotrope.Doctor(every=1, path="twice"), steps)
    train(isotrope.Doctor(every=1, path=os.path.abspath("kept")), steps)
newer = isotrope.Doctor(every=1)
train(newer, 6)
newer.save("kept")
raise SystemExit("the loop failed")
"""


def test_a_killed_loop_has_left_its_rows(tmp_path: Path) -> None:
    trained = PROGRAM.partition("train(isotrope")[0]
    trained += "import isotrope.adapters.doctor.doctor as doctor; doctor._PAUSE = 0\n"
    killed = f'{trained}train(isotrope.Doctor(every=1, path="killed"))\nos._exit(9)'
    subprocess.run([sys.executable, "-c", killed], cwd=tmp_path, check=False, timeout=MINUTES)
    folder = RunFolder(tmp_path / "killed")
    assert folder.diagnosis.is_file()
    assert folder.metrics.read_text().count("\n") == 1 + 5


def test_a_loop_that_never_saves_is_written_at_the_end(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=MINUTES,
    )
    assert ended.stderr == "the loop failed\n"
    assert ended.stdout.count("verdict: ") == 2  # of "left" and "twice"
    steps = {"left": 5, "twice": 4, "kept": 6}  # of the newest Doctor of each folder
    assert {path.name for path in tmp_path.iterdir()} == set(steps)  # "saved" was not written again
    for name, count in steps.items():
        folder = RunFolder(tmp_path / name)
        assert folder.diagnosis.is_file()
        assert folder.metrics.read_text().count("\n") == 1 + count
