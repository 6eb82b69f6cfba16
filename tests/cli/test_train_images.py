"""`isotrope train-images` as it is typed: settings, refusals, a real signal to real workers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from isotrope.training.checkpoints import step_of
from tests.patience import MINUTES, wait_until
from tests.training.interrupted import checkpoints

QUICK = ["--encoder", "resnet9", "--width", "4", "--no-progress", "--no-linear", "--knn-every", "0"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Sixty pictures without labels."""
    from PIL import Image

    random = np.random.default_rng(0)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(60):
        pixels = random.integers(0, 255, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def test_the_settings_read_back(run, tmp_path: Path) -> None:
    asked = ["digits", "--method", "mocov2", "--method.queue", "256", "--objective", "infonce"]
    asked += ["--objective.temperature", "0.2", "--cut", "3", "--output", tmp_path / "run"]
    found = run("train-images", *asked, "--print-config")
    assert found.code == 0
    values = yaml.safe_load(found.out)
    assert values["method.queue"] == 256
    assert values["objective.temperature"] == 0.2
    assert (values["data"], values["cut"], values["batch-size"]) == ("digits", 3.0, 128)
    (tmp_path / "again.yaml").write_text(found.out)
    again = run("train-images", "--config", tmp_path / "again.yaml", "--print-config")
    assert again.out == found.out
    changed = run(
        "train-images", "--config", tmp_path / "again.yaml", "--seed", 5, "--print-config"
    )
    assert yaml.safe_load(changed.out) == {**values, "seed": 5}
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--output is missing"),
        (["--output", "OUT"], "DATA is missing"),
        (["nowhere", "--output", "OUT"], "nowhere"),
        (["digits", "--output", "OUT", "--method", "mocov"], "unknown method 'mocov'"),
        (["digits", "--output", "OUT", "--method.queue", "5"], "has no option 'queue'"),
        (["digits", "--output", "OUT", "--stem", "cifer"], "--stem"),
        (["digits", "--output", "OUT", "--backend", "fast"], "'auto', 'eager', 'rowblock'"),
        (["digits", "--output", "OUT", "--encoder", "vit-tiny", "--width", "7"], "7"),
        (["digits", "--output", "OUT", "--augment", "none"], "none"),
    ],
)
def test_bad_input_is_one_line_and_costs_nothing(
    run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    output = tmp_path / "run"
    found = run("train-images", *[str(output) if a == "OUT" else a for a in arguments])
    assert found.code == 2
    assert message in found.err
    assert len(found.err.splitlines()) == 1
    assert not output.exists()


@pytest.mark.nightly
def test_ctrl_c_while_workers_decode_leaves_a_checkpoint_to_resume(
    run, pictures: Path, tmp_path: Path
) -> None:
    """The whole group gets the signal, as from a terminal: the workers must not die of it."""
    output = tmp_path / "run"
    command = [sys.executable, "-m", "isotrope", "train-images", str(pictures), *QUICK]
    command += ["--output", str(output), "--epochs", "4000", "--log-every", "1"]
    command += ["--batch-size", "16", "--workers", "2"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    metrics = output / "metrics.csv"
    wait_until(
        lambda: (
            process.poll() is not None
            or (metrics.is_file() and len(metrics.read_text().splitlines()) > 3)
        )
    )
    assert process.poll() is None, process.stderr.read()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=MINUTES)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    stopped = step_of(checkpoints(output)[0])
    assert f"stopped at step {stopped};" in out
